"""What may be written while nodes of an older version are in the cluster."""

from dataclasses import dataclass, field
from typing import Annotated, ClassVar

import msgspec
import pytest

from penstock.core.metadata import (
    METADATA_VERSION,
    FeatureLevelSet,
    FeatureUpdate,
    LevelTooHigh,
    Ok,
    UpdateFeatures,
    UpgradeType,
    decode_fact,
    encode_fact,
    levels,
    machine,
    snapshot,
)
from penstock.core.metadata.levels import (
    HIGHEST_LEVEL,
    LOWEST_LEVEL,
    StoredStruct,
    command_level,
    has_newer_fields,
    since,
    since_level,
    stored_level,
    stored_row,
)
from penstock.core.model import ApiError, ErrorKind
from tests.unit.core.metadata.clusters import cluster, perform

NEXT = HIGHEST_LEVEL + 1


class Row(StoredStruct, frozen=True, tag="row"):
    number: int
    name: str = ""


class LongerRow(StoredStruct, frozen=True, tag="row"):
    number: int
    name: str = ""
    comment: Annotated[str, since(NEXT)] = ""
    colour: Annotated[str, since(NEXT + 1)] = "none"


class Table(StoredStruct, frozen=True, tag="table"):
    rows: tuple[LongerRow, ...] = ()


class NewRow(StoredStruct, frozen=True, tag="new_row"):
    SINCE: ClassVar[int] = NEXT
    number: int


@dataclass(frozen=True, slots=True)
class Ask:
    what: str
    why: str = field(default="", metadata=since_level(NEXT))


@dataclass(frozen=True, slots=True)
class AskAnew:
    SINCE: ClassVar[int] = NEXT
    what: str


def test_a_new_field_that_is_not_set_is_not_written() -> None:
    stored = msgspec.msgpack.encode(stored_row(LongerRow(1)))

    assert msgspec.msgpack.decode(stored, type=Row) == Row(1)
    assert msgspec.msgpack.decode(stored, type=LongerRow) == LongerRow(1)
    assert stored == msgspec.msgpack.encode(Row(1)), (
        "a field that was always there is written with its default"
    )


def test_a_new_field_that_is_set_is_written_with_those_before_it() -> None:
    assert stored_row(LongerRow(1, "n", "", "red")) == ["row", 1, "n", "", "red"]
    assert stored_row(Table((LongerRow(1, "n", "c"),))) == ["table", (["row", 1, "n", "c"],)]


def test_the_level_of_a_fact_is_that_of_the_newest_thing_in_it() -> None:
    assert stored_level(Table((LongerRow(1, "n"),))) == LOWEST_LEVEL
    assert stored_level(Table((LongerRow(1), LongerRow(2, "", "c")))) == NEXT
    assert stored_level(LongerRow(1, colour="red")) == NEXT + 1
    assert stored_level(NewRow(1)) == NEXT


def test_only_facts_with_newer_fields_are_taken_apart() -> None:
    assert has_newer_fields(Table)
    assert not has_newer_fields(Row)


def test_the_level_of_a_command_is_that_of_the_newest_field_in_use() -> None:
    assert command_level(Ask("x")) == LOWEST_LEVEL
    assert command_level(Ask("x", "y")) == NEXT
    assert command_level(AskAnew("x")) == NEXT


def test_the_level_of_a_newer_version_is_no_damage() -> None:
    content = encode_fact(FeatureLevelSet(METADATA_VERSION, NEXT))

    with pytest.raises(LevelTooHigh, match=f"metadata.version {NEXT}.*up to {HIGHEST_LEVEL}"):
        decode_fact(content)


def test_a_snapshot_says_its_level_before_anything_that_is_newer() -> None:
    facts = list(snapshot(cluster(2).image))

    at = facts.index(FeatureLevelSet(METADATA_VERSION, HIGHEST_LEVEL))
    before = [type(fact).__name__ for fact in facts[:at]]
    assert before == ["ClusterIdSet", "FeatureLevelSet", "FeatureLevelSet"]


def test_a_command_of_a_newer_level_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine, "HIGHEST_LEVEL", NEXT)

    error = machine.problem_with_level(AskAnew("x"), HIGHEST_LEVEL)  # type: ignore[arg-type]

    assert error is not None
    assert error.kind is ErrorKind.INVALID_FEATURE_LEVEL
    assert error.detail == f"AskAnew needs metadata.version {NEXT}, and the cluster is at {HIGHEST_LEVEL}"
    assert machine.problem_with_level(AskAnew("x"), NEXT) is None  # type: ignore[arg-type]


def test_a_fact_that_others_cannot_read_is_a_bug_of_its_decision(monkeypatch: pytest.MonkeyPatch) -> None:
    deciding = cluster(1)
    monkeypatch.setattr(machine, "HIGHEST_LEVEL", NEXT)
    monkeypatch.setattr(FeatureLevelSet, "SINCE", NEXT, raising=False)
    down = FeatureUpdate("transaction.version", 1, UpgradeType.SAFE_DOWNGRADE)

    with pytest.raises(AssertionError, match="cannot read"):
        perform(deciding, UpdateFeatures((down,)))


@pytest.mark.parametrize("direction", [UpgradeType.SAFE_DOWNGRADE, UpgradeType.UNSAFE_DOWNGRADE])
def test_metadata_never_goes_back(monkeypatch: pytest.MonkeyPatch, direction: UpgradeType) -> None:
    upgraded = cluster()
    upgraded.apply(FeatureLevelSet(METADATA_VERSION, NEXT))
    monkeypatch.setattr(levels, "HIGHEST_LEVEL", NEXT)

    reply = perform(upgraded, UpdateFeatures((FeatureUpdate(METADATA_VERSION, HIGHEST_LEVEL, direction),)))

    assert isinstance(reply, ApiError)
    assert "never goes back" in reply.detail
    assert perform(upgraded, UpdateFeatures((FeatureUpdate("group.version", 0, direction),))) == Ok()
