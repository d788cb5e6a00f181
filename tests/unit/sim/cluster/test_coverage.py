"""What a run visited: its own events, and nobody else's."""

from threading import Thread

from penstock.observability import log
from penstock.sim.cluster.coverage import Coverage


def test_events_of_nodes_on_other_threads_do_not_count_as_visited() -> None:
    coverage = Coverage()
    neighbour = Thread(target=lambda: log.info("node.joined"))

    with coverage.events_counted():
        log.info("quorum.leader_changed")
        neighbour.start()
        neighbour.join()

    assert coverage.visited() == {"quorum.leader_changed": 1}
