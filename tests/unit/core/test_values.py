"""Frozen dataclasses made here are those of the standard library."""

import dataclasses
import pickle
from collections.abc import Callable
from dataclasses import FrozenInstanceError, field, replace
from typing import Any

import pytest

from penstock.core import values


def every_kind(dataclass: Callable[..., Any]) -> Any:
    @dataclass(frozen=True, slots=True)
    class Kind:
        """A value."""

        name: str
        hidden: int = field(default=0, compare=False, repr=False)
        rows: list[int] = field(default_factory=list, compare=False)

    return Kind


@values.dataclass(frozen=True, slots=True)
class Command:
    """A value with a check."""

    group: str
    size: int = 1

    def __post_init__(self) -> None:
        if self.size < 0:
            raise ValueError(self.size)


@values.dataclass(frozen=True, slots=True, kw_only=True)
class Join(Command):
    """A value with the fields of another, and more."""

    member: str


@values.dataclass(frozen=True, slots=True)
class Nothing:
    """A value without fields."""


@values.dataclass(frozen=True, slots=True)
class Loose:
    """A value that has its own idea of equality."""

    name: str

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Loose) and other.name.lower() == self.name.lower()

    def __hash__(self) -> int:
        return hash(self.name.lower())


OURS, THEIRS = every_kind(values.dataclass), every_kind(dataclasses.dataclass)


@pytest.mark.parametrize("arguments", [("a",), ("a", 1), ("a", 2, [3])])
def test_a_value_looks_and_compares_like_one_of_the_standard_library(arguments: tuple[Any, ...]) -> None:
    ours, theirs = OURS(*arguments), THEIRS(*arguments)

    assert repr(ours) == repr(theirs)
    assert dataclasses.asdict(ours) == dataclasses.asdict(theirs)
    assert (ours == OURS("a")) == (theirs == THEIRS("a"))
    assert (ours == OURS("b")) == (theirs == THEIRS("b"))
    assert hash(ours) == hash(theirs)
    assert OURS.__match_args__ == THEIRS.__match_args__
    assert OURS.__slots__ == THEIRS.__slots__


def test_values_of_two_classes_are_not_equal() -> None:
    assert Join(group="g", member="m") != Command("g")
    assert Nothing() == Nothing()


def test_every_value_has_a_fresh_default() -> None:
    assert OURS("a").rows is not OURS("a").rows


def test_a_value_cannot_be_changed() -> None:
    value: Any = Command("g")

    with pytest.raises(FrozenInstanceError):
        value.group = "h"
    with pytest.raises(FrozenInstanceError):
        del value.group
    with pytest.raises(FrozenInstanceError):
        value.other = 1


def test_a_value_is_checked_when_it_is_made_and_when_it_is_replaced() -> None:
    with pytest.raises(ValueError, match="-1"):
        Command("g", -1)
    with pytest.raises(ValueError, match="-1"):
        replace(Join(group="g", member="m"), size=-1)


def test_arguments_are_required_and_some_are_named() -> None:
    make: Any = Join

    assert make("g", 2, member="m") == Join(group="g", size=2, member="m")
    with pytest.raises(TypeError):
        make("g", 2, "m")
    with pytest.raises(TypeError):
        make("g")


def test_a_value_survives_pickling() -> None:
    value = Join(group="g", size=3, member="m")

    assert pickle.loads(pickle.dumps(value)) == value


def test_what_a_class_defines_itself_is_kept() -> None:
    assert Loose("A") == Loose("a")
    assert hash(Loose("A")) == hash(Loose("a"))


def test_a_field_that_init_does_not_take_is_refused() -> None:
    decorate: Callable[..., Any] = values.dataclass(frozen=True, slots=True)

    class Computed:
        """A value with a field that nobody sets."""

        size: int = field(init=False)

    with pytest.raises(AssertionError):
        decorate(Computed)


def test_a_dataclass_of_the_standard_library_may_inherit() -> None:
    @dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
    class Leave(Command):
        reason: str

    left = Leave(group="g", reason="tired")

    assert (left.size, left.reason) == (1, "tired")
    with pytest.raises(FrozenInstanceError):
        left.reason = "other"  # type: ignore[misc]
