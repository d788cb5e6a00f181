"""What the leader of the quorum does unasked."""

from dataclasses import replace
from uuid import UUID

from penstock.broker.cluster import BrokerSessionOptions
from penstock.core.metadata import (
    NO_LEADER,
    OFFSETS_TOPIC,
    SUPPORTED_FEATURES,
    AlterPartition,
    ControllerConfig,
    CreateTopic,
    IsrMember,
    PartitionReport,
    RegisterBroker,
    RegisteredBroker,
    ReplicaAssignment,
    ReportReplicas,
    UnfenceBroker,
)
from penstock.core.model import BrokerEpoch, LeaderEpoch, NodeId, Offset, PartitionIndex, TopicId
from tests.unit.broker.cluster.cluster_stage import ClusterStage, member_options, voters

TOPIC = TopicId(UUID(int=5))


def leaders_of(stage: ClusterStage, name: str) -> list[int]:
    topic = stage.image(name).topic("t")
    assert topic is not None
    return [partition.leader for partition in topic.partitions]


def test_leaderships_return_to_preferred_replicas_as_often_as_the_setting_says() -> None:
    stage = ClusterStage()
    around = ControllerConfig({"leader.imbalance.check.interval.seconds": "3"})
    for number in (1, 2, 3):
        stage.add(replace(member_options(number, voters(1, 2, 3)), around=around))
    stage.start()
    stage.until(stage.is_live)
    victim = stage.followers()[0]
    number = stage.options[victim].registration.node_id
    others = tuple(node for node in (NodeId(1), NodeId(2), NodeId(3)) if node != number)
    placed = (ReplicaAssignment(PartitionIndex(0), (number, *others)),)
    stage.submit("n1", CreateTopic("t", TOPIC, assignments=placed))
    stage.world.nodes[victim].kill()
    stage.run_ms(1_000)
    away = leaders_of(stage, stage.leader())

    stage.start(victim)
    stage.until(stage.is_live)
    stage.until(lambda: stage.image(stage.leader()).partition("t", 0) is not None)
    # Nothing replicates here: the replica is taken into the ISR by hand.
    rejoin(stage, number)
    stage.until(lambda: leaders_of(stage, stage.leader()) == [number], 10)

    assert away != [number]


def rejoin(stage: ClusterStage, number: NodeId) -> None:
    """As the leader of the partition would, once the replica has everything."""
    image = stage.image(stage.leader())
    partition = image.partition("t", 0)
    assert partition is not None
    leader = image.broker(partition.leader)
    assert leader is not None
    members = []
    for node in partition.replicas:
        broker = image.broker(node)
        assert broker is not None
        members.append(IsrMember(node, broker.epoch))
    command = AlterPartition(
        leader.node_id,
        leader.epoch,
        TOPIC,
        PartitionIndex(0),
        partition.leader_epoch,
        partition.partition_epoch,
        tuple(members),
    )
    stage.submit(stage.leader(), command)
    assert number in [member.node_id for member in members]


def test_an_internal_topic_that_was_made_by_one_broker_grows_as_others_join() -> None:
    stage = ClusterStage()
    stage.add(member_options(1, ()))
    stage.start("n1")
    stage.until(lambda: stage.is_live("n1"))
    stage.submit("n1", CreateTopic(OFFSETS_TOPIC, TOPIC, partitions=2))
    for number in (2, 3):
        stage.add(member_options(number, voters(1, 2, 3)))

    stage.start("n2", "n3")
    # Nothing replicates here, so the first move does not end, and the third replica waits for that.
    stage.until(lambda: min(replicas_of(stage)) >= 2)


def replicas_of(stage: ClusterStage) -> list[int]:
    """How many replicas each partition has, or will have when its move is over."""
    topic = stage.image("n1").topic(OFFSETS_TOPIC)
    assert topic is not None
    return [len(partition.replicas) for partition in topic.partitions]


