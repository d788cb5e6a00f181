"""HTTP and gRPC with TLS: the node's certificate, and clients that are somebody by theirs."""

import socket
import ssl
from pathlib import Path

import grpc
import httpx
import pytest
from google.protobuf.empty_pb2 import Empty

from penstock.core.model import NodeId
from penstock.security.certificates import (
    create_authority,
    create_client_certificate,
    create_node_certificate,
)
from penstock.v1 import penstock_pb2_grpc
from tests.integration.security.conftest import Issuer
from tests.integration.security_gateway.conftest import basic, secured_settings
from tests.support.clusters import until
from tests.support.nodes import NodeProcess


def test_a_secured_gateway_speaks_tls_and_takes_certificates(tmp_path: Path) -> None:
    authority = create_authority(tmp_path / "certs", "tests").certificate
    files = create_node_certificate(tmp_path / "certs", NodeId(1), ["localhost", "127.0.0.1"])
    client = create_client_certificate(tmp_path / "certs", "admin")
    settings = [
        *secured_settings(tmp_path, Issuer(tmp_path / "jwks.json")),
        "listen.protocol=SASL_SSL",
        f"security.tls.certificate={files.certificate}",
        f"security.tls.key={files.key}",
        f"security.tls.authority={authority}",
        "security.tls.client_auth=want",
        "security.tls.principal_rules=RULE:^CN=(.+)$/$1/",
    ]
    node = NodeProcess(tmp_path / "data", *settings).start()
    try:
        url = f"https://{node.ready['http']}"
        trust = ssl.create_default_context(cafile=str(authority))
        health = httpx.get(url + "/health", verify=trust)
        assert "max-age" in health.headers["strict-transport-security"]
        assert httpx.get(url + "/v1/topics", verify=trust).status_code == 401
        trust.load_cert_chain(client.certificate, client.key)

        def is_served() -> bool:
            return httpx.get(url + "/v1/topics", verify=trust, timeout=20).status_code == 200

        until(is_served, "the owner of a certificate is somebody")
        trusted = grpc.ssl_channel_credentials(authority.read_bytes())
        with grpc.secure_channel(node.ready["grpc"], trusted) as channel:
            login = list(basic("admin", "admin-pw").items())
            penstock_pb2_grpc.PenstockStub(channel).ListTopics(  # type: ignore[no-untyped-call]
                Empty(), metadata=login, timeout=20
            )
        metrics = f"https://{node.ready['metrics']}/metrics"
        assert httpx.get(metrics, verify=trust, timeout=20).status_code == 200
    finally:
        node.kill()


def handshake(address: str, authority: Path, version: ssl.TLSVersion) -> str | None:
    """What is spoken with a client that speaks this version alone."""
    host, _, port = address.rpartition(":")
    context = ssl.create_default_context(cafile=str(authority))
    context.minimum_version = context.maximum_version = version
    context.set_alpn_protocols(["h2", "http/1.1"])
    with (
        socket.create_connection((host, int(port)), timeout=20) as connection,
        context.wrap_socket(connection, server_hostname=host) as encrypted,
    ):
        return encrypted.version()


@pytest.mark.parametrize("version_min", ["1.2", "1.3"])
def test_the_lowest_version_of_tls_is_that_of_every_server(tmp_path: Path, version_min: str) -> None:
    authority = create_authority(tmp_path / "certs", "tests").certificate
    files = create_node_certificate(tmp_path / "certs", NodeId(1), ["localhost", "127.0.0.1"])
    settings = [
        *secured_settings(tmp_path, Issuer(tmp_path / "jwks.json")),
        "listen.protocol=SASL_SSL",
        f"security.tls.certificate={files.certificate}",
        f"security.tls.key={files.key}",
        f"security.tls.authority={authority}",
        f"security.tls.version_min={version_min}",
    ]
    node = NodeProcess(tmp_path / "data", *settings).start()
    try:
        for server in ("kafka", "http", "metrics", "grpc"):
            address = node.ready[server] if server != "kafka" else node.kafka
            assert handshake(address, authority, ssl.TLSVersion.TLSv1_3) == "TLSv1.3", server
            if version_min == "1.2":
                assert handshake(address, authority, ssl.TLSVersion.TLSv1_2) == "TLSv1.2", server
            else:
                with pytest.raises((ssl.SSLError, ConnectionError)):
                    handshake(address, authority, ssl.TLSVersion.TLSv1_2)
    finally:
        node.kill()
