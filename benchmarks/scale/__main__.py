"""Measure a large cluster and write the figures to one JSON file."""

import argparse
import json
import sys
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

from benchmarks.micro.__main__ import RESULTS, commit, machine
from benchmarks.scale import changes, fanout, gateway, image, quorum
from benchmarks.scale.members import Meter
from benchmarks.scale.shape import Shape

Figures = dict[str, float]


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.scale", description=__doc__)
    parser.add_argument("--brokers", type=int, default=300)
    parser.add_argument("--topics", type=int, default=1_000)
    parser.add_argument("--partitions", type=int, default=50, help="per topic")
    parser.add_argument("--members", type=int, default=100, help="members of the quorum in `fanout`")
    parser.add_argument("--only", nargs="+", help="run these parts only")
    parser.add_argument("--output", type=Path, help="where the JSON goes (bench-results/scale-COMMIT.json)")
    arguments = parser.parse_args()
    shape = Shape(arguments.brokers, arguments.topics, arguments.partitions)
    meter = Meter()
    parts: dict[str, Callable[[], Figures]] = {
        "image": lambda: image.run(shape),
        "changes": lambda: changes.run(shape),
        "quorum": lambda: quorum.run(shape, meter),
        "fanout": lambda: fanout.run(arguments.members, meter),
        "gateway": lambda: gateway.run(shape),
    }
    results: dict[str, Figures] = {}
    for name in arguments.only or parts:
        print(f"{name} …", file=sys.stderr, flush=True)
        results[name] = parts[name]()
        for key, value in results[name].items():
            print(f"{name:9} {key:40} {value:14.3f}", flush=True)
    output = arguments.output or RESULTS / f"scale-{commit()}.json"
    output.parent.mkdir(parents=True, exist_ok=True)
    now = datetime.now(UTC).isoformat(timespec="seconds")
    asked = {"brokers": shape.brokers, "topics": shape.topics, "partitions_per_topic": shape.partitions}
    report = {"commit": commit(), "when": now, "machine": machine(), "shape": asked, "results": results}
    output.write_text(json.dumps(report, indent=1) + "\n")
    print(f"written to {output}", file=sys.stderr)


if __name__ == "__main__":
    main()
