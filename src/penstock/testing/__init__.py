"""A broker for tests: real, empty, on free ports, and gone at the end.

    with broker() as b:
        b.bootstrap_servers, b.http_url, b.create_topic("orders", partitions=3)

    brokers        broker() and what it yields: one node, or several that are a cluster
    embedded       a node on a thread of this process
    child          a node in a process of its own, which can be killed and started again
    fork_server    the process that has imported a node, and from which those processes are forked
    unsynced_disk  the disk of both, on which nothing is synced
    scratch        the directory for their data, which is removed even if this process is killed
    pytest_plugin  the fixtures penstock_broker and penstock_topic

It is the production node on a disk that syncs nothing, with the settings of `TEST_SETTINGS`, which leave
out other waits of a test (for more members of a group). A node on a thread starts faster and shows up in a
debugger, but shares the GIL with the test; one in a process of its own does not, and a test can kill it.

Nothing stays behind: threads, processes, sockets, files, signal handlers, the settings of the garbage
collector. That holds after an exception in the test, and, for processes and files, when the process of
the test is killed: whoever must go watches a pipe that ends with it.

This module imports nothing of the broker until one is started, so that the pytest plugin costs nothing
where it is not used.

Left out: mocks of the protocol, faults of network and disk (the simulator has them), other systems than
Linux.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from penstock.testing.brokers import TEST_SETTINGS, Broker, BrokerNode, broker

__all__ = ["broker", "Broker", "BrokerNode", "TEST_SETTINGS"]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from penstock.testing import brokers

    return getattr(brokers, name)
