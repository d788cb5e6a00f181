"""What the answers of all voters amount to: pure judgement."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple, TypeAlias
from uuid import UUID

from penstock.core.model import NodeId, PenstockError
from penstock.core.raft import Configuration, Member
from penstock.services.cluster.control.messages import Standing, Voter


class NotFounded(PenstockError):
    """A node cannot take part with the voters it was given: one line for the operator."""


class Found(NamedTuple):
    """Begin a log with these founding members."""

    members: Configuration


class JoinThem(NamedTuple):
    """There is a quorum that does not know us."""

    cluster_id: UUID | None


class Heard(NamedTuple):
    """The answer of one voter, and the directory that gave it."""

    directory_id: UUID
    standing: Standing


Outcome: TypeAlias = Found | JoinThem | None


def judge(me: Member, voters: Sequence[Voter], heard: Mapping[NodeId, Heard]) -> Outcome:
    """What to do after a round of answers; None: wait for more. Raises NotFounded."""
    for voter in voters:
        answer = heard.get(voter.node_id)
        if answer is not None:
            _check_directory(me, voter, answer.standing)
    members = [
        voter for voter in voters if voter.node_id in heard and heard[voter.node_id].standing.is_member
    ]
    if members:
        return _follow(me, members, heard)
    for voter in voters:
        answer = heard.get(voter.node_id)
        if answer is not None and answer.standing.voters != tuple(voters):
            raise NotFounded(
                f"voter {voter.node_id} at {voter.address} was started with other voters: "
                f"{show(answer.standing.voters)} there, {show(voters)} here"
            )
    return _found(me, voters, heard)


def _check_directory(me: Member, voter: Voter, standing: Standing) -> None:
    known = standing.known.get(me.node_id, me.directory_id)
    if known != me.directory_id:
        raise NotFounded(
            f"node id {me.node_id} is taken: voter {voter.node_id} at {voter.address} "
            "knows another node with it, which has another data directory"
        )


def _follow(me: Member, members: Sequence[Voter], heard: Mapping[NodeId, Heard]) -> Outcome:
    """Somebody is a member already: of one and the same cluster, if there is sense in it."""
    clusters: dict[UUID, Voter] = {}
    for voter in members:
        cluster_id = heard[voter.node_id].standing.cluster_id
        if cluster_id is not None:
            clusters.setdefault(cluster_id, voter)
    if len(clusters) > 1:
        first, second = list(clusters.values())[:2]
        raise NotFounded(
            f"voter {first.node_id} at {first.address} and voter {second.node_id} at {second.address} "
            "belong to different clusters"
        )
    for voter in members:
        founding = heard[voter.node_id].standing.founding
        if founding is not None and me in founding.voters:
            return Found(founding)
    return JoinThem(next(iter(clusters), None))


def _found(me: Member, voters: Sequence[Voter], heard: Mapping[NodeId, Heard]) -> Outcome:
    directories = {me.node_id: me.directory_id}
    for voter in voters:
        if voter.node_id in heard:
            directories[voter.node_id] = heard[voter.node_id].directory_id
    if any(voter.node_id not in directories for voter in voters) or len(directories) != len(voters):
        return None  # somebody is missing, or we have no vote and wait for those who have
    if any(answer.standing.known != directories for answer in heard.values()):
        return None  # they do not see what we see, yet
    return Found(Configuration(tuple(Member(node, directories[node]) for node, _ in voters)))


def show(voters: Sequence[Voter]) -> str:
    return ",".join(map(str, voters)) or "none"
