"""A client's keys in every form that librdkafka's tests read, and the variables by which they find them."""

from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    NoEncryption,
    PrivateFormat,
    load_pem_private_key,
    pkcs12,
)

from tests.compatibility.secured_node import CertificatePair

PASSWORD = "suite-password"
HIDDEN, OPEN = BestAvailableEncryption(PASSWORD.encode()), NoEncryption()


def write_assertion_keys(directory: Path) -> dict[str, str]:
    """A key that signs a client's assertions of who it is."""
    key = rsa.generate_private_key(65_537, 2_048)
    made = {
        "OAUTHBEARER_CLIENT_PRIVATE_KEY": key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, OPEN),
        "OAUTHBEARER_CLIENT_PRIVATE_KEY_ENCRYPTED": key.private_bytes(
            Encoding.PEM, PrivateFormat.PKCS8, HIDDEN
        ),
    }
    return _written(directory, made) | {"OAUTHBEARER_CLIENT_PRIVATE_KEY_PASSWORD": PASSWORD}


def write_certificates(directory: Path, pair: CertificatePair, authority: Path) -> dict[str, str]:
    """A client's certificate, its key, and the authority of the node, for tests of TLS."""
    key = load_pem_private_key(pair.key.read_bytes(), None)
    certificate, root = (
        x509.load_pem_x509_certificates(file.read_bytes())[0] for file in (pair.certificate, authority)
    )
    store = pkcs12.serialize_key_and_certificates(b"client", key, certificate, [root], HIDDEN)  # type: ignore[arg-type]
    made = {
        "SSL_pkcs": store,
        "SSL_pub_pem": certificate.public_bytes(Encoding.PEM),
        "SSL_pub_der": certificate.public_bytes(Encoding.DER),
        "SSL_priv_pem": key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, HIDDEN),
        "SSL_priv_der": key.private_bytes(Encoding.DER, PrivateFormat.PKCS8, OPEN),
        "SSL_ca_der": root.public_bytes(Encoding.DER),
        "SSL_all_cas_pem": root.public_bytes(Encoding.PEM),
    }
    return _written(directory, made) | {"SSL_password": PASSWORD, "SSL_client_auth": "none"}


def _written(directory: Path, made: dict[str, bytes]) -> dict[str, str]:
    for name, content in made.items():
        (directory / name).write_bytes(content)
    return {name: str(directory / name) for name in made}
