"""Who may do what by the access rules of an image."""

import msgspec
import pytest

from penstock.core.metadata import MetadataMachine
from penstock.core.metadata.access import (
    AclBinding,
    AclFilter,
    AclOperation,
    AclPermission,
    PatternType,
    ResourceType,
)
from penstock.core.metadata.commands import CreateAcls, DeleteAcls, DeletedAcls
from penstock.core.metadata.records import AclCreated
from penstock.security import ANONYMOUS, Principal, Session
from penstock.security.acls import AclRules
from tests.support.call_counter import CallCounter
from tests.support.kept_memory import kept_bytes, long_names
from tests.unit.core.metadata.clusters import cluster, perform

TOPIC, GROUP = ResourceType.TOPIC, ResourceType.GROUP
READ, WRITE, DESCRIBE = AclOperation.READ, AclOperation.WRITE, AclOperation.DESCRIBE


def session(user: str, host: str = "127.0.0.1") -> Session:
    return Session(Principal("User", user), "SASL", "client", host, f"User:{user}")


ALICE, BOB, NOBODY = session("alice"), session("bob"), Session(ANONYMOUS, "SASL", "", "127.0.0.1")


def rule(
    name: str,
    operation: AclOperation = READ,
    *,
    principal: str = "User:alice",
    deny: bool = False,
    prefixed: bool = False,
    host: str = "*",
    kind: ResourceType = TOPIC,
) -> AclBinding:
    return AclBinding(
        kind,
        PatternType.PREFIXED if prefixed else PatternType.LITERAL,
        name,
        principal,
        host,
        operation,
        AclPermission.DENY if deny else AclPermission.ALLOW,
    )


def rules(*acls: AclBinding, super_users: frozenset[str] = frozenset(), is_open: bool = False) -> AclRules:
    machine = cluster()
    perform(machine, CreateAcls(acls))
    found = AclRules(super_users, open_without_rules=is_open)
    found.on_metadata(machine.image)
    return found


def test_without_rules_only_super_users_may_do_something() -> None:
    none = rules(super_users=frozenset({"User:root"}))

    assert not none.allow(ALICE, READ, TOPIC, "orders")
    assert not none.allow(NOBODY, DESCRIBE, TOPIC, "orders")
    assert none.allow(session("root"), AclOperation.ALTER, ResourceType.CLUSTER, "kafka-cluster")


@pytest.mark.parametrize(
    ("acl", "who", "operation", "kind", "name", "allowed"),
    [
        (rule("orders"), ALICE, READ, TOPIC, "orders", True),
        (rule("orders"), BOB, READ, TOPIC, "orders", False),
        (rule("orders"), ALICE, WRITE, TOPIC, "orders", False),
        (rule("orders"), ALICE, READ, TOPIC, "orders2", False),
        (rule("orders"), ALICE, READ, GROUP, "orders", False),
        (rule("*"), ALICE, READ, TOPIC, "anything", True),
        (rule("*", prefixed=True), ALICE, READ, TOPIC, "anything", False),
        (rule("or", prefixed=True), ALICE, READ, TOPIC, "orders", True),
        (rule("orders", prefixed=True), ALICE, READ, TOPIC, "orders", True),
        (rule("orders-", prefixed=True), ALICE, READ, TOPIC, "orders", False),
        (rule("orders", principal="User:*"), BOB, READ, TOPIC, "orders", True),
        (rule("orders", host="10.0.0.1"), ALICE, READ, TOPIC, "orders", False),
        (rule("orders", host="127.0.0.1"), ALICE, READ, TOPIC, "orders", True),
        (rule("orders", AclOperation.ALL), ALICE, WRITE, TOPIC, "orders", True),
        # What is implied.
        (rule("orders", READ), ALICE, DESCRIBE, TOPIC, "orders", True),
        (rule("orders", AclOperation.CREATE), ALICE, DESCRIBE, TOPIC, "orders", False),
        (rule("orders", DESCRIBE), ALICE, READ, TOPIC, "orders", False),
        (
            rule("orders", AclOperation.ALTER_CONFIGS),
            ALICE,
            AclOperation.DESCRIBE_CONFIGS,
            TOPIC,
            "orders",
            True,
        ),
    ],
)
def test_a_rule_allows_what_it_says(
    acl: AclBinding, who: Session, operation: AclOperation, kind: ResourceType, name: str, allowed: bool
) -> None:
    assert rules(acl).allow(who, operation, kind, name) is allowed


