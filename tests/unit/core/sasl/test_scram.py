"""SCRAM, with the example of RFC 7677 and a client of our own for the rest."""

import base64
import hashlib
import hmac

import pytest

from penstock.core.metadata.access import ScramCredential, ScramMechanism
from penstock.core.sasl import (
    Challenge,
    LoggedIn,
    Refused,
    ScramExchange,
    credential_of,
    decoy_credential,
    is_password,
)

SHA_256, SHA_512 = ScramMechanism
SERVER_NONCE = "%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0"
SALT = base64.b64decode("W22ZaJ0SNY7soEsUEjb6gQ==")


def exchange(mechanism: ScramMechanism = SHA_256, user: str = "user") -> ScramExchange:
    known = credential_of(user, mechanism, "pencil", SALT)

    def credential(name: str) -> ScramCredential:
        return known if name == user else decoy_credential(name, mechanism, b"salt")

    return ScramExchange(mechanism, SERVER_NONCE, credential)


def test_the_example_of_the_rfc() -> None:
    login = exchange()

    first = login.step(b"n,,n=user,r=rOprNGfwEbeRWgbNEkqO")
    last = login.step(
        b"c=biws,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,"
        b"p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ="
    )

    assert first == Challenge(
        b"r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096"
    )
    assert last == LoggedIn("user", b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4=")


def proof(mechanism: ScramMechanism, password: str, said: bytes) -> bytes:
    """What a client computes, written after the RFC."""
    name = mechanism.hash_name
    salted = hashlib.pbkdf2_hmac(name, password.encode(), SALT, 4_096)
    key = hmac.digest(salted, b"Client Key", name)
    signature = hmac.digest(hashlib.new(name, key).digest(), said, name)
    return base64.b64encode(bytes(a ^ b for a, b in zip(key, signature, strict=True)))


def log_in(
    login: ScramExchange, mechanism: ScramMechanism, name: str, password: str, header: bytes = b"n,,"
) -> object:
    bare = f"n={name},r=abc".encode()
    first = login.step(header + bare)
    if not isinstance(first, Challenge):
        return first
    last = b"c=" + base64.b64encode(header) + b",r=abc" + SERVER_NONCE.encode()
    said = bare + b"," + first.content + b"," + last
    return login.step(last + b",p=" + proof(mechanism, password, said))


@pytest.mark.parametrize("mechanism", ScramMechanism)
def test_the_right_password_and_no_other(mechanism: ScramMechanism) -> None:
    right = log_in(exchange(mechanism), mechanism, "user", "pencil")
    wrong = log_in(exchange(mechanism), mechanism, "user", "pencils")

    assert isinstance(right, LoggedIn)
    assert right.user == "user"
    assert wrong == Refused("user: unknown user or wrong password", "user")


def test_an_unknown_user_is_asked_and_refused_like_one_with_a_wrong_password() -> None:
    first = exchange().step(b"n,,n=nobody,r=abc")
    again = exchange().step(b"n,,n=nobody,r=abc")

    assert isinstance(first, Challenge)
    assert first == again
    assert log_in(exchange(), SHA_256, "nobody", "pencil") == Refused(
        "nobody: unknown user or wrong password", "nobody"
    )


def last_step(nonce: str) -> object:
    """What comes of a last message that is right but for its nonce."""
    login = exchange()
    bare = b"n=user,r=abc"
    first = login.step(b"n,," + bare)
    assert isinstance(first, Challenge)
    last = b"c=biws,r=" + nonce.encode()
    return login.step(last + b",p=" + proof(SHA_256, "pencil", bare + b"," + first.content + b"," + last))


def test_a_client_that_writes_its_nonce_twice_logs_in_as_those_of_debian_do() -> None:
    assert isinstance(last_step("abc" + SERVER_NONCE), LoggedIn)
    assert isinstance(last_step("abcabc" + SERVER_NONCE), LoggedIn)


@pytest.mark.parametrize("nonce", [SERVER_NONCE, "abx" + SERVER_NONCE, "xyzabc" + SERVER_NONCE, "abcabc"])
def test_a_client_with_another_nonce_is_refused(nonce: str) -> None:
    assert last_step(nonce) == Refused("the nonce is not the one that was agreed on")


def test_names_with_commas_and_equal_signs_are_escaped() -> None:
    logged_in = log_in(exchange(user="a,b=c"), SHA_256, "a=2Cb=3Dc", "pencil")

    assert isinstance(logged_in, LoggedIn)
    assert logged_in.user == "a,b=c"


def test_a_user_may_name_itself_as_who_it_wants_to_be_and_nobody_else() -> None:
    itself = log_in(exchange(), SHA_256, "user", "pencil", b"n,a=user,")
    another = log_in(exchange(), SHA_256, "user", "pencil", b"n,a=admin,")

    assert isinstance(itself, LoggedIn)
    assert another == Refused("user wants to act as admin")


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"n,,",
        b"n,,n=user",
        b"n,,r=abc,n=user",
        b"n,,n=,r=abc",
        b"n,,n=a=b,r=abc",
        b"n,,n=user,r=\xff",
        b"n,,n=user,r=a\x07b",
        b"p=tls-unique,,n=user,r=abc",
        b"n,,n=user,r=abc,tokenauth=true",
        b"n,,n=user,r=" + b"a" * 5_000,
    ],
)
def test_a_first_message_that_is_none_is_refused(content: bytes) -> None:
    assert isinstance(exchange().step(content), Refused)


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"p=",
        b"c=biws,r=abc,p=AAAA",
        b"c=biws,p=AAAA",
        b"c=!,r=abc%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,p=AAAA",
        b"c=biws,r=abc%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,p=!",
        b"c=biws,r=abc%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,p=AAAA",
        b"c=eSws,r=abc%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,p=" + base64.b64encode(bytes(32)),
    ],
)
def test_a_last_message_that_is_none_is_refused(content: bytes) -> None:
    login = exchange()
    login.step(b"n,,n=user,r=abc")

    assert isinstance(login.step(content), Refused)


def test_a_proof_of_another_login_is_worth_nothing() -> None:
    overheard = exchange()
    first = overheard.step(b"n,,n=user,r=abc")
    assert isinstance(first, Challenge)
    last = b"c=biws,r=abc" + SERVER_NONCE.encode()
    message = last + b",p=" + proof(SHA_256, "pencil", b"n=user,r=abc," + first.content + b"," + last)
    assert isinstance(overheard.step(message), LoggedIn)

    later = ScramExchange(SHA_256, "other", lambda name: credential_of(name, SHA_256, "pencil", SALT))
    later.step(b"n,,n=user,r=abc")

    assert isinstance(later.step(message), Refused)


def test_a_password_is_checked_by_what_is_kept_of_it() -> None:
    kept = credential_of("user", SHA_512, "pencil", SALT)

    assert is_password(kept, "pencil")
    assert not is_password(kept, "Pencil")
    assert not is_password(decoy_credential("user", SHA_512, b"salt"), "pencil")
