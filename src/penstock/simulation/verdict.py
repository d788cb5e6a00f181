"""The outcome of one run."""

import json
from dataclasses import asdict, dataclass


@dataclass(frozen=True, slots=True)
class Verdict:
    """What a run did and what was wrong with it. Everything in it follows from the seed."""

    seed: int
    anomalies: tuple[str, ...]
    # What clients asked for, and the records that they were promised.
    operations: int
    acknowledged: int
    events: int
    virtual_ms: int
    faults: dict[str, int]
    trace: str

    @property
    def passed(self) -> bool:
        return not self.anomalies

    def to_json(self) -> str:
        return json.dumps({"passed": self.passed, **asdict(self)})
