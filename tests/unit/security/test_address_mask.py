"""Addresses as they may be shown."""

import pytest

from penstock.security.address_mask import mask_address
from penstock.security.options import OAuthOptions, SecurityOptions


@pytest.mark.parametrize(
    ("address", "shown"),
    [
        ("keys/jwks.json", "keys/jwks.json"),
        ("https://issuer.example/keys", "https://issuer.example/keys"),
        ("https://alice:hunter2@issuer.example:8443/keys", "https://***@issuer.example:8443/keys"),
        ("https://alice:hun/ter2@issuer.example/keys", "https://***@issuer.example/keys"),
        ("https://alice:hun@ter2@issuer.example/keys", "https://***@issuer.example/keys"),
        ("https://issuer.example/keys?token=hunter2", "https://issuer.example/keys?***"),
        ("https://issuer.example/keys#hunter2", "https://issuer.example/keys?***"),
    ],
)
def test_an_address_is_shown_without_what_may_be_a_secret(address: str, shown: str) -> None:
    assert mask_address(address) == shown


def test_a_login_in_the_address_of_keys_is_refused_without_showing_it() -> None:
    def problem(jwks: str) -> str | None:
        return SecurityOptions(oauth=OAuthOptions(jwks)).problem_with(())

    refused = problem("https://alice:hunter2@issuer.example/keys")
    assert refused is not None
    assert "hunter2" not in refused
    assert problem("https://issuer.example/keys?for=a@b") is None
    assert problem("keys@home/jwks.json") is None
