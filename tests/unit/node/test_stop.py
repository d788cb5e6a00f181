"""The time that a node has for leaving, and how it is shared out."""

from penstock.core.model import MILLISECOND, SECOND
from penstock.node.node import STOP_MS
from penstock.runtime.loop import STOP_GRACE_NS, STOP_LIMIT_NS


def test_every_step_of_a_stop_fits_into_five_seconds() -> None:
    waits_ns = STOP_MS * MILLISECOND

    assert waits_ns < STOP_GRACE_NS < STOP_LIMIT_NS < 5 * SECOND