def test_an_internal_topic_whose_replicas_somebody_chose_is_left_alone() -> None:
    stage = ClusterStage()
    around = ControllerConfig({"offsets.topic.replication.factor": "1"})
    for number in (1, 2, 3):
        stage.add(replace(member_options(number, voters(1, 2, 3)), around=around))
    stage.start()
    stage.until(stage.is_live)
    placed = (ReplicaAssignment(PartitionIndex(0), (NodeId(1),)),)
    stage.submit("n1", CreateTopic(OFFSETS_TOPIC, TOPIC, assignments=placed))

    stage.run_ms(10_000)

    assert replicas_of(stage) == [1]


def test_an_election_waits_for_reports_until_the_grace_period_is_over() -> None:
    """Brokers 2 and 3 are commands only: both fall silent, and the second of them stays so."""
    stage = ClusterStage()
    sessions = BrokerSessionOptions(report_grace_ms=1_000)
    stage.add(replace(member_options(1, ()), sessions=sessions))
    stage.start("n1")
    stage.until(lambda: stage.is_live("n1"))
    for number in (2, 3):
        register(stage, number, fenced=False)
    placed = (ReplicaAssignment(PartitionIndex(0), (NodeId(2), NodeId(3))),)
    stage.submit("n1", CreateTopic("t", TOPIC, assignments=placed, configs=(("min.insync.replicas", "2"),)))
    stage.until(lambda: leaders_of(stage, "n1") == [NO_LEADER])

    epoch = register(stage, 2, fenced=True)
    state = stage.image("n1").partition("t", 0)
    assert state is not None
    row = PartitionReport(TOPIC, PartitionIndex(0), LeaderEpoch(0), Offset(10), state.leader_epoch)
    stage.submit("n1", ReportReplicas(NodeId(2), epoch, (row,)))
    stage.submit("n1", UnfenceBroker(NodeId(2), epoch))
    stage.run_ms(900)
    assert leaders_of(stage, "n1") == [NO_LEADER]
    stage.run_ms(200)

    assert leaders_of(stage, "n1") == [2]


def test_a_broker_that_can_lead_only_after_the_grace_period_is_elected_then() -> None:
    """Broker 2 has reported, but is not live when the period ends; it changes nothing but the broker."""
    stage = ClusterStage()
    sessions = BrokerSessionOptions(report_grace_ms=1_000)
    stage.add(replace(member_options(1, ()), sessions=sessions))
    stage.start("n1")
    stage.until(lambda: stage.is_live("n1"))
    for number in (2, 3):
        register(stage, number, fenced=False)
    placed = (ReplicaAssignment(PartitionIndex(0), (NodeId(2), NodeId(3))),)
    stage.submit("n1", CreateTopic("t", TOPIC, assignments=placed, configs=(("min.insync.replicas", "2"),)))
    stage.until(lambda: leaders_of(stage, "n1") == [NO_LEADER])

    epoch = register(stage, 2, fenced=True)
    partition = stage.image("n1").partition("t", 0)
    assert partition is not None
    row = PartitionReport(TOPIC, PartitionIndex(0), LeaderEpoch(0), Offset(10), partition.leader_epoch)
    stage.submit("n1", ReportReplicas(NodeId(2), epoch, (row,)))
    stage.run_ms(1_100)
    assert leaders_of(stage, "n1") == [NO_LEADER]
    stage.submit("n1", UnfenceBroker(NodeId(2), epoch))
    stage.run_ms(100)

    assert leaders_of(stage, "n1") == [2]


def register(stage: ClusterStage, number: int, *, fenced: bool) -> BrokerEpoch:
    cluster_id = stage.image("n1").cluster_id
    assert cluster_id is not None
    command = RegisterBroker(
        cluster_id, NodeId(number), UUID(int=number), features=SUPPORTED_FEATURES, fenced=fenced
    )
    reply = stage.submit("n1", command)
    assert isinstance(reply, RegisteredBroker)
    return reply.epoch
