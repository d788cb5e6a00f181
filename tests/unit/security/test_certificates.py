"""Certificates of a private authority, used by TLS."""

import ssl
import stat
from pathlib import Path

import pytest
from cryptography import x509

from penstock.core.model import NodeId
from penstock.security.certificates import (
    CertificateError,
    CertificateFiles,
    create_authority,
    create_client_certificate,
    create_node_certificate,
    node_id_of,
    node_of,
    show,
)


def handshake(
    authority: Path, server: CertificateFiles, client: CertificateFiles | None, host: str
) -> tuple[str | None, ssl.SSLObject]:
    """Both sides of a handshake without a network; returns the TLS version and the server's side."""
    theirs, ours = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER), ssl.create_default_context(cafile=str(authority))
    theirs.load_cert_chain(*server)
    theirs.load_verify_locations(authority)
    if client is not None:
        theirs.verify_mode = ssl.CERT_REQUIRED
        ours.load_cert_chain(*client)
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    accepting = theirs.wrap_bio(to_server, to_client, server_side=True)
    calling = ours.wrap_bio(to_client, to_server, server_hostname=host)
    for _ in range(10):
        for side in (calling, accepting):
            try:
                side.do_handshake()
            except ssl.SSLWantReadError:
                continue
    return calling.version(), accepting


def test_nodes_and_clients_prove_who_they_are(tmp_path: Path) -> None:
    authority = create_authority(tmp_path, "ours").certificate
    server = create_node_certificate(tmp_path, NodeId(3), ["broker.example", "127.0.0.1"])
    client = create_client_certificate(tmp_path, "alice")

    for host in ("broker.example", "127.0.0.1"):
        version, accepted = handshake(authority, server, client, host)
        assert version == "TLSv1.3"
        shown = accepted.getpeercert()
        assert shown is not None
        assert shown["subject"] == ((("commonName", "alice"),),)


def test_a_node_is_not_believed_under_another_name(tmp_path: Path) -> None:
    authority = create_authority(tmp_path, "ours").certificate
    server = create_node_certificate(tmp_path, NodeId(3), ["broker.example"])

    with pytest.raises(ssl.SSLCertVerificationError):
        handshake(authority, server, None, "other.example")


def test_another_authority_is_not_trusted(tmp_path: Path) -> None:
    create_authority(tmp_path / "ours", "same name")
    server = create_node_certificate(tmp_path / "ours", NodeId(3), ["broker.example"])
    other = create_authority(tmp_path / "theirs", "same name").certificate

    with pytest.raises(ssl.SSLCertVerificationError):
        handshake(other, server, None, "broker.example")


def test_the_certificate_of_a_node_says_which_node_and_that_of_a_client_does_not(tmp_path: Path) -> None:
    create_authority(tmp_path, "ours")
    node = create_node_certificate(tmp_path, NodeId(17), ["localhost"])
    client = create_client_certificate(tmp_path, "node-17x")

    assert node_of(x509.load_pem_x509_certificate(node.certificate.read_bytes())) == 17
    assert node_of(x509.load_pem_x509_certificate(client.certificate.read_bytes())) is None


def test_nobody_else_can_read_a_key(tmp_path: Path) -> None:
    files = create_authority(tmp_path, "ours"), create_node_certificate(tmp_path, NodeId(1), ["localhost"])

    assert [stat.S_IMODE(each.key.stat().st_mode) for each in files] == [0o600, 0o600]


def test_nothing_is_overwritten(tmp_path: Path) -> None:
    create_authority(tmp_path, "ours")
    create_client_certificate(tmp_path, "alice")
    before = {file.name: file.read_bytes() for file in tmp_path.iterdir()}

    with pytest.raises(CertificateError, match=r"ca\.pem exists already"):
        create_authority(tmp_path, "again")
    with pytest.raises(CertificateError, match=r"alice\.pem exists already"):
        create_client_certificate(tmp_path, "alice")

    assert {file.name: file.read_bytes() for file in tmp_path.iterdir()} == before


@pytest.mark.parametrize("user", ["", "../evil", "ca", "a/b", "ü"])
def test_a_name_that_is_no_file_name_is_refused(tmp_path: Path, user: str) -> None:
    create_authority(tmp_path, "ours")

    with pytest.raises(CertificateError):
        create_client_certificate(tmp_path, user)


def test_without_an_authority_there_is_one_clear_error(tmp_path: Path) -> None:
    with pytest.raises(CertificateError, match="penstock certs init"):
        create_client_certificate(tmp_path, "alice")


def test_what_a_certificate_says_is_shown(tmp_path: Path) -> None:
    create_authority(tmp_path, "ours")
    files = create_node_certificate(tmp_path, NodeId(1), ["localhost", "::1"])

    own, authority = show(files.certificate)

    assert (own.subject, own.issuer, own.is_authority) == ("CN=node-1", "CN=ours", False)
    assert own.names == ("localhost", "::1", "penstock:node:1")
    assert (authority.subject, authority.is_authority) == ("CN=ours", True)
    with pytest.raises(CertificateError, match="no certificate"):
        show(files.key)


@pytest.mark.parametrize(
    ("text", "node"), [("0", 0), ("2147483647", 2**31 - 1), ("2147483648", None), ("", None), ("٣", None)]
)
def test_a_node_id_is_what_other_nodes_can_have(text: str, node: int | None) -> None:
    assert node_id_of(text) == node
