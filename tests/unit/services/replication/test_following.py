"""Followers get what their leader has, and the leader knows how far they are."""

from tests.unit.services.replication.stage import Stage


def test_what_a_leader_appends_reaches_its_followers_and_then_counts() -> None:
    stage = Stage()
    stage.create(1, 2, 3)

    stage.append("a", "b")
    stage.append("c")
    stage.run(100)

    assert [stage.values(node) for node in (1, 2, 3)] == [["a", "b", "c"]] * 3
    assert stage.leader().high_watermark == 3
