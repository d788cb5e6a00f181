"""The runtime of a node: clock, timers, links to peers, syncs, executors, randomness.

Services are written against `penstock.runtime.port` and nothing else. The port has two
implementations. This package holds the production one, on uvloop: the machine's clocks, raw
sockets, a helper process for fdatasync, disk threads and worker processes, and a
supervisor that ends the node when any of its callbacks raises. `penstock.sim`
holds the other: virtual time, a seeded network and crashable disks, where thousands of
faults fit into a second and every run can be repeated from its seed.

    port              what services may use
    loop              builds the production runtime; supervisor; runs one node
    timers            timers on the loop
    executors         disk threads and worker processes; worker_process is the child's side
    sync_helper       fdatasync in a helper process; sync_process is the child's side
    peer_transport    links between nodes over TCP, with peer_link and peer_handshake
    tcp               connections of clients
    memory_limits     bytes of requests and responses in memory
    child_command     command lines of children that do not outlive us

    service  --calls-->  port  <--implements--  runtime (uvloop)   |  sim
             <--callbacks, one at a time, never inside a call--

Everything is callback-style and synchronous. There is no `await` in a service, so there
is no hidden point at which its state may change: what it checked still holds when it
acts. It also makes the order of events the order of the calls, which makes a run repeatable.

Only the port is exported here; the production implementation is `penstock.runtime.loop`. The
connections of clients (`penstock.runtime.tcp`) are for servers, which run on the same loop;
they are no part of the port, and services never see them.

Left out: a rule that serves peers before clients when both have something to read, and a
node-wide limit of descriptors and bytes; a link can be paused, which is what such a limit
will do.
"""

from penstock.runtime.port import (
    Address,
    AddressUnavailable,
    Buffer,
    Callback,
    Clock,
    CloseReason,
    DiskSync,
    Entropy,
    Executor,
    ExecutorFull,
    ExecutorKind,
    Job,
    Link,
    LinkHandler,
    NodeIdentity,
    PeerListener,
    Program,
    Runtime,
    Service,
    SyncTarget,
    Timer,
    Timers,
    Transport,
    WorkerDied,
)

__all__ = [
    "Runtime",
    "Program",
    "Service",
    "Callback",
    "Buffer",
    "Clock",
    "Timers",
    "Timer",
    "Transport",
    "PeerListener",
    "Link",
    "LinkHandler",
    "Address",
    "NodeIdentity",
    "CloseReason",
    "AddressUnavailable",
    "DiskSync",
    "SyncTarget",
    "Executor",
    "ExecutorKind",
    "Job",
    "ExecutorFull",
    "WorkerDied",
    "Entropy",
]
