from penstock.core.metadata.access import (
    ANY_HOST,
    AclBinding,
    AclOperation,
    AclPermission,
    ApiKey,
    PatternType,
    ResourceType,
    ScramCredential,
    ScramMechanism,
)
from penstock.core.model import Timestamp
from penstock.core.sasl import credential_of
from penstock.sim.checkers.access import AccessChecker, AccessView, Asked

READ = Asked("alice", 1, AclOperation.READ, "orders")
SCRAM = ScramMechanism.SCRAM_SHA_256


def rule(
    permission: AclPermission,
    name: str = "orders",
    pattern: PatternType = PatternType.LITERAL,
    operation: AclOperation = AclOperation.READ,
) -> AclBinding:
    return AclBinding(ResourceType.TOPIC, pattern, name, "User:alice", ANY_HOST, operation, permission)


def view(*rules: AclBinding, password: str = "", key: str = "", limited: bool = False) -> AccessView:
    credential: ScramCredential | None = None
    if password:
        credential = credential_of("alice", SCRAM, password, b"salt", 4_096)
    api_key = ApiKey(key, "alice", b"", Timestamp(0)) if key else None
    return AccessView(
        rules,
        lambda wanted: credential if wanted == ("alice", SCRAM) else None,
        lambda wanted: api_key if wanted == key else None,
        lambda _user: limited,
    )


ALLOWED = view(rule(AclPermission.ALLOW))
DENIED = view(rule(AclPermission.ALLOW), rule(AclPermission.DENY, "ord", PatternType.PREFIXED))
NOTHING = view()


def kinds(checker: AccessChecker) -> list[str]:
    return [anomaly.split(":")[0] for anomaly in checker.anomalies]


def test_rules_allow_by_name_and_prefix_and_a_denial_wins() -> None:
    prefixed = view(rule(AclPermission.ALLOW, "ord", PatternType.PREFIXED))
    everything = view(rule(AclPermission.ALLOW, "*", operation=AclOperation.ALL))
    elsewhere = view(
        rule(AclPermission.ALLOW, "ord"), rule(AclPermission.ALLOW, operation=AclOperation.WRITE)
    )

    allowed = [each.allows("alice", AclOperation.READ, "orders") for each in (ALLOWED, prefixed, everything)]
    denied = [each.allows("alice", AclOperation.READ, "orders") for each in (NOTHING, DENIED, elsewhere)]

    assert (allowed, denied) == ([True] * 3, [False] * 3)
    assert not ALLOWED.allows("bob", AclOperation.READ, "orders")


def test_whoever_is_served_or_refused_by_rules_of_the_time_is_right() -> None:
    checker = AccessChecker()

    checker.allowed(READ, [NOTHING, ALLOWED])
    checker.refused(READ, [ALLOWED, DENIED])
    checker.shown(READ, [NOTHING, ALLOWED], DENIED, is_live=True)

    assert checker.anomalies == []
    assert (checker.served, checker.denied, checker.delivered, checker.overtaken) == (1, 1, 1, 1)


def test_what_no_rule_of_the_time_allows_or_forbids_is_wrong() -> None:
    checker = AccessChecker()

    checker.allowed(READ, [NOTHING, DENIED])
    checker.refused(READ, [ALLOWED, ALLOWED])

    assert kinds(checker) == ["forbidden", "refused"]


def test_records_are_judged_by_the_rules_when_they_are_shown() -> None:
    checker = AccessChecker()

    checker.shown(READ, [ALLOWED, DENIED], DENIED, is_live=True)

    assert kinds(checker) == ["seen"]


def test_a_node_that_was_fenced_shows_nothing_that_was_forbidden_meanwhile() -> None:
    checker = AccessChecker()

    checker.shown(READ, [ALLOWED], DENIED, is_live=False)

    assert kinds(checker) == ["fenced"]


def test_a_key_that_is_gone_shows_nothing() -> None:
    checker, asked = AccessChecker(), READ._replace(api_key="k1")
    with_key = view(rule(AclPermission.ALLOW), key="k1")

    checker.shown(asked, [with_key], with_key, is_live=True)
    assert checker.anomalies == []
    checker.shown(asked, [with_key, ALLOWED], ALLOWED, is_live=True)

    assert kinds(checker) == ["revoked key"]


def test_passwords_of_the_time_count_and_no_others() -> None:
    checker, before, after = AccessChecker(), view(password="old"), view(password="new")

    checker.logged_in("alice", SCRAM, "old", [before, after])
    checker.login_refused("alice", SCRAM, "old", [before, after])
    assert checker.anomalies == []
    checker.logged_in("alice", SCRAM, "old", [after])
    checker.login_refused("alice", SCRAM, "new", [after])

    assert kinds(checker) == ["false login", "refused login"]


def test_only_those_with_a_quota_are_told_to_wait() -> None:
    checker = AccessChecker()

    checker.told_to_wait("alice", [NOTHING, view(limited=True)])
    assert checker.anomalies == []
    checker.told_to_wait("alice", [NOTHING])

    assert kinds(checker) == ["throttled"]
