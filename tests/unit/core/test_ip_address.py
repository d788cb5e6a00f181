"""Two ways to write an address are one address."""

import pytest

from penstock.core.ip_address import canonical_address


@pytest.mark.parametrize(
    ("written", "canonical"),
    [
        ("10.0.0.7", "10.0.0.7"),
        ("::ffff:10.0.0.7", "10.0.0.7"),
        ("::FFFF:a00:7", "10.0.0.7"),
        ("0:0:0:0:0:ffff:10.0.0.7", "10.0.0.7"),
        ("2001:DB8::1", "2001:db8::1"),
        ("2001:0db8:0000::0001", "2001:db8::1"),
        ("::1", "::1"),
        ("fe80::1%eth0", "fe80::1%eth0"),
        ("*", "*"),
        ("host.example", "host.example"),
        ("not:an:address", "not:an:address"),
        ("", ""),
    ],
)
def test_an_address_is_written_in_one_way(written: str, canonical: str) -> None:
    assert canonical_address(written) == canonical
