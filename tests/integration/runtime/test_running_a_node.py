"""One node in a process of its own: how it starts, stops and fails."""

import signal
import subprocess
import sys
import textwrap

import pytest

PREAMBLE = """
    import sys
    from uuid import UUID
    from penstock.core.model import Instant, NodeId, SECOND
    from penstock.runtime import NodeIdentity
    from penstock.runtime.loop import run

    class Quiet:
        def __init__(self, runtime):
            self.runtime = runtime
            print("started", flush=True)

        def stop(self, done):
            print("stopping", flush=True)
            self.runtime.timers.soon(done)

    me = NodeIdentity(UUID(int=1), NodeId(1), UUID(int=2))
"""


def start(program: str) -> subprocess.Popen[str]:
    source = textwrap.dedent(PREAMBLE) + textwrap.dedent(program)
    return subprocess.Popen(
        [sys.executable, "-c", source], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_stops_the_service_in_order(number: signal.Signals) -> None:
    node = start("sys.exit(run(Quiet, me))")
    assert node.stdout is not None
    assert node.stdout.readline() == "started\n"

    node.send_signal(number)
    said, errors = node.communicate(timeout=30)

    assert (said, errors, node.returncode) == ("stopping\n", "", 0)


def test_a_second_signal_does_not_wait_for_a_service_that_hangs() -> None:
    node = start(
        """
        class Hanging(Quiet):
            def stop(self, done):
                print("stopping", flush=True)

        sys.exit(run(Hanging, me))
        """
    )
    assert node.stdout is not None
    assert node.stdout.readline() == "started\n"

    node.send_signal(signal.SIGTERM)
    assert node.stdout.readline() == "stopping\n"
    node.send_signal(signal.SIGTERM)
    node.communicate(timeout=30)

    assert node.returncode == 0


@pytest.mark.parametrize(
    ("last", "code"),
    [
        # Inside a call that hangs, as a sync does on a disk that is gone: no timer of the loop helps.
        ("time.sleep(3600)", 1),
        # In order, but with work on a disk thread that never comes back.
        ("self.runtime.spawn.spawn(lambda: time.sleep(3600), print, print, ExecutorKind.DISK); done()", 0),
    ],
)
def test_a_stop_ends_however_stuck_the_node_is(last: str, code: int) -> None:
    node = start(
        f"""
        import time
        from penstock.runtime import ExecutorKind

        class Stuck(Quiet):
            def stop(self, done):
                print("stopping", flush=True)
                {last}

        sys.exit(run(Stuck, me))
        """
    )
    assert node.stdout is not None
    assert node.stdout.readline() == "started\n"

    node.send_signal(signal.SIGTERM)
    said, _ = node.communicate(timeout=30)

    assert (said, node.returncode) == ("stopping\n", code)


def test_an_exception_in_a_callback_ends_the_node_and_no_other_callback_runs() -> None:
    node = start(
        """
        class Broken(Quiet):
            def __init__(self, runtime):
                super().__init__(runtime)
                at = runtime.clock.now()
                runtime.timers.at(at, lambda: print("first", flush=True))
                runtime.timers.at(at, self.fail)
                runtime.timers.at(at, lambda: print("after the failure", flush=True))
                runtime.timers.at(Instant(at + SECOND), lambda: print("much later", flush=True))

            def fail(self):
                self.runtime.timers.soon(lambda: print("soon after the failure", flush=True))
                assert False, "impossible"

        sys.exit(run(Broken, me))
        """
    )

    said, _ = node.communicate(timeout=30)

    assert said == "started\nfirst\n"
    assert node.returncode == 1


def test_a_node_that_cannot_start_ends_with_a_failure() -> None:
    node = start(
        """
        def program(runtime):
            raise RuntimeError("no disk")

        sys.exit(run(program, me))
        """
    )

    node.communicate(timeout=30)

    assert node.returncode == 1


def test_a_busy_worker_dies_with_a_node_that_is_killed() -> None:
    node = start(
        """
        import functools, os, time
        from penstock.runtime import ExecutorKind

        class Busy(Quiet):
            def __init__(self, runtime):
                super().__init__(runtime)
                runtime.spawn.spawn(os.getpid, self.work, self.work, ExecutorKind.WORKER)

            def work(self, worker):
                nap = functools.partial(time.sleep, 600)
                self.runtime.spawn.spawn(nap, print, print, ExecutorKind.WORKER)
                print("busy", flush=True)

        sys.exit(run(Busy, me))
        """
    )
    assert node.stdout is not None
    assert node.stdout.readline() == "started\n"
    assert node.stdout.readline() == "busy\n"

    node.kill()

    # The worker has the node's output: it ends when both are gone.
    assert node.communicate(timeout=30)[0] == ""


def test_what_a_node_set_up_at_its_start_is_not_searched_for_garbage() -> None:
    node = start(
        """
        import gc

        class Settled(Quiet):
            def stop(self, done):
                print(gc.get_freeze_count() > 1_000, gc.get_threshold()[0] > 10_000, flush=True)
                super().stop(done)

        sys.exit(run(Settled, me))
        """
    )
    assert node.stdout is not None
    assert node.stdout.readline() == "started\n"

    node.send_signal(signal.SIGTERM)
    said, errors = node.communicate(timeout=30)

    assert (said, errors, node.returncode) == ("True True\nstopping\n", "", 0)
