"""Subscriptions by pattern: regular expressions with the syntax and the promises of RE2.

A pattern comes from a client and is matched with every topic name, so it must not be able to take
exponential time: RE2 has no backreferences and no look-around, and its time is linear in the name's
length. Linear in the pattern's size too, though; so the search pauses after a certain amount of work,
counted and not timed, and a caller can go on in another turn of the loop.

A name matches as a whole, as Kafka has it.
"""

from collections.abc import Callable, Generator, Hashable, Sequence
from typing import Any, NamedTuple, TypeAlias

from penstock.core.model import PenstockError

PATTERN_BYTES_MAX = 1_000
# What a compiled pattern may take: beyond it RE2 is slower, and refuses what is larger still.
MEMORY_BYTES_MAX = 1 << 20
# Characters of names times instructions of the program: about ten milliseconds at the very worst.
WORK_PER_STEP = 250_000
# Rights to see so many topics are looked at between two pauses.
RIGHTS_PER_STEP = 250
PatternSteps: TypeAlias = Generator[None, None, tuple[str, ...]]


class TopicRights(NamedTuple):
    """Which topics a member may see. With equal keys it may see the same ones."""

    key: Hashable
    may_see: Callable[[str], bool]


def visible(names: Sequence[str], rights: TopicRights) -> PatternSteps:
    """The names that may be seen, in their order; pauses now and then."""
    found: list[str] = []
    for count, name in enumerate(names, 1):
        if rights.may_see(name):
            found.append(name)
        if count % RIGHTS_PER_STEP == 0:
            yield
    return tuple(found)


class InvalidPattern(PenstockError):
    """The text is not a regular expression that RE2 takes."""


class TopicPattern:
    """A compiled pattern."""

    __slots__ = ("_match", "_size", "text")

    def __init__(self, text: str) -> None:
        # Imported where it is used: most nodes never meet a pattern.
        import re2

        if len(text.encode()) > PATTERN_BYTES_MAX:
            raise InvalidPattern(f"a pattern has at most {PATTERN_BYTES_MAX} bytes")
        options: Any = re2.Options()
        options.max_mem = MEMORY_BYTES_MAX
        options.log_errors = False
        options.never_capture = True
        try:
            self._size = max(1, re2.compile(text, options=options).programsize)
            # A set of one: its matches carry no positions, which is ten times faster.
            alone = re2.Set.FullMatchSet(options)
            alone.Add(text)
            alone.Compile()
        except re2.error as error:
            reason = error.args[0] if error.args else ""
            words = reason.decode(errors="replace") if isinstance(reason, bytes) else str(reason)
            raise InvalidPattern(words or "it cannot be compiled") from None
        self.text = text
        self._match = alone.Match

    def matches(self, name: str) -> bool:
        return bool(self._match(name))

    def search(self, names: Sequence[str]) -> PatternSteps:
        """The names that match, in their order; pauses now and then."""
        found: list[str] = []
        work = 0
        for name in names:
            if self._match(name):
                found.append(name)
            work += len(name) * self._size
            if work >= WORK_PER_STEP:
                work = 0
                yield
        return tuple(found)
