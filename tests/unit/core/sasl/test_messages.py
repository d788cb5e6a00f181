"""What PLAIN and OAUTHBEARER say in one message."""

import pytest

from penstock.core.model import ProtocolError
from penstock.core.sasl import OAuthMessage, PlainMessage, read_oauth_message, read_plain_message


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"\x00alice\x00secret", PlainMessage("alice", "secret")),
        (b"alice\x00alice\x00secret", PlainMessage("alice", "secret")),
        ("\x00älice\x00sëcret".encode(), PlainMessage("älice", "sëcret")),
    ],
)
def test_plain_has_a_user_and_a_password(content: bytes, message: PlainMessage) -> None:
    assert read_plain_message(content) == message


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"alice",
        b"\x00alice",
        b"\x00\x00secret",
        b"\x00alice\x00",
        b"bob\x00alice\x00secret",
        b"\x00alice\x00sec\x00ret",
        b"\x00alice\x00\xff",
        b"\x00alice\x00" + b"x" * 5_000,
    ],
)
def test_plain_that_is_none_is_an_error(content: bytes) -> None:
    with pytest.raises(ProtocolError):
        read_plain_message(content)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"n,,\x01auth=Bearer a.b.c\x01\x01", OAuthMessage("a.b.c")),
        (b"n,a=alice,\x01auth=bearer a.b.c\x01\x01", OAuthMessage("a.b.c", "alice")),
        (
            b"n,,\x01auth=Bearer a.b.c\x01logicalCluster=lkc-1\x01\x01",
            OAuthMessage("a.b.c", "", (("logicalCluster", "lkc-1"),)),
        ),
    ],
)
def test_oauth_has_a_token_and_extensions(content: bytes, message: OAuthMessage) -> None:
    assert read_oauth_message(content) == message


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"\x01",
        b"n,,\x01\x01",
        b"n,,\x01auth=Bearer a.b.c\x01",
        b"n,,\x01auth=Basic a.b.c\x01\x01",
        b"n,,\x01auth=Bearer \x01\x01",
        b"n,,\x01auth=Bearer a\x01auth=Bearer b\x01\x01",
        b"n,,\x01auth=Bearer a\x01nothing\x01\x01",
        b"y,,\x01auth=Bearer a\x01\x01",
        b"n,alice,\x01auth=Bearer a\x01\x01",
        b"n,,x\x01auth=Bearer a\x01\x01",
        b"n,,\x01auth=Bearer \xff\x01\x01",
        b"n,,\x01auth=Bearer a\x01" + b"k=v\x01" * 60 + b"\x01",
        b"n,,\x01auth=Bearer " + b"a" * 70_000 + b"\x01\x01",
    ],
)
def test_oauth_that_is_none_is_an_error(content: bytes) -> None:
    with pytest.raises(ProtocolError):
        read_oauth_message(content)
