"""Links on which nodes prove who they are, over real sockets."""

import shutil
import socket
import ssl
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.serialization import Encoding

from penstock.core.model import NodeId
from penstock.observability import log
from penstock.runtime import Address, CloseReason
from penstock.runtime.loop import RuntimeOptions
from penstock.runtime.peer_link import PeerOptions
from penstock.security import certificates
from penstock.security.certificates import (
    create_authority,
    create_client_certificate,
    create_node_certificate,
)
from penstock.security.options import TlsOptions
from penstock.security.peer_certificates import PeerCertificates
from penstock.security.tls_contexts import TlsUnusable

ANY_PORT = Address("127.0.0.1", 0)
HASTY = PeerOptions(handshake_timeout_ms=5_000, idle_timeout_ms=400)
Recorders = Callable[[], Any]


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("certs")
    create_authority(directory, "nodes")
    for node in (1, 2):
        create_node_certificate(directory, NodeId(node), ["127.0.0.1"])
    create_client_certificate(directory, "alice")
    return directory


@pytest.fixture
def refusals(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The reasons of links that were refused."""
    seen: list[str] = []

    def warning(event: str, **fields: Any) -> None:
        if event == "peer.link_refused":
            seen.append(fields["reason"])

    monkeypatch.setattr(log, "warning", warning)
    return seen


def tls_options(directory: Path, name: str, *, rules: tuple[str, ...] = ()) -> TlsOptions:
    return TlsOptions(
        str(directory / f"{name}.pem"),
        str(directory / f"{name}.key"),
        str(directory / "ca.pem"),
        node_rules=rules,
    )


def proven(directory: Path, node: int, *, mixed: bool = False) -> RuntimeOptions:
    tls = PeerCertificates(tls_options(directory, f"node-{node}"), NodeId(node), accepts_plain=mixed)
    return RuntimeOptions(HASTY, tls=tls)


def intruder_context(directory: Path, name: str | None) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    if name is not None:
        context.load_cert_chain(directory / f"{name}.pem", directory / f"{name}.key")
    return context


class Intruder:
    """A `PeerTls` of somebody who has other certificates than a node should have."""

    accepts_plain = False

    def __init__(self, context: ssl.SSLContext) -> None:
        self.server = self.client = context

    def node_of(self, _certificate: bytes) -> NodeId:
        return NodeId(1)

    def check(self) -> None:
        """Nothing changes."""


def test_frames_of_every_size_arrive_both_ways(bench: Any, new_recorder: Recorders, authority: Path) -> None:
    called, calling = new_recorder(), new_recorder()
    listener = bench.node(1, proven(authority, 1)).transport.listen(ANY_PORT, called)

    bench.node(2, proven(authority, 2)).transport.connect(listener.address, calling)
    bench.until(lambda: called.peers and calling.peers)
    frames = [bytes([size % 251]) * size for size in (1, 100, 65_535, 65_536, 1_000_000, 7_000_000)]
    for frame in frames:
        assert calling.links[0].send(frame[:3], frame[3:])
    bench.until(lambda: len(called.frames) == len(frames))
    assert called.links[0].send(b"back")
    bench.until(lambda: calling.frames == [b"back"])

    assert called.frames == frames
    assert (called.peers[0].node_id, calling.peers[0].node_id) == (2, 1)


def test_a_full_link_drains(bench: Any, new_recorder: Recorders, authority: Path) -> None:
    called, calling = new_recorder(), new_recorder()
    listener = bench.node(1, proven(authority, 1)).transport.listen(ANY_PORT, called)
    bench.node(2, proven(authority, 2)).transport.connect(listener.address, calling)
    bench.until(lambda: calling.peers)

    sent = 0
    while calling.links[0].send(b"x" * 100_000):
        sent += 1
    bench.until(lambda: calling.drains == 1 and len(called.frames) == sent)

    assert sent > 10


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        (None, "it has no certificate"),
        ("alice", "is of no node"),
        ("foreign/node-2", "its certificate is refused"),
        ("expired/node-2", "its certificate is refused: certificate has expired"),
    ],
)
def test_who_has_no_certificate_of_a_node_gets_nothing(  # noqa: PLR0917 - fixtures
    bench: Any,
    new_recorder: Recorders,
    authority: Path,
    tmp_path: Path,
    refusals: list[str],
    monkeypatch: pytest.MonkeyPatch,
    name: str | None,
    reason: str,
) -> None:
    directory = shutil.copytree(authority, tmp_path / "certs")
    create_authority(directory / "foreign", "nodes")
    create_node_certificate(directory / "foreign", NodeId(2), ["127.0.0.1"])
    (directory / "expired").mkdir()
    shutil.copy(directory / "ca.pem", directory / "expired")
    shutil.copy(directory / "ca.key", directory / "expired")
    monkeypatch.setattr(certificates, "EARLIER", timedelta(days=9))
    create_node_certificate(directory / "expired", NodeId(2), ["127.0.0.1"], days=-1)
    called, calling = new_recorder(), new_recorder()
    listener = bench.node(1, proven(authority, 1)).transport.listen(ANY_PORT, called)

    context = intruder_context(directory, name)
    bench.node(2, RuntimeOptions(tls=Intruder(context))).transport.connect(listener.address, calling)
    bench.until(lambda: calling.endings and any(reason in refusal for refusal in refusals))

    assert called.peers == []


def test_a_node_that_says_hello_as_another_is_refused(
    bench: Any, new_recorder: Recorders, authority: Path, refusals: list[str]
) -> None:
    called, calling = new_recorder(), new_recorder()
    listener = bench.node(1, proven(authority, 1)).transport.listen(ANY_PORT, called)

    bench.node(3, proven(authority, 2)).transport.connect(listener.address, calling)
    bench.until(lambda: calling.endings)

    assert called.peers == []
    assert calling.endings == [CloseReason.REJECTED]
    assert "it says that it is node 3, and its certificate is of node 2" in refusals


def test_the_node_that_was_dialled_proves_itself_too(
    bench: Any, new_recorder: Recorders, authority: Path, refusals: list[str]
) -> None:
    called, calling = new_recorder(), new_recorder()
    listener = bench.node(3, proven(authority, 1)).transport.listen(ANY_PORT, called)

    bench.node(2, proven(authority, 2)).transport.connect(listener.address, calling)
    bench.until(lambda: calling.endings)

    assert calling.peers == []
    assert "it says that it is node 3, and its certificate is of node 1" in refusals


@pytest.mark.parametrize(
    "said", [b"\0\0\0\x01x", b"\x16\x03\x01\xff\xff" + b"x" * 4_000, b"GET / HTTP/1.1\r\n\r\n"]
)
def test_bytes_that_are_no_handshake_end_the_link_alone(
    bench: Any, new_recorder: Recorders, authority: Path, said: bytes
) -> None:
    called, calling = new_recorder(), new_recorder()
    listener = bench.node(1, proven(authority, 1)).transport.listen(ANY_PORT, called)
    with socket.create_connection(listener.address, timeout=10) as stranger:
        stranger.sendall(said)
        stranger.setblocking(False)

        bench.node(2, proven(authority, 2)).transport.connect(listener.address, calling)
        bench.until(lambda: calling.peers and _is_closed(stranger))

    assert [peer.node_id for peer in called.peers] == [2]


def _is_closed(connection: socket.socket) -> bool:
    try:
        while connection.recv(4_096):
            pass
    except BlockingIOError:
        return False
    except OSError:
        return True
    return True


def test_plain_and_tls_do_not_talk_and_say_why(
    bench: Any, new_recorder: Recorders, authority: Path, refusals: list[str]
) -> None:
    proving, plain = new_recorder(), new_recorder()
    with_tls = bench.node(1, proven(authority, 1)).transport.listen(ANY_PORT, proving)
    without = bench.node(2).transport.listen(ANY_PORT, plain)

    bench.node(3).transport.connect(with_tls.address, plain)
    bench.node(4, proven(authority, 1)).transport.connect(without.address, proving)
    bench.until(lambda: plain.endings and proving.endings)

    assert proving.peers == plain.peers == []
    assert any("it does not speak TLS" in reason for reason in refusals)
    assert any("it speaks TLS, and this node does not" in reason for reason in refusals)


def test_mixed_nodes_talk_to_both(bench: Any, new_recorder: Recorders, authority: Path) -> None:
    first, second, third = new_recorder(), new_recorder(), new_recorder()
    mixed = bench.node(1, proven(authority, 1, mixed=True))
    door = mixed.transport.listen(ANY_PORT, first)
    plain_door = bench.node(3).transport.listen(ANY_PORT, third)

    bench.node(2, proven(authority, 2)).transport.connect(door.address, second)
    bench.node(3).transport.connect(door.address, third)
    mixed.transport.connect(plain_door.address, first)
    bench.until(lambda: first.endings and len(first.peers) == 2)
    # The first attempt met no TLS, so the next one goes without.
    mixed.transport.connect(plain_door.address, first)
    bench.until(lambda: len(first.peers) == 3)

    assert sorted(peer.node_id for peer in first.peers) == [2, 3, 3]


def test_replaced_certificates_count_for_new_links_and_old_links_stay(
    bench: Any, new_recorder: Recorders, authority: Path, tmp_path: Path
) -> None:
    directory = shutil.copytree(authority, tmp_path / "certs")
    called, calling, later = new_recorder(), new_recorder(), new_recorder()
    options = proven(directory, 1)
    assert options.tls is not None
    before = options.tls.server
    listener = bench.node(1, options).transport.listen(ANY_PORT, called)
    bench.node(2, proven(authority, 2)).transport.connect(listener.address, calling)
    bench.until(lambda: calling.peers)

    for suffix in ("pem", "key"):
        (directory / f"node-1.{suffix}").unlink()
    create_node_certificate(directory, NodeId(1), ["127.0.0.1"])
    tls = options.tls
    bench.until(lambda: tls.server is not before)
    bench.node(3, RuntimeOptions(tls=proven(authority, 2).tls)).transport.connect(listener.address, later)
    bench.node(2, proven(authority, 2)).transport.connect(listener.address, later)
    bench.until(lambda: later.peers and later.endings)
    assert calling.links[0].send(b"still here")
    bench.until(lambda: called.frames == [b"still here"])

    assert calling.endings == []


def test_a_certificate_that_others_would_refuse_is_not_taken(authority: Path, tmp_path: Path) -> None:
    directory = shutil.copytree(authority, tmp_path / "certs")
    certificates_of_1 = PeerCertificates(tls_options(directory, "node-1"), NodeId(1))
    before = certificates_of_1.server

    for suffix in ("pem", "key"):
        shutil.copy(directory / f"node-2.{suffix}", directory / f"node-1.{suffix}")
    certificates_of_1.check()

    assert certificates_of_1.server is before
    with pytest.raises(TlsUnusable, match="is the certificate of node 2, and this is node 1"):
        PeerCertificates(tls_options(directory, "node-1"), NodeId(1))
    with pytest.raises(TlsUnusable, match="names no node id"):
        PeerCertificates(tls_options(directory, "alice"), NodeId(1))


def test_a_node_does_not_start_with_a_certificate_of_another_authority(
    authority: Path, tmp_path: Path
) -> None:
    create_authority(tmp_path, "others")
    files = tls_options(authority, "node-1")
    options = TlsOptions(files.certificate, files.key, str(tmp_path / "ca.pem"))

    with pytest.raises(TlsUnusable, match="would be refused by other nodes: "):
        PeerCertificates(options, NodeId(1))


def test_a_rule_finds_the_node_in_the_subject(authority: Path) -> None:
    # A certificate that others made: it names no node, and its subject does.
    rules = (r"RULE:^CN=al(ic)e$/7/", r"RULE:^CN=node-(\d+)$/$1/")
    found = PeerCertificates(tls_options(authority, "node-1", rules=rules), NodeId(1))
    der = x509.load_pem_x509_certificate((authority / "alice.pem").read_bytes())

    assert found.node_of(der.public_bytes(Encoding.DER)) == 7
    assert datetime.now(UTC) < der.not_valid_after_utc
