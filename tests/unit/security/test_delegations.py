"""Statements of nodes about who the clients of their gateways are."""

from penstock.core.metadata import MetadataImage
from penstock.core.sasl.delegation import read_statement
from penstock.security.delegations import Delegations
from tests.support.manual_runtime import HandTimers


def test_a_client_has_one_address_however_its_gateway_writes_it() -> None:
    delegations = Delegations(HandTimers())
    delegations.on_metadata(MetadataImage(delegation_secret=b"s" * 32))

    hosts = [
        read_statement(delegations.issue("alice", host).statement).host
        for host in ("10.0.0.7", "::ffff:10.0.0.7", "2001:DB8::1")
    ]

    assert hosts == ["10.0.0.7", "10.0.0.7", "2001:db8::1"]