def test_a_rule_that_denies_wins_and_implies_nothing() -> None:
    found = rules(
        rule("orders", AclOperation.ALL, principal="User:*"),
        rule("ord", READ, deny=True, prefixed=True),
    )

    assert not found.allow(ALICE, READ, TOPIC, "orders")
    assert found.allow(ALICE, DESCRIBE, TOPIC, "orders")
    assert found.allow(BOB, READ, TOPIC, "orders")


def test_a_topic_that_no_rule_names_may_be_for_everyone() -> None:
    found = rules(rule("orders"), is_open=True)

    assert found.allow(BOB, WRITE, TOPIC, "logs")
    assert not found.allow(BOB, WRITE, TOPIC, "orders")


def test_a_rule_that_is_gone_does_not_count_any_more() -> None:
    machine = cluster()
    perform(machine, CreateAcls((rule("orders"), rule("lo", prefixed=True), rule("logs", prefixed=True))))
    found = AclRules()
    found.on_metadata(machine.image)
    assert found.allow(ALICE, READ, TOPIC, "orders")
    assert found.allow(ALICE, READ, TOPIC, "logs")

    perform(machine, DeleteAcls((AclFilter(name="orders"), AclFilter(name="lo"))))
    found.on_metadata(machine.image)

    assert not found.allow(ALICE, READ, TOPIC, "orders")
    assert found.allow(ALICE, READ, TOPIC, "logs")
    assert not found.allow(ALICE, READ, TOPIC, "lost")


@pytest.mark.parametrize(
    ("acls", "allowed"),
    [
        ((), False),
        ((rule("orders", WRITE),), True),
        ((rule("orders", WRITE, principal="User:bob"),), False),
        ((rule("orders", WRITE, kind=GROUP),), False),
        ((rule("*", WRITE),), True),
        ((rule("or", WRITE, prefixed=True),), True),
        ((rule("orders", WRITE), rule("orders", WRITE, deny=True)), False),
        ((rule("orders", WRITE), rule("logs", WRITE, deny=True)), True),
        ((rule("orders", WRITE, host="10.0.0.1"),), False),
        ((rule("orders"),), False),
        # A rule for every name: nothing is left.
        ((rule("*", WRITE), rule("*", WRITE, deny=True)), False),
        ((rule("orders", WRITE), rule("*", WRITE, deny=True)), False),
        ((rule("*", WRITE, principal="User:*"), rule("*", AclOperation.ALL, deny=True)), False),
        ((rule("*", WRITE), rule("*", WRITE, deny=True, host="10.0.0.1")), True),
        ((rule("*", WRITE), rule("*", WRITE, deny=True, principal="User:bob")), True),
        ((rule("*", WRITE), rule("*", READ, deny=True)), True),
        # There are others than those that are denied.
        ((rule("*", WRITE), rule("or", WRITE, deny=True, prefixed=True)), True),
        ((rule("or", WRITE, prefixed=True), rule("or", WRITE, deny=True)), True),
        ((rule("or", WRITE, prefixed=True), rule("order", WRITE, deny=True, prefixed=True)), True),
        # There are none.
        ((rule("or", WRITE, prefixed=True), rule("or", WRITE, deny=True, prefixed=True)), False),
        ((rule("or", WRITE, prefixed=True), rule("o", WRITE, deny=True, prefixed=True)), False),
        ((rule("orders", WRITE), rule("ord", WRITE, deny=True, prefixed=True)), False),
        (
            (
                rule("orders", WRITE),
                rule("logs", WRITE, prefixed=True, principal="User:*"),
                rule("orders", WRITE, deny=True, principal="User:*"),
                rule("l", AclOperation.ALL, deny=True, prefixed=True),
            ),
            False,
        ),
    ],
)
def test_some_topic_may_be_written_to(acls: tuple[AclBinding, ...], allowed: bool) -> None:
    assert rules(*acls).allow_any(ALICE, WRITE, TOPIC) is allowed


