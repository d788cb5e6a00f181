import os
import signal

import pytest

from penstock.spark.run.launch import StopRequested, StopSignals


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_asks_for_a_stop_and_a_second_one_insists(number: signal.Signals) -> None:
    before = signal.getsignal(number)

    with StopSignals() as stop:
        os.kill(os.getpid(), number)
        asked = stop.wait(10)
        with pytest.raises(KeyboardInterrupt):
            os.kill(os.getpid(), number)

    assert asked
    assert signal.getsignal(number) is before


def test_a_signal_while_nothing_runs_yet_ends_the_wait_for_it() -> None:
    with StopSignals() as stop:
        stop.interrupts = True

        with pytest.raises(StopRequested):
            os.kill(os.getpid(), signal.SIGTERM)


def test_signals_that_somebody_took_away_can_be_taken_back() -> None:
    with StopSignals() as stop:
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        stop.take()
        os.kill(os.getpid(), signal.SIGINT)

        assert stop.wait(10)
