"""How long `penstock.testing.broker()` takes to start and to end, on a thread and in a process.

$ python -m benchmarks.broker_starts --starts 100

The first start of each kind is told apart: it imports the broker, and starts the fork server. A start
ends when a Kafka client may connect.
"""

import argparse
import json
import os
import statistics
import time

from penstock.testing import broker


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--starts", type=int, default=100)
    starts = parser.parse_args().starts
    figures = {
        "load": os.getloadavg()[0],
        "process": _measured(False, starts),
        "thread": _measured(True, starts),
    }
    print(json.dumps(figures, indent=2))


def _measured(in_process: bool, starts: int) -> dict[str, float]:
    began, took_ms, ended_ms = 0.0, [], []
    for _ in range(starts + 1):
        began = time.perf_counter()
        with broker(in_process=in_process):
            took_ms.append(1e3 * (time.perf_counter() - began))
            began = time.perf_counter()
        ended_ms.append(1e3 * (time.perf_counter() - began))
    first, *others = took_ms
    return {
        "first_ms": round(first, 1),
        **{f"start_{name}": value for name, value in _spread(others).items()},
        **{f"end_{name}": value for name, value in _spread(ended_ms[1:]).items()},
    }


def _spread(values: list[float]) -> dict[str, float]:
    cuts = statistics.quantiles(values, n=100, method="inclusive")
    return {"p50_ms": round(cuts[49], 1), "p99_ms": round(cuts[98], 1), "max_ms": round(max(values), 1)}


if __name__ == "__main__":
    main()