@pytest.mark.parametrize(
    ("acls", "allowed"),
    [
        ((), True),
        ((rule("orders", WRITE, deny=True),), True),
        ((rule("*", READ),), False),
        ((rule("*", WRITE),), True),
        ((rule("*", WRITE, deny=True), rule("orders", WRITE)), False),
    ],
)
def test_of_topics_that_no_rule_names_some_may_be_for_everyone(
    acls: tuple[AclBinding, ...], allowed: bool
) -> None:
    assert rules(*acls, is_open=True).allow_any(ALICE, WRITE, TOPIC) is allowed


def test_whether_some_topic_may_be_written_to_changes_with_the_rules() -> None:
    machine = cluster()
    found = AclRules()
    for change, allowed in (
        (CreateAcls((rule("orders", WRITE),)), True),
        (CreateAcls((rule("*", WRITE, deny=True, principal="User:*"),)), False),
        (DeleteAcls((AclFilter(name="*"),)), True),
        (DeleteAcls((AclFilter(name="orders"),)), False),
    ):
        perform(machine, change)
        found.on_metadata(machine.image)
        assert [found.allow_any(ALICE, WRITE, TOPIC) for _ in range(2)] == [allowed] * 2
        assert not found.allow_any(BOB, WRITE, TOPIC)


def test_whoever_asks_for_any_topic_has_no_work_done_again() -> None:
    found = rules(*(rule(f"t{number}", principal="User:bob") for number in range(500)))
    sessions = [session("alice", f"10.0.0.{number}") for number in range(10)]
    counter = CallCounter()

    with counter.on():
        assert not any(found.allow_any(each, WRITE, TOPIC) for each in sessions)
        assert not any(found.allow_any(BOB, WRITE, TOPIC) for _ in range(10))

    # Once the rules of alice, of whom there are none, for each address, and once those of bob.
    assert counter.calls_max < 3_000


@pytest.mark.parametrize(
    ("host", "address"),
    [
        ("2001:DB8::1", "2001:db8::1"),
        ("2001:db8:0:0:0:0:0:1", "2001:db8::1"),
        ("::ffff:10.0.0.7", "10.0.0.7"),
        ("10.0.0.7", "10.0.0.7"),
    ],
)
@pytest.mark.parametrize("is_old", [False, True])
def test_a_host_may_be_written_in_several_ways(host: str, address: str, is_old: bool) -> None:
    machine, found = cluster(), AclRules()
    acl, client = rule("orders", host=host), session("alice", address)
    if is_old:
        # Stored before rules were written in one way.
        machine.apply(AclCreated(acl))
    else:
        perform(machine, CreateAcls((acl,)))
        (stored,) = machine.image.acls.keys()
        assert stored.host == address
    found.on_metadata(machine.image)

    assert found.allow(client, READ, TOPIC, "orders")
    assert found.allow_any(client, READ, TOPIC)
    assert not found.allow(ALICE, READ, TOPIC, "orders")
    assert perform(machine, DeleteAcls((AclFilter(host=host),))) == DeletedAcls(
        ((acl if is_old else msgspec.structs.replace(acl, host=address),),)
    )


def test_names_that_clients_make_up_are_not_kept() -> None:
    found = rules(rule("0", prefixed=True), rule("00000001", prefixed=True, deny=True))

    def ask() -> None:
        asked = [found.allow(ALICE, READ, TOPIC, name) for name in long_names()]
        assert asked.count(False) == 1

    assert kept_bytes(ask) < 1 << 20


def test_many_rules_are_followed_one_change_at_a_time() -> None:
    machine: MetadataMachine = cluster()
    perform(
        machine, CreateAcls(tuple(rule(f"t{number}", prefixed=number % 2 == 0) for number in range(1_000)))
    )
    found = AclRules()
    found.on_metadata(machine.image)
    assert found.allow(ALICE, READ, TOPIC, "t998-eu")
    assert not found.allow(ALICE, READ, TOPIC, "t999-eu-x")

    perform(machine, CreateAcls((msgspec.structs.replace(rule("t998-eu"), permission=AclPermission.DENY),)))
    found.on_metadata(machine.image)

    assert not found.allow(ALICE, READ, TOPIC, "t998-eu")
