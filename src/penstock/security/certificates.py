"""A private certificate authority, for clusters whose people have none.

    DIR/ca.pem, ca.key           the authority: everyone trusts its certificate, and nobody else has its key
    DIR/node-1.pem, node-1.key   of a node: names where it is reached, and says which node it is
    DIR/alice.pem, alice.key     of a client: its common name is the user

A certificate of a node has the URI `penstock:node:1` among its names: that is how nodes know each other, and
client certificates are made without it. Keys are ECDSA P-256: small, quick to verify, and known to every
TLS library that Kafka's clients use.

Left out: revocation. Certificates are to be replaced in time, and nodes read them again when they change.
"""

import os
import re
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path
from typing import NamedTuple

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from penstock.core.model import NodeId, PenstockError
from penstock.security.private_files import read_private

AUTHORITY = "ca"
AUTHORITY_DAYS = 3_650
CERTIFICATE_DAYS = 397
NODE_URI = "penstock:node:"
ID_DIGITS_MAX = 10
KEY_BYTES_MAX = 1 << 16
NODE_ID_MAX = 2**31 - 1
# What is said about a certificate that cannot be read; OpenSSL takes more than `cryptography` does.
UNREADABLE = (
    ValueError,
    TypeError,
    x509.InvalidVersion,
    x509.DuplicateExtension,
    x509.UnsupportedGeneralNameType,
)
# A clock that is a little behind must not refuse a new certificate.
EARLIER = timedelta(minutes=5)
_FILE_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._@-]{0,63}")
PRIVATE_MODE = 0o600
PUBLIC_MODE = 0o644


class CertificateError(PenstockError):
    """A certificate could not be made or read; says which and why."""


class CertificateFiles(NamedTuple):
    """A certificate with the chain behind it, and its key."""

    certificate: Path
    key: Path


class CertificateView(NamedTuple):
    """What a certificate says, for people."""

    file: str
    subject: str
    issuer: str
    names: tuple[str, ...]
    serial: str
    not_before: datetime
    not_after: datetime
    is_authority: bool


def create_authority(directory: Path, name: str, days: int = AUTHORITY_DAYS) -> CertificateFiles:
    """Make an authority; CertificateError if there is one already."""
    files = _files(directory, AUTHORITY)
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    certificate = (
        _builder(subject, subject, key.public_key(), days)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(_key_usage(is_authority=True), critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .sign(key, hashes.SHA256())
    )
    _write(files, [certificate], key)
    return files


def create_node_certificate(
    directory: Path, node_id: NodeId, hosts: Sequence[str], days: int = CERTIFICATE_DAYS
) -> CertificateFiles:
    """Make a certificate for a node that is reached by these names and addresses."""
    if not hosts:
        raise CertificateError("a node's certificate needs at least one host name or address")
    names = [*map(_general_name, hosts), x509.UniformResourceIdentifier(f"{NODE_URI}{node_id}")]
    usages = [ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH]
    return _create(directory, f"node-{node_id}", names, usages, days)


def create_client_certificate(directory: Path, user: str, days: int = CERTIFICATE_DAYS) -> CertificateFiles:
    """Make a certificate that a client can log in with as this user."""
    return _create(directory, user, [], [ExtendedKeyUsageOID.CLIENT_AUTH], days)


def _create(
    directory: Path,
    name: str,
    alternatives: Sequence[x509.GeneralName],
    usages: Sequence[x509.ObjectIdentifier],
    days: int,
) -> CertificateFiles:
    if not _FILE_NAME.fullmatch(name) or name == AUTHORITY:
        raise CertificateError(f"{name!r} cannot be the name of a certificate: use letters, digits and ._@-")
    files, (authority, authority_key) = _files(directory, name), _load_authority(directory)
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    issuer_key = x509.AuthorityKeyIdentifier.from_issuer_public_key(authority_key.public_key())
    builder = (
        _builder(subject, authority.subject, key.public_key(), days)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_key_usage(is_authority=False), critical=True)
        .add_extension(x509.ExtendedKeyUsage(usages), critical=False)
        .add_extension(issuer_key, critical=False)
    )
    if alternatives:
        builder = builder.add_extension(x509.SubjectAlternativeName(alternatives), critical=False)
    _write(files, [builder.sign(authority_key, hashes.SHA256()), authority], key)
    return files


