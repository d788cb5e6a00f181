from uuid import UUID

import pytest

from penstock.core.model import NodeId, ProtocolError
from penstock.runtime.peer_handshake import (
    NO_CLUSTER,
    Hello,
    HelloRefusal,
    read_greeting,
    same_cluster,
    write_hello,
    write_refusal,
)
from penstock.runtime.port import NodeIdentity


def identity(cluster: UUID) -> NodeIdentity:
    return NodeIdentity(cluster, NodeId(1), UUID(int=5))


def test_a_greeting_reads_back_as_it_was_written() -> None:
    hello = Hello(identity(UUID(int=3)), b"proof" * 200)

    assert read_greeting(write_hello(hello)) == hello
    assert [read_greeting(write_refusal(refusal)) for refusal in HelloRefusal] == list(HelloRefusal)


def test_a_newer_version_may_append_fields() -> None:
    hello = Hello(identity(UUID(int=3)), b"proof", version=9)

    assert read_greeting(write_hello(hello) + b"more") == hello


@pytest.mark.parametrize("length", range(45))
def test_a_greeting_that_ends_early_is_a_protocol_error(length: int) -> None:
    with pytest.raises(ProtocolError):
        read_greeting(write_hello(Hello(identity(UUID(int=3)), b"x"))[:length])


@pytest.mark.parametrize(
    "frame",
    [
        b"GET / HTTP/1.1",
        b"PNSK\x03\x00\x01",
        b"PNSK\x01\x00\x00" + bytes(38),
        b"PNSK\x02\x00\x01\xee",
        bytes(3000),
    ],
)
def test_what_is_not_a_greeting_is_a_protocol_error(frame: bytes) -> None:
    with pytest.raises(ProtocolError):
        read_greeting(frame)


def test_nodes_of_one_cluster_and_nodes_without_one_are_admitted() -> None:
    ours, other = UUID(int=1), UUID(int=2)
    admit = same_cluster(identity(ours))

    assert admit(Hello(identity(ours))) is None
    assert admit(Hello(identity(NO_CLUSTER))) is None
    assert admit(Hello(identity(other))) is HelloRefusal.OTHER_CLUSTER
    assert same_cluster(identity(NO_CLUSTER))(Hello(identity(other))) is None
