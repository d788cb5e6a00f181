"""`python -m fuzz`: one line per target, exit 1 when any input failed."""

import argparse
import faulthandler
import resource
import sys
from pathlib import Path

from fuzz.harness import Outcome, Target, fuzz, replay
from fuzz.targets import all_targets

FAILURES = Path("build/fuzz")
# A net for what is not counted: the codecs allocate outside Python's heap.
ADDRESS_SPACE_ALLOWANCE_BYTES = 1 << 30
STUCK_AFTER_SECONDS = 60


def main(arguments: list[str]) -> int:
    """Fuzz what the command line names; 0 when nothing was found."""
    parser = argparse.ArgumentParser(prog="python -m fuzz", description="Fuzz the parsers.")
    parser.add_argument(
        "--target", action="append", help="only targets whose name starts so; may be repeated"
    )
    parser.add_argument("--seconds", type=float, default=30.0, help="per target (default 30)")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--replay", type=Path, help="run one saved input (hex) instead")
    options = parser.parse_args(arguments)
    targets = [t for t in all_targets() if not options.target or t.name.startswith(tuple(options.target))]
    if not targets:
        names = "\n  ".join(t.name for t in all_targets())
        print(f"no such target; there are\n  {names}", file=sys.stderr)
        return 2
    _limit_address_space()
    if options.replay is not None:
        return _replay(targets, options.replay)
    failed = [target.name for target in targets if not _passes(target, options.seconds, options.seed)]
    if failed:
        print(f"{len(failed)} of {len(targets)} targets failed: {', '.join(failed)}")
    return 1 if failed else 0


def _passes(target: Target, seconds: float, seed: int) -> bool:
    # A loop inside a codec never comes back to see the timer's signal.
    faulthandler.dump_traceback_later(seconds + STUCK_AFTER_SECONDS, exit=True)
    outcome = fuzz(target, seed=seed, seconds=seconds)
    faulthandler.cancel_dump_traceback_later()
    rate = outcome.inputs / max(outcome.seconds, 1e-9)
    verdict = "ok" if outcome.failing_input is None else "FAILED"
    print(f"{target.name:36} {outcome.inputs:>10} inputs {rate:>9.0f}/s  {verdict}", flush=True)
    if outcome.failing_input is not None:
        _save(outcome, outcome.failing_input, seed)
    return outcome.failing_input is None


def _save(outcome: Outcome, data: bytes, seed: int) -> None:
    FAILURES.mkdir(parents=True, exist_ok=True)
    path = FAILURES / f"{outcome.target}.hex"
    path.write_text(data.hex() + "\n")
    print(f"  {outcome.reason}\n  seed {seed}, input {outcome.inputs}, saved as {path}\n  {data.hex()}")


def _replay(targets: list[Target], path: Path) -> int:
    data = bytes.fromhex(path.read_text())
    complaints = {target.name: replay(target, data) for target in targets}
    for name, complaint in complaints.items():
        print(f"{name:36} {complaint or 'ok'}")
    return 1 if any(complaints.values()) else 0


def _limit_address_space() -> None:
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    limit_bytes = pages * resource.getpagesize() + ADDRESS_SPACE_ALLOWANCE_BYTES
    resource.setrlimit(resource.RLIMIT_AS, (limit_bytes, resource.getrlimit(resource.RLIMIT_AS)[1]))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