def node_of(certificate: x509.Certificate) -> NodeId | None:
    """Which node the certificate is of; None if it is of none. Raises one of UNREADABLE."""
    try:
        names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except x509.ExtensionNotFound:
        return None
    for uri in names.get_values_for_type(x509.UniformResourceIdentifier):
        if uri.startswith(NODE_URI) and (node := node_id_of(uri.removeprefix(NODE_URI))) is not None:
            return node
    return None


def node_id_of(text: str) -> NodeId | None:
    """The id that the text is, in decimal digits."""
    if not (text.isascii() and text.isdigit() and len(text) <= ID_DIGITS_MAX):
        return None
    return NodeId(int(text)) if int(text) <= NODE_ID_MAX else None


def show(path: Path) -> list[CertificateView]:
    """What the certificates of a file say."""
    try:
        content = path.read_bytes()
    except OSError as error:
        raise CertificateError(f"{path}: {error.strerror}") from None
    return certificate_views(str(path), content)


def certificate_views(file: str, content: bytes) -> list[CertificateView]:
    """What the certificates in the content of a file say, or CertificateError."""
    try:
        return [_view(file, certificate) for certificate in x509.load_pem_x509_certificates(content)]
    except UNREADABLE:
        raise CertificateError(f"{file} has no certificate that can be read") from None


def _view(file: str, certificate: x509.Certificate) -> CertificateView:
    names: tuple[str, ...] = ()
    is_authority = False
    for extension in certificate.extensions:
        if isinstance(extension.value, x509.SubjectAlternativeName):
            names = tuple(str(name.value) for name in extension.value)
        elif isinstance(extension.value, x509.BasicConstraints):
            is_authority = extension.value.ca
    return CertificateView(
        file,
        certificate.subject.rfc4514_string(),
        certificate.issuer.rfc4514_string(),
        names,
        f"{certificate.serial_number:x}",
        certificate.not_valid_before_utc,
        certificate.not_valid_after_utc,
        is_authority,
    )


def _builder(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePublicKey, days: int
) -> x509.CertificateBuilder:
    now = datetime.now(UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - EARLIER)
        .not_valid_after(now + timedelta(days=days))
    )


def _key_usage(*, is_authority: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=not is_authority,
        key_cert_sign=is_authority,
        crl_sign=is_authority,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )


def _general_name(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ip_address(host))
    except ValueError:
        try:
            return x509.DNSName(host)
        except ValueError:
            raise CertificateError(f"{host!r} is neither a host name nor an address") from None


def _load_authority(directory: Path) -> tuple[x509.Certificate, ec.EllipticCurvePrivateKey]:
    certificate, key = directory / f"{AUTHORITY}.pem", directory / f"{AUTHORITY}.key"
    try:
        authority = x509.load_pem_x509_certificate(certificate.read_bytes())
        if not key.exists():
            raise CertificateError(f"{key} is missing: `penstock certs init` makes it")
        private = serialization.load_pem_private_key(read_private(key, KEY_BYTES_MAX), None)
    except FileNotFoundError as missing:
        raise CertificateError(f"{missing.filename} is missing: `penstock certs init` makes it") from None
    except OSError as error:
        raise CertificateError(f"{error.filename}: {error.strerror}") from None
    except UNREADABLE:
        raise CertificateError(f"{directory} has no authority that can be read") from None
    if not isinstance(private, ec.EllipticCurvePrivateKey):
        raise CertificateError(f"{key} is not a key that `penstock certs init` made")
    return authority, private


def _files(directory: Path, name: str) -> CertificateFiles:
    """Where a new certificate goes; CertificateError if there is one."""
    files = CertificateFiles(directory / f"{name}.pem", directory / f"{name}.key")
    for file in files:
        if file.exists():
            raise CertificateError(f"{file} exists already")
    return files


def _write(
    files: CertificateFiles, chain: Sequence[x509.Certificate], key: ec.EllipticCurvePrivateKey
) -> None:
    private = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    public = b"".join(each.public_bytes(serialization.Encoding.PEM) for each in chain)
    try:
        files.key.parent.mkdir(parents=True, exist_ok=True)
        _create_file(files.key, private, PRIVATE_MODE)
        _create_file(files.certificate, public, PUBLIC_MODE)
    except OSError as error:
        raise CertificateError(f"{error.filename}: {error.strerror}") from None


def _create_file(path: Path, content: bytes, mode: int) -> None:
    # Nobody else can open it at any moment, whatever the umask is.
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
    with os.fdopen(descriptor, "wb") as file:
        file.write(content)
