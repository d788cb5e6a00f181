"""Certificates that are read again, and who their owners are."""

import os
import ssl
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding
from cryptography.x509.oid import NameOID

from penstock.core.model import NodeId
from penstock.runtime.peer_tls import CertificateRefusal
from penstock.security import ANONYMOUS, Principal
from penstock.security.certificates import (
    create_authority,
    create_client_certificate,
    create_node_certificate,
)
from penstock.security.options import TlsOptions
from penstock.security.peer_certificates import PeerCertificates
from penstock.security.tls_contexts import PrincipalRule, TlsContexts, TlsUnusable

SUBJECT = "CN=Alice Smith,OU=Sales,O=Example"


@pytest.mark.parametrize(
    ("rule", "name"),
    [
        ("DEFAULT", SUBJECT),
        ("RULE:^CN=([^,]+).*$/$1/", "Alice Smith"),
        ("RULE:^CN=([^,]+),OU=([^,]+).*$/$1@$2/L", "alice smith@sales"),
        ("RULE:^CN=([^,]+).*$/$1/U", "ALICE SMITH"),
        ("RULE:^O=.*$/x/", None),
    ],
)
def test_a_rule_makes_a_name_of_a_subject(rule: str, name: str | None) -> None:
    assert PrincipalRule.parse(rule).apply(SUBJECT) == name


@pytest.mark.parametrize(
    "rule",
    [
        "",
        "CN",
        "RULE:^CN=(.*)$",
        "RULE:(/x/",
        "RULE:^CN=.*$/$1/",
        "RULE:a/b/X",
        "RULE:a{99999999999}/b/",
        f"RULE:{'(' * 5_000}a{')' * 5_000}/b/",
    ],
    ids=lambda rule: rule[:20],
)
def test_a_rule_that_is_none_is_an_error(rule: str) -> None:
    with pytest.raises(TlsUnusable, match="principal_rules"):
        PrincipalRule.parse(rule)


def options(directory: Path, client_auth: str = "none", version_min: str = "1.2") -> TlsOptions:
    if not (directory / "ca.pem").exists():
        create_authority(directory, "ours")
    files = create_node_certificate(directory, NodeId(len(list(directory.iterdir()))), ["localhost"])
    return TlsOptions(
        str(files.certificate), str(files.key), str(directory / "ca.pem"), client_auth, version_min
    )


def test_the_first_rule_that_fits_names_the_owner(tmp_path: Path) -> None:
    made = options(tmp_path)
    contexts = TlsContexts(
        TlsOptions(made.certificate, made.key, principal_rules=("RULE:^O=(.*)$/$1/", "RULE:^CN=(.*)$/$1/"))
    )
    client = create_client_certificate(tmp_path, "alice").certificate.read_bytes()
    certificate = x509.load_pem_x509_certificate(client).public_bytes(Encoding.DER)

    assert contexts.principal_of(certificate) == Principal("User", "alice")
    assert contexts.principal_of(None) == ANONYMOUS


def test_a_subject_that_is_too_long_fits_no_rule_not_even_in_part(tmp_path: Path) -> None:
    made = options(tmp_path)
    contexts = TlsContexts(TlsOptions(made.certificate, made.key, principal_rules=("RULE:^(.).*$/$1/",)))
    peers = PeerCertificates(
        TlsOptions(made.certificate, made.key, made.authority, node_rules=("RULE:^(?:.*)()$/7/",)), NodeId(2)
    )

    short, long = (_with_subject(["x" * 60] * count) for count in (5, 40))

    assert contexts.principal_of(short) != ANONYMOUS
    assert contexts.principal_of(long) == ANONYMOUS
    assert peers.node_of(short) == 7
    assert isinstance(peers.node_of(long), CertificateRefusal)


def _with_subject(units: list[str]) -> bytes:
    """A certificate whose subject has these units."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.ORGANIZATIONAL_UNIT_NAME, unit) for unit in units])
    begins = datetime(2026, 1, 1, tzinfo=UTC)
    made = (
        x509.CertificateBuilder(name, name, key.public_key(), x509.random_serial_number())
        .not_valid_before(begins)
        .not_valid_after(begins + timedelta(days=3_650))
        .sign(key, hashes.SHA256())
    )
    return made.public_bytes(Encoding.DER)


# OpenSSL takes what `cryptography` does not read: a version of 2, a common name that is a bit string.
@pytest.mark.parametrize(
    ("part", "changed"),
    [
        (b"\xa0\x03\x02\x01\x02", b"\xa0\x03\x02\x01\x01"),
        (b"\x06\x03\x55\x04\x03\x0c\x05alice", b"\x06\x03\x55\x04\x03\x03\x05alice"),
    ],
)
def test_who_has_a_certificate_that_cannot_be_read_is_nobody(
    tmp_path: Path, part: bytes, changed: bytes
) -> None:
    made = options(tmp_path)
    client = create_client_certificate(tmp_path, "alice").certificate.read_bytes()
    certificate = x509.load_pem_x509_certificate(client).public_bytes(Encoding.DER)
    assert part in certificate
    odd = certificate.replace(part, changed)

    assert TlsContexts(made).principal_of(odd) == ANONYMOUS
    peers = PeerCertificates(options(tmp_path), NodeId(len(list(tmp_path.iterdir())) - 2))
    assert isinstance(peers.node_of(odd), CertificateRefusal)


def test_a_new_certificate_is_taken_and_a_wrong_one_is_not(tmp_path: Path) -> None:
    first, second = options(tmp_path), options(tmp_path)
    contexts = TlsContexts(first)
    before = contexts.current

    contexts.check()
    assert contexts.current is before

    Path(first.certificate).write_bytes(b"nothing")
    contexts.check()
    assert contexts.current is before

    os.replace(second.certificate, first.certificate)
    os.replace(second.key, first.key)
    contexts.check()
    assert contexts.current is not before


def test_a_key_that_others_can_read_is_refused(tmp_path: Path) -> None:
    made = options(tmp_path)
    Path(made.key).chmod(0o640)

    with pytest.raises(TlsUnusable, match="others may read it"):
        TlsContexts(made)


@pytest.mark.parametrize("missing", ["certificate", "key", "authority"])
def test_a_file_that_is_missing_is_named(tmp_path: Path, missing: str) -> None:
    made = options(tmp_path)
    path = getattr(made, missing)
    Path(path).unlink()

    with pytest.raises(TlsUnusable, match=Path(path).name):
        TlsContexts(made)


def test_what_is_asked_of_clients(tmp_path: Path) -> None:
    needing = TlsContexts(options(tmp_path, client_auth="need", version_min="1.3")).current
    wanting = TlsContexts(options(tmp_path, client_auth="want")).current
    neither = TlsContexts(options(tmp_path)).current

    modes = [each.verify_mode for each in (needing, wanting, neither)]
    assert modes == [ssl.CERT_REQUIRED, ssl.CERT_OPTIONAL, ssl.CERT_NONE]
    assert needing.minimum_version is ssl.TLSVersion.TLSv1_3
    assert neither.minimum_version is ssl.TLSVersion.TLSv1_2
