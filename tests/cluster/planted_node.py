"""`penstock up` with a fault of the simulator planted in it, to see that tests with processes find it.

python -m tests.cluster.planted_node FAULT python -m penstock.cli up --json …
"""

import sys

import pytest

from penstock.cli import main
from tests.simulation.cluster import planted_queues

FAULTS = (
    planted_queues.leases_are_delivered_before_they_are_replicated,
    planted_queues.new_coordinators_forget_leases,
    planted_queues.new_coordinators_take_leases_for_nearly_over,
    planted_queues.receipts_are_not_compared,
    planted_queues.rewrites_forget_attempts,
    planted_queues.rewrites_forget_what_is_leased,
    planted_queues.new_coordinators_forget_delays,
    planted_queues.renewals_are_forgotten,
)


def wrapper(fault: str) -> tuple[str, ...]:
    """The words before the command of a node."""
    return (sys.executable, "-m", "tests.cluster.planted_node", fault)


if __name__ == "__main__":
    name, (_python, _option, _module, *sys.argv[1:]) = sys.argv[1], sys.argv[2:]
    next(fault for fault in FAULTS if fault.__name__ == name)(pytest.MonkeyPatch())
    sys.exit(main())
