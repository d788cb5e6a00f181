"""Running a piece of work on the production runtime, without being a node."""

from collections.abc import Callable
from uuid import UUID

import uvloop

from penstock.core.model import NodeId
from penstock.runtime import Callback, Identity, Runtime
from penstock.runtime.launch import RuntimeOptions, open_runtime
from penstock.runtime.supervisor import Supervisor

NOBODY = Identity(UUID(int=0), NodeId(0), UUID(int=0))


def run_on_runtime(start: Callable[[Runtime, Callback], None]) -> None:
    """Call `start` with a runtime, and return once it has called what it was given; raise what it raised."""
    loop = uvloop.new_event_loop()
    supervisor = Supervisor(loop)
    loop.set_exception_handler(supervisor.loop_failed)
    try:
        runtime = open_runtime(loop, supervisor, NOBODY, RuntimeOptions())
        loop.call_soon(supervisor.deliver, start, runtime, supervisor.stop)
        loop.run_forever()
    finally:
        supervisor.close()
        loop.close()
    if supervisor.failure is not None:
        raise supervisor.failure
