"""Connections of our own clients: certificates in each form that they can be given in."""

import os
import tempfile
from collections.abc import Callable
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    load_pem_private_key,
    pkcs12,
)

from penstock.client import ClientError, Endpoint, TopicAdmin
from penstock.client.connection import connect
from penstock.client.connection_security import ConnectionSecurity
from penstock.core.protocol import ErrorCode
from penstock.core.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from tests.integration.security.conftest import Secured

TOPIC = "alice-keys"
STORE_PASSWORD = "store-pw"
Options = dict[str, str]


def as_files(secured: Secured, _: Path) -> Options:
    return {
        "ssl.ca.location": str(secured.authority),
        "ssl.certificate.location": str(secured.alice.certificate),
        "ssl.key.location": str(secured.alice.key),
    }


def as_text(secured: Secured, _: Path) -> Options:
    return {
        "ssl.ca.pem": secured.authority.read_text(),
        "ssl.certificate.pem": secured.alice.certificate.read_text(),
        "ssl.key.pem": secured.alice.key.read_text(),
    }


def as_store(secured: Secured, directory: Path) -> Options:
    key = load_pem_private_key(secured.alice.key.read_bytes(), None)
    certificate, *others = x509.load_pem_x509_certificates(secured.alice.certificate.read_bytes())
    hidden = BestAvailableEncryption(STORE_PASSWORD.encode())
    store = directory / "alice.p12"
    store.write_bytes(
        pkcs12.serialize_key_and_certificates(b"alice", key, certificate, others, hidden)  # type: ignore[arg-type]
    )
    return {
        "ssl.ca.location": str(secured.authority),
        "ssl.keystore.location": str(store),
        "ssl.keystore.password": STORE_PASSWORD,
    }


def asked(secured: Secured, options: Options) -> int:
    """What the broker says of a topic that alice may see, and nobody else."""
    endpoint = Endpoint(secured.addresses["SSL"], {"security.protocol": "ssl", **options})
    connection = connect(endpoint)
    try:
        request = MetadataRequest(topics=(MetadataRequestTopic(name=TOPIC),), allow_auto_topic_creation=False)
        answer: MetadataResponse = connection.ask(request)
    finally:
        connection.close()
    return answer.topics[0].error_code


@pytest.fixture(scope="module", autouse=True)
def topic(secured: Secured) -> None:
    TopicAdmin(secured.endpoint("admin")).create(TOPIC, 1, 1, {})


@pytest.mark.parametrize("form", [as_files, as_text, as_store])
def test_a_certificate_is_shown_whatever_form_it_has(
    secured: Secured, tmp_path: Path, form: Callable[[Secured, Path], Options]
) -> None:
    assert asked(secured, form(secured, tmp_path)) == ErrorCode.NONE


@pytest.mark.skipif(not hasattr(os, "memfd_create"), reason="the system has no files in memory")
@pytest.mark.parametrize("form", [as_text, as_store])
def test_a_key_is_not_written_to_a_disk(
    secured: Secured,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    form: Callable[[Secured, Path], Options],
) -> None:
    options = form(secured, tmp_path)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "absent"))

    assert ConnectionSecurity({"security.protocol": "ssl", **options}).context is not None
    opened = [os.readlink(file) for file in Path("/proc/self/fd").iterdir() if file.is_symlink()]
    assert not any("certificate" in name for name in opened)


def test_a_key_is_readable_where_there_are_no_files_in_memory(
    secured: Secured, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delattr(os, "memfd_create", raising=False)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))

    assert asked(secured, as_text(secured, tmp_path)) == ErrorCode.NONE
    assert list(tmp_path.iterdir()) == []


def test_who_shows_none_is_nobody(secured: Secured) -> None:
    options = {"ssl.ca.location": str(secured.authority)}

    assert asked(secured, options) == ErrorCode.TOPIC_AUTHORIZATION_FAILED


def test_a_store_with_another_password_is_named_without_it(secured: Secured, tmp_path: Path) -> None:
    options = as_store(secured, tmp_path) | {"ssl.keystore.password": "not-it"}

    with pytest.raises(ClientError, match=r"ssl\.keystore\.location cannot be used") as refused:
        asked(secured, options)
    assert "not-it" not in str(refused.value)


def test_an_endpoint_that_is_shown_does_not_show_its_password() -> None:
    assert "hunter2" not in repr(Endpoint("127.0.0.1:9092", {"sasl.password": "hunter2"}))
