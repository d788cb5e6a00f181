"""The line of the audit log that the documentation shows."""

import re
from datetime import datetime
from pathlib import Path

from penstock.security import Principal, Session
from penstock.security.audit import AuditDecision
from penstock.security.audit.entry import entry_line, entry_of

PAGE = Path(__file__).parents[4] / "docs" / "operations" / "security.md"


def test_the_example_is_a_line_as_it_is_written() -> None:
    found = re.search(r"```json\n(\{.*\})\n```", PAGE.read_text())
    session = Session(Principal("User", "admin"), "SASL_SSL", "penstock", "10.0.0.7", "User:admin")
    time_ms = round(datetime.fromisoformat("2026-11-18T08:20:33.443+00:00").timestamp() * 1_000)

    line = entry_line(
        entry_of(
            session,
            time_ms,
            "AlterUserScramCredentials",
            "alter",
            ("cluster", "kafka-cluster"),
            AuditDecision.ALLOWED,
            correlation=5,
            details=("set scram_sha_512 of alice",),
        ),
        1,
    )

    assert found is not None
    assert found[1] == line.decode().rstrip()
