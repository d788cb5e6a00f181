"""What a node may know of the world outside: clock, timers, peers, syncs, workers, randomness.

Services are written against `penstock.runtime.port` and nothing else. The port has two
forms. This package holds the production one, on uvloop: the machine's clocks, raw
sockets, a helper process for fdatasync, disk threads and worker processes, and a
supervisor that ends the node when any of its callbacks raises. `penstock.sim`
holds the other: virtual time, a seeded network and crashable disks, where thousands of
adversities fit into a second and every run can be repeated from its seed.

    service  --calls-->  port  <--implements--  runtime (uvloop)   |  simulation
             <--callbacks, one at a time, never inside a call--

Everything is callback-style and synchronous. There is no `await` in a service, so there
is no hidden point at which its state may change: what it checked still holds when it
acts. It also keeps the order of events a plain matter of who was called first, which is
what makes a run repeatable.

Only the port is exported here; the production form is `penstock.runtime.loop`. The byte
streams of clients (`penstock.runtime.tcp`) are for gateways, which run on the same loop;
they are no part of the port, and services never see them.

Left out: a rule that serves peers before clients when both have something to read, and a
node-wide budget of descriptors and bytes; a link can be paused, which is what such a budget
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
