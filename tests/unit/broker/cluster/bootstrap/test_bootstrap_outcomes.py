"""What a blank node makes of the responses of the voters it was given."""

from uuid import UUID

import pytest

from penstock.broker.cluster import Voter
from penstock.broker.cluster.bootstrap import (
    BootstrapAsVoter,
    BootstrapFailed,
    JoinExisting,
    VoterReply,
    decide_bootstrap,
)
from penstock.broker.cluster.rpc import IntroductionReply
from penstock.core.model import NodeId
from penstock.core.raft import Configuration, Member
from penstock.runtime import Address

CLUSTER, OTHER = UUID(int=77), UUID(int=78)


def directory(number: int, copy: int = 0) -> UUID:
    return UUID(int=1000 * copy + number)


def member(number: int, copy: int = 0) -> Member:
    return Member(NodeId(number), directory(number, copy))


VOTERS = tuple(Voter(NodeId(n), Address(f"n{n}", 7000)) for n in (1, 2, 3))
FOUNDERS = Configuration((member(1), member(2), member(3)))
EVERYBODY = {NodeId(n): directory(n) for n in (1, 2, 3)}
ME = member(1)


def blank(
    number: int, known: dict[NodeId, UUID] = EVERYBODY, listed: tuple[Voter, ...] = VOTERS
) -> VoterReply:
    return VoterReply(directory(number), IntroductionReply(False, None, None, listed, known))


def belonging(
    number: int, cluster: UUID | None = CLUSTER, founding: Configuration | None = None
) -> VoterReply:
    return VoterReply(directory(number), IntroductionReply(True, cluster, founding))


def heard(**answers: VoterReply) -> dict[NodeId, VoterReply]:
    return {NodeId(int(name[1:])): answer for name, answer in answers.items()}


def test_a_quorum_is_founded_when_all_voters_are_blank_and_see_the_same() -> None:
    outcome = decide_bootstrap(ME, VOTERS, heard(n2=blank(2), n3=blank(3)))

    assert outcome == BootstrapAsVoter(FOUNDERS)


def test_nobody_bootstraps_while_a_voter_is_missing() -> None:
    assert decide_bootstrap(ME, VOTERS, heard(n2=blank(2))) is None
    assert decide_bootstrap(ME, VOTERS, {}) is None


def test_nobody_bootstraps_while_another_does_not_see_what_we_see() -> None:
    fewer = {NodeId(1): directory(1), NodeId(3): directory(3)}
    another = {**EVERYBODY, NodeId(2): directory(2, copy=1)}

    assert decide_bootstrap(ME, VOTERS, heard(n2=blank(2), n3=blank(3, fewer))) is None
    assert decide_bootstrap(ME, VOTERS, heard(n2=blank(2), n3=blank(3, another))) is None


def test_whoever_was_away_at_the_bootstrap_begins_with_the_same_members() -> None:
    outcome = decide_bootstrap(ME, VOTERS, heard(n3=belonging(3, None, FOUNDERS)))

    assert outcome == BootstrapAsVoter(FOUNDERS)


def test_a_quorum_that_was_founded_without_us_is_joined() -> None:
    others = Configuration((member(1, copy=1), member(2), member(3)))

    assert decide_bootstrap(ME, VOTERS, heard(n2=belonging(2, CLUSTER, others))) == JoinExisting(CLUSTER)
    assert decide_bootstrap(ME, VOTERS, heard(n2=belonging(2, CLUSTER), n3=blank(3))) == JoinExisting(CLUSTER)


def test_who_has_no_vote_never_bootstraps_and_joins_when_there_is_a_quorum() -> None:
    me = member(4)
    answers = heard(n1=blank(1), n2=blank(2), n3=blank(3))

    assert decide_bootstrap(me, VOTERS, answers) is None
    assert decide_bootstrap(me, VOTERS, heard(n1=belonging(1), n2=blank(2))) == JoinExisting(CLUSTER)


def test_different_lists_of_voters_are_refused_with_both_lists() -> None:
    shorter = VOTERS[:2]

    with pytest.raises(
        BootstrapFailed, match="other voters: 1@n1:7000,2@n2:7000 there, 1@n1:7000,2@n2:7000,3@n3"
    ):
        decide_bootstrap(ME, VOTERS, heard(n2=blank(2, listed=shorter)))


def test_a_node_id_that_is_taken_is_refused() -> None:
    seen = {NodeId(1): directory(1, copy=1)}

    with pytest.raises(BootstrapFailed, match="node id 1 is taken: voter 2 at n2:7000"):
        decide_bootstrap(ME, VOTERS, heard(n2=blank(2, seen)))


def test_voters_of_two_clusters_are_refused() -> None:
    with pytest.raises(
        BootstrapFailed, match="voter 2 at n2:7000 and voter 3 at n3:7000 belong to different"
    ):
        decide_bootstrap(ME, VOTERS, heard(n2=belonging(2), n3=belonging(3, OTHER)))
