import pytest

from penstock.config import SETTINGS, ListenAddress, VoterAddress
from penstock.config.environment import expand


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("127.0.0.1:9092", ListenAddress("127.0.0.1", 9092)),
        (":8080", ListenAddress("", 8080)),
        ("*:8080", ListenAddress("", 8080)),
        ("[::1]:9092", ListenAddress("::1", 9092)),
        ("broker-1.example.org:0", ListenAddress("broker-1.example.org", 0)),
    ],
)
def test_addresses_are_read_and_written_back(text: str, address: ListenAddress) -> None:
    assert ListenAddress.parse(text) == address
    assert ListenAddress.parse(str(address)) == address


@pytest.mark.parametrize(
    "text", ["", "9092", "host", "host:", "host:x", "host:65536", "::1:9092", "[::1:9092", "a b:1"]
)
def test_what_is_not_an_address_is_refused(text: str) -> None:
    with pytest.raises(ValueError):  # noqa: PT011 - the caller words the complaint
        ListenAddress.parse(text)


@pytest.mark.parametrize(
    ("host", "loopback"),
    [
        ("127.0.0.1", True),
        ("127.9.9.9", True),
        ("::1", True),
        ("localhost", True),
        ("", False),
        ("0.0.0.0", False),
        ("::", False),
        ("10.0.0.1", False),
        ("localhost.evil.example", False),
    ],
)
def test_only_addresses_of_this_machine_count_as_loopback(host: str, loopback: bool) -> None:
    assert ListenAddress(host, 1).is_loopback is loopback


def test_a_voter_is_a_node_id_at_an_address() -> None:
    assert VoterAddress.parse("2@[::1]:7000") == VoterAddress(2, ListenAddress("::1", 7000))
    assert str(VoterAddress.parse("1@a:7000")) == "1@a:7000"


@pytest.mark.parametrize("text", ["a:7000", "x@a:7000", "-1@a:7000", "1@:7000", "1@a"])
def test_what_is_not_a_voter_is_refused(text: str) -> None:
    with pytest.raises(ValueError):  # noqa: PT011 - the caller words the complaint
        VoterAddress.parse(text)


@pytest.mark.parametrize("key", SETTINGS)
def test_every_default_can_be_written_down_and_read_back(key: str) -> None:
    setting = SETTINGS[key]

    assert setting.read(setting.show(setting.default)) == setting.default


@pytest.mark.parametrize("key", SETTINGS)
def test_every_setting_says_what_it_means_and_what_is_allowed(key: str) -> None:
    assert SETTINGS[key].description.endswith(".")
    assert SETTINGS[key].allowed


@pytest.mark.parametrize(
    ("text", "expanded"),
    [
        ("${HOST:local}:${PORT:1}", "broker:1"),
        ("${EMPTY:default}", "default"),
        ("${UNSET:}", ""),
        ("$${HOST}", "${HOST}"),
        ("$HOST ${", "$HOST ${"),
        ("${UNSET:a:b}", "a:b"),
    ],
)
def test_references_are_replaced_from_the_environment(text: str, expanded: str) -> None:
    assert expand(text, {"HOST": "broker", "EMPTY": ""}) == expanded


def test_a_reference_without_default_needs_its_variable() -> None:
    with pytest.raises(KeyError, match="UNSET"):
        expand("a ${UNSET}", {})
