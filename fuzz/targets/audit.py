"""Reading an audit log: lines that anybody may have damaged, and the times that people type."""

import json
import random

from fuzz.harness import Target
from penstock.cli.audit import entries_in, moment_of, row_of
from penstock.cli.broker_options import InvalidOption
from penstock.cli.output import printable
from penstock.security.audit.entry import AuditDecision, AuditEntry, entry_line

NAMES = ("User:alice", "User:\x1b[2J\u202e", "User:" + "x" * 300, "")


def a_log(rng: random.Random) -> bytes:
    """Some lines of a log."""
    return b"".join(entry_line(_entry(rng), 1) for _ in range(rng.randint(1, 4)))


def _entry(rng: random.Random) -> AuditEntry:
    kind = rng.choice((None, "topic", "user"))
    return AuditEntry(
        rng.randrange(2**41),
        rng.choice(NAMES),
        "127.0.0.1",
        "kafka",
        rng.choice(NAMES),
        rng.choice(("CreateTopics", "SaslAuthenticate")),
        rng.choice(("create", "login")),
        kind,
        None if kind is None else rng.choice(NAMES),
        rng.choice(list(AuditDecision)),
        rng.choice((None, "TOPIC_AUTHORIZATION_FAILED")),
        details=tuple(rng.sample(NAMES, rng.randint(0, 3))),
        times=rng.randint(1, 99),
        last_ms=rng.choice((None, 2**40)),
    )


def search(content: bytes) -> None:
    """Every way to search a log; what is shown moves nobody's cursor."""
    lines = content.splitlines(keepends=True)
    for refused in (False, True):
        for user, first in ((None, None), ("alice", None), (None, "2020-01-01T00:00:00.000Z")):
            for entry, line in entries_in(lines, user, first, refused=refused):
                assert json.loads(line) == entry or not line.isascii()
                assert all(printable(cell).isprintable() for cell in row_of(entry))


def a_time(rng: random.Random) -> bytes:
    texts = ("2030-01-01T12:00:00Z", "2030-01-01", "2030-01-01T12:00:00+02:00", "30m", "2h", "1d", "90s")
    return rng.choice(texts).encode()


def read_time(data: bytes) -> None:
    found = moment_of(data.decode("utf-8", "replace"))
    assert len(found) == len("2030-01-01T12:00:00.000Z")


# A line becomes a dictionary, a row and its cells.
TARGETS = (
    Target("audit.lines", a_log, search, (), 512),
    Target("audit.since", a_time, read_time, (InvalidOption,)),
)
