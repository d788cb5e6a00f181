"""Envelopes under master keys, and which keys a node has."""

from uuid import UUID

import pytest

from penstock.core.model import PartitionIndex, TopicId
from penstock.storage.sealing import BrokenEnvelope, KeyUnavailable, KeyVault, MasterKeys
from penstock.storage.sealing.vault import is_envelope, master_key_of

CONTENT = b"keys of a log"


class FixedKeys:
    """A key service with the keys that it was given."""

    def __init__(self, *names: str) -> None:
        self.names = names

    def load(self) -> MasterKeys:
        return MasterKeys({name: name.encode().ljust(32, b"!") for name in self.names}, self.names[-1])

    def rotate(self, now_ms: int) -> MasterKeys:
        self.names = (*self.names, f"of {now_ms}")
        return self.load()


def vault_of(*names: str) -> KeyVault:
    service = FixedKeys(*names)
    numbers = iter(range(1, 255))
    return KeyVault(service, service.load(), lambda count: bytes([next(numbers)]) * count)


def test_an_envelope_names_its_key_and_opens_under_it() -> None:
    vault = vault_of("old", "new")

    envelope = vault.close_envelope(CONTENT, b"log 1")

    assert is_envelope(envelope)
    assert master_key_of(envelope) == "new"
    assert CONTENT not in envelope
    assert vault.open_envelope(envelope, b"log 1") == CONTENT


def test_an_envelope_for_something_else_does_not_open() -> None:
    vault = vault_of("m")

    with pytest.raises(BrokenEnvelope):
        vault.open_envelope(vault.close_envelope(CONTENT, b"log 1"), b"log 2")


def test_an_envelope_that_was_changed_anywhere_does_not_open() -> None:
    vault = vault_of("m")
    envelope = vault.close_envelope(CONTENT, b"log")

    for position in range(len(envelope)):
        changed = bytearray(envelope)
        changed[position] ^= 1
        with pytest.raises((BrokenEnvelope, KeyUnavailable)):
            vault.open_envelope(bytes(changed), b"log")
    for end in range(len(envelope)):
        with pytest.raises((BrokenEnvelope, KeyUnavailable)):
            vault.open_envelope(envelope[:end], b"log")


def test_a_key_that_is_not_there_is_named_and_the_envelope_is_not_called_broken() -> None:
    envelope = vault_of("lost").close_envelope(CONTENT, b"log")

    with pytest.raises(KeyUnavailable, match="'lost'"):
        vault_of("m").open_envelope(envelope, b"log")


def test_a_rotation_brings_a_key_and_what_is_under_the_old_one_still_opens() -> None:
    vault = vault_of("old")
    before = vault.close_envelope(CONTENT, b"log")

    assert vault.adopt(vault.service.rotate(7))
    assert not vault.adopt(vault.service.load())

    assert master_key_of(vault.close_envelope(CONTENT, b"log")) == "of 7"
    assert vault.open_envelope(before, b"log") == CONTENT


def test_keys_that_were_asked_for_before_a_rotation_do_not_undo_it_and_open_what_they_open() -> None:
    vault = vault_of("old")
    former, others = vault.keys.current, vault_of("other", "old")
    under_other = vault_of("other").close_envelope(CONTENT, b"log")
    vault.adopt(vault.service.rotate(7))

    assert not vault.adopt_read(others.keys, former)

    assert vault.keys.current == "of 7"
    assert vault.open_envelope(under_other, b"log") == CONTENT
    assert vault.adopt_read(FixedKeys("old", "of 7", "newer").load(), vault.keys.current)
    assert vault.keys.current == "newer"


def test_keys_that_are_gone_at_their_source_stay_until_the_node_ends() -> None:
    vault = vault_of("old")
    before = vault.close_envelope(CONTENT, b"log")

    vault.adopt(FixedKeys("new").load())

    assert vault.open_envelope(before, b"log") == CONTENT


def test_another_key_under_a_name_that_is_known_is_refused_and_changes_nothing() -> None:
    vault = vault_of("main")
    before, others = vault.keys, []
    vault.on_other_key = lambda: others.append(vault.keys.current)

    for current in ("main", "new"):
        with pytest.raises(KeyUnavailable, match="another key that is called 'main'"):
            vault.adopt(MasterKeys({"main": b"B" * 32, "new": bytes(32)}, current))

    assert vault.keys == before
    assert others == []
    envelope = vault.close_envelope(CONTENT, b"log")
    assert vault_of("main").open_envelope(envelope, b"log") == CONTENT


@pytest.mark.parametrize(
    ("keys", "reason"),
    [
        (MasterKeys({"m": b"short"}, "m"), "has 5 bytes, not 32"),
        (MasterKeys({"m": bytes(32)}, "other"), "'other' is not there"),
        (MasterKeys({"m" * 201: bytes(32)}, "m" * 201), "1 to 200 bytes"),
    ],
)
def test_keys_that_cannot_be_used_are_refused(keys: MasterKeys, reason: str) -> None:
    with pytest.raises(KeyUnavailable, match=reason):
        vault_of("m").adopt(keys)


def test_logs_differ_in_what_their_seals_cover_and_names_of_keys_are_all_that_is_shown() -> None:
    vault, topic = vault_of("m"), TopicId(UUID(int=7))

    contexts = {vault.of(topic, PartitionIndex(number)).context for number in range(3)}

    assert len(contexts) == 3
    assert repr(vault.keys) == "MasterKeys(m; current m)"
