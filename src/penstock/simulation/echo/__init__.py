"""A small service that proves the runtime port is enough: a durable, deduplicating echo.

It has the bones of everything that comes later: a listener and a caller with retry
timers and correlation ids, group commit, answers that wait for a sync, recovery from
a torn file. The same classes run on the production runtime over real sockets and files,
and in the simulator under every fault there is.

Left out: it never forgets an id, and it has one server.
"""

from penstock.simulation.echo.client import EchoClient, EchoHistory, Load
from penstock.simulation.echo.server import DurableEcho
from penstock.simulation.echo.world import run_echo

__all__ = ["DurableEcho", "EchoClient", "EchoHistory", "Load", "run_echo"]
