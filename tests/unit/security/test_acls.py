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
from penstock.core.metadata.commands import CreateAcls, DeleteAcls
from penstock.security import ANONYMOUS, Principal, Session
from penstock.security.acls import AclRules
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
    ],
)
def test_some_topic_may_be_written_to(acls: tuple[AclBinding, ...], allowed: bool) -> None:
    assert rules(*acls).allow_any(ALICE, WRITE, TOPIC) is allowed


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
