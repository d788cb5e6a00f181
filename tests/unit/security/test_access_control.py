"""What a session may do by access rules and by the scope of its API key."""

import pytest

from penstock.core.metadata.access import (
    AclBinding,
    AclFilter,
    AclOperation,
    AclPermission,
    PatternType,
    ResourceType,
)
from penstock.core.metadata.commands import CreateAcls, DeleteAcls
from penstock.core.model import Instant
from penstock.security import Principal, Session
from penstock.security.access_control import AccessControl
from penstock.security.acls import AclRules
from penstock.security.authorizer import Resource
from penstock.security.quotas import ClientQuotas
from tests.unit.core.metadata.clusters import cluster, perform

ORDERS = Resource(ResourceType.TOPIC, "orders")
_O = AclOperation
EVERYTHING = frozenset(AclOperation)


def root(*scope: AclOperation) -> Session:
    """A super user with an API key."""
    return Session(Principal("User", "root"), "SASL", "", "127.0.0.1", "User:root", frozenset(scope))


@pytest.fixture
def access() -> AccessControl:
    return AccessControl(AclRules(frozenset({"User:root"})), ClientQuotas(), lambda: Instant(0))


@pytest.mark.parametrize(
    ("scope", "allowed"),
    [
        ({_O.WRITE}, {_O.WRITE, _O.DESCRIBE}),
        ({_O.READ}, {_O.READ, _O.DESCRIBE}),
        ({_O.DELETE}, {_O.DELETE, _O.DESCRIBE}),
        ({_O.ALTER}, {_O.ALTER, _O.DESCRIBE}),
        ({_O.CREATE}, {_O.CREATE}),
        ({_O.DESCRIBE}, {_O.DESCRIBE}),
        ({_O.ALTER_CONFIGS}, {_O.ALTER_CONFIGS, _O.DESCRIBE_CONFIGS}),
        ({_O.READ, _O.CREATE}, {_O.READ, _O.CREATE, _O.DESCRIBE}),
        ({_O.ALL}, EVERYTHING),
    ],
)
def test_a_scope_has_what_its_operations_imply(
    access: AccessControl, scope: set[AclOperation], allowed: set[AclOperation]
) -> None:
    session = root(*scope)

    assert {each for each in AclOperation if access.authorize(session, each, ORDERS)} == allowed
    assert {each for each in AclOperation if access.authorize_any(session, each, ORDERS.kind)} == allowed


def test_a_scope_gives_nothing_that_the_user_may_not_do(access: AccessControl) -> None:
    session = root(_O.ALL)._replace(principal=Principal("User", "alice"), principal_name="User:alice")

    assert not access.authorize(session, _O.DESCRIBE, ORDERS)
    assert not access.authorize_any(session, _O.WRITE, ORDERS.kind)


def test_equal_keys_are_equal_rights() -> None:
    machine = cluster()
    access = AccessControl(AclRules(), ClientQuotas(), lambda: Instant(0))
    alice = root()._replace(principal_name="User:alice", scope=None)
    others = (
        alice._replace(host="10.0.0.1"),
        alice._replace(principal_name="User:bob"),
        alice._replace(scope=frozenset({_O.READ})),
    )

    def keys_like_alices() -> list[bool]:
        return [access.rights_key(each) == access.rights_key(alice) for each in (alice, *others)]

    # An address does not matter as long as no rule is for one.
    assert keys_like_alices() == [True, True, False, False]
    before = access.rights_key(alice)
    rule = AclBinding(
        ORDERS.kind, PatternType.LITERAL, "orders", "User:alice", "10.0.0.1", _O.READ, AclPermission.ALLOW
    )
    perform(machine, CreateAcls((rule,)))
    access.on_metadata(machine.image)

    assert keys_like_alices() == [True, False, False, False]
    assert access.rights_key(alice) != before
    perform(machine, DeleteAcls((AclFilter(),)))
    access.on_metadata(machine.image)
    assert keys_like_alices() == [True, True, False, False]
    assert AccessControl(None, ClientQuotas(), lambda: Instant(0)).rights_key(alice) is None
