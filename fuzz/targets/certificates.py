"""Certificates of strangers and of nodes, and the rules that make users and nodes of their subjects.

TLS has checked the signature of a certificate when it comes here, and not what its authority let into it.
"""

import random
import tempfile
import warnings
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from functools import cache, wraps
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ed25519
from cryptography.x509.oid import NameOID

from fuzz.harness import Target
from penstock.core.model import NodeId, ProtocolError
from penstock.runtime.peer_tls import CertificateRefusal
from penstock.security import ANONYMOUS
from penstock.security.certificates import (
    AUTHORITY,
    NODE_URI,
    CertificateError,
    certificate_views,
    create_authority,
    create_node_certificate,
)
from penstock.security.options import TlsOptions
from penstock.security.peer_certificates import PeerCertificates
from penstock.security.tls_contexts import PrincipalRule, TlsContexts, TlsUnusable, end_of_certificate

RULES = ("RULE:^CN=([^,]+),OU=people(,.*)?$/$1/L", "RULE:^CN=(.+)$/$1/", "DEFAULT")
NAMES = (NameOID.COMMON_NAME, NameOID.ORGANIZATION_NAME, NameOID.COUNTRY_NAME, NameOID.EMAIL_ADDRESS)
VALUES = ("alice", "DE", "a,b", "Ü+=\\", " lead", "#12")


# Always the same, and so are its signatures.
KEY = ed25519.Ed25519PrivateKey.from_private_bytes(bytes(range(32)))


def quiet(run: Callable[[bytes], None]) -> Callable[[bytes], None]:
    """Without what libraries say about odd patterns and serial numbers."""

    @wraps(run)
    def ran(data: bytes) -> None:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            run(data)

    return ran


@cache
def readers() -> tuple[TlsContexts, PeerCertificates]:
    """What listeners and links read certificates with."""
    with tempfile.TemporaryDirectory() as directory:
        create_authority(Path(directory), "fuzz")
        files = create_node_certificate(Path(directory), NodeId(1), ["localhost"])
        options = TlsOptions(
            str(files.certificate),
            str(files.key),
            str(Path(directory) / f"{AUTHORITY}.pem"),
            principal_rules=RULES,
            node_rules=("RULE:^CN=node-([0-9]+)$/$1/",),
        )
        return TlsContexts(options), PeerCertificates(options, NodeId(1))


def _names(rng: random.Random) -> Sequence[x509.GeneralName]:
    every = (
        x509.UniformResourceIdentifier(f"{NODE_URI}{rng.randint(0, 9)}"),
        x509.DNSName("node.example"),
        x509.RFC822Name("a@example.com"),
        x509.RegisteredID(x509.ObjectIdentifier("1.2.3")),
    )
    return rng.sample(every, rng.randint(1, 4))


def a_certificate(rng: random.Random) -> bytes:
    """DER, with a subject and names of many kinds."""
    attributes = [x509.NameAttribute(NameOID.COMMON_NAME, rng.choice(VALUES))]
    attributes += [
        x509.NameAttribute(kind, "DE" if kind is NameOID.COUNTRY_NAME else rng.choice(VALUES))
        for kind in rng.sample(NAMES, rng.randint(0, 3))
    ]
    now = datetime(2030, 1, 1, tzinfo=UTC)
    builder = (
        x509.CertificateBuilder()
        .subject_name(x509.Name(attributes))
        .issuer_name(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "ca")]))
        .public_key(KEY.public_key())
        .serial_number(rng.getrandbits(64) + 1)
        .not_valid_before(now)
        .not_valid_after(now + timedelta(days=rng.randint(1, 99)))
    )
    if rng.random() < 0.8:
        builder = builder.add_extension(x509.SubjectAlternativeName(_names(rng)), critical=False)
    return builder.sign(KEY, None).public_bytes(serialization.Encoding.DER)


def read_owner(certificate: bytes) -> None:
    """Who owns a certificate: somebody with a name, until some time, or nobody."""
    owner = readers()[0].principal_of(certificate)
    if owner == ANONYMOUS:
        raise ProtocolError("nobody")
    assert owner.name
    if end_of_certificate(certificate) is None:
        raise ProtocolError("until when?")


def read_node(certificate: bytes) -> None:
    found = readers()[1].node_of(certificate)
    if isinstance(found, CertificateRefusal):
        assert found.reason
        return
    assert 0 <= found <= 2**31 - 1


def a_pem(rng: random.Random) -> bytes:
    made = [x509.load_der_x509_certificate(a_certificate(rng)) for _ in range(rng.randint(1, 2))]
    return b"".join(each.public_bytes(serialization.Encoding.PEM) for each in made)


def show_pem(content: bytes) -> None:
    for view in certificate_views("file", content):
        assert view.not_before <= view.not_after or view.subject is not None


def a_rule(rng: random.Random) -> bytes:
    patterns = (r"^CN=([^,]+),.*$", r"^.*UID=(\w+)\/?(?:,|$).*", "(a|b)+(?P<x>[é]{1,3})", "")
    replacement = rng.choice(("$1", "x-$1", "x", ""))
    pattern = rng.choice(patterns)
    if "(" not in pattern:
        replacement = "x"
    return f"RULE:{pattern}/{replacement}/{rng.choice(('', 'L', 'U'))}".encode()


def read_rule(data: bytes) -> None:
    """A rule of an operator is refused, or makes a name of a subject or none."""
    try:
        text = data.decode()
    except UnicodeDecodeError:
        return
    PrincipalRule.parse(text).apply("CN=a")


def a_subject(rng: random.Random) -> bytes:
    parts = (f"{kind}={rng.choice(VALUES)}" for kind in ("CN", "OU", "O", "C")[: rng.randint(1, 4)])
    return ",".join(parts).encode()


@cache
def rules() -> tuple[PrincipalRule, ...]:
    return tuple(map(PrincipalRule.parse, RULES))


def apply_rules(data: bytes) -> None:
    subject = data.decode("latin-1")
    for rule in rules():
        name = rule.apply(subject)
        assert name is None or name.lower() in subject.lower()


TARGETS = (
    Target("certificate.owner", a_certificate, quiet(read_owner), (ProtocolError,)),
    Target("certificate.node", a_certificate, quiet(read_node), ()),
    Target("certificate.pem", a_pem, quiet(show_pem), (CertificateError,)),
    Target("certificate.rule", a_rule, quiet(read_rule), (TlsUnusable,), 4_096),
    Target("certificate.subject", a_subject, apply_rules, ()),
)
