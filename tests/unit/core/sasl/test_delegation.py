"""Statements of nodes: what is forged, altered or replayed is not believed."""

import pytest

from penstock.core.metadata.access import AclOperation
from penstock.core.model import ProtocolError, Timestamp
from penstock.core.sasl import Challenge, Delegation, Refused
from penstock.core.sasl.delegation import DelegateExchange, SignedDelegation, is_signed, read_statement, sign

SECRET, OTHER = b"s" * 32, b"o" * 32
ALICE = Delegation("alice", "10.0.0.1", Timestamp(1_000), scope=(AclOperation.READ,), api_key="k1")


def log_in(signed: SignedDelegation, nonce: bytes = b"nonce", proof: bytes | None = None) -> object:
    exchange = DelegateExchange(SECRET, nonce, lambda _: None)
    assert exchange.step(signed.statement) == Challenge(nonce)
    return exchange.step(signed.proof(nonce) if proof is None else proof)


def test_a_statement_is_believed_by_whoever_has_the_secret() -> None:
    assert log_in(sign(SECRET, ALICE)) == ALICE


def test_a_statement_of_somebody_else_and_one_that_was_altered_are_not_believed() -> None:
    mine = sign(SECRET, ALICE)
    assert isinstance(log_in(sign(OTHER, ALICE)), Refused)
    admin = sign(SECRET, Delegation("admin", "10.0.0.1", Timestamp(1_000))).statement
    forged = SignedDelegation(admin, mine.key)
    assert isinstance(log_in(forged), Refused)
    assert not is_signed(SECRET, forged)
    assert not is_signed(b"", sign(b"", ALICE))


def test_a_proof_that_was_overheard_is_of_no_use() -> None:
    mine = sign(SECRET, ALICE)
    assert isinstance(log_in(mine, b"another", mine.proof(b"nonce")), Refused)


def test_a_cluster_without_a_secret_believes_nobody() -> None:
    assert isinstance(DelegateExchange(b"", b"nonce", lambda _: None).step(b"x"), Refused)


@pytest.mark.parametrize("content", [b"", b"\x93", b"\xc1", b"x" * 9_000])
def test_what_is_no_statement_is_an_error_of_the_protocol(content: bytes) -> None:
    with pytest.raises(ProtocolError):
        read_statement(content)
