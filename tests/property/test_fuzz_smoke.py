"""A short run of every fuzz target, the same each time; `make fuzz` is the long one."""

import pytest

from fuzz.harness import Target, fuzz
from fuzz.targets import all_targets

INPUTS_PER_TARGET = 400
SEED = 1


@pytest.mark.parametrize("target", all_targets(), ids=lambda target: target.name)
def test_damaged_input_is_refused_and_nothing_else(target: Target) -> None:
    outcome = fuzz(target, seed=SEED, count=INPUTS_PER_TARGET)

    assert outcome.reason == "", f"input {(outcome.failing_input or b'').hex()}"
    assert outcome.inputs == INPUTS_PER_TARGET


def broken(run: object, *, factor: int = 64) -> Target:
    assert callable(run)
    return Target("broken", lambda rng: rng.randbytes(20), run, (ValueError,), factor)


def refuse_everything(data: bytes) -> None:
    raise ValueError("no")


def raise_the_wrong_error(data: bytes) -> None:
    if len(data) < 20:
        raise KeyError("oops")


def allocate_what_the_bytes_say(data: bytes) -> None:
    if data[:1] == b"\x7f":
        bytearray(data[0] << 20)


def never_return(data: bytes) -> None:
    while True:
        try:
            while len(data) != 20:
                pass
            break
        except Exception:
            continue


@pytest.mark.parametrize(
    ("run", "complaint"),
    [
        (refuse_everything, "refused a valid input"),
        (raise_the_wrong_error, "raised KeyError"),
        (allocate_what_the_bytes_say, "made it allocate"),
        (never_return, "s of CPU"),
    ],
)
def test_the_harness_finds_a_parser_that_misbehaves(run: object, complaint: str) -> None:
    outcome = fuzz(broken(run), seed=SEED, count=20_000)

    assert complaint in outcome.reason
    assert outcome.failing_input is not None


def test_even_the_shortest_run_tries_something() -> None:
    outcome = fuzz(broken(refuse_everything), seed=SEED, seconds=0)

    assert "refused a valid input" in outcome.reason


def test_the_same_seed_finds_the_same_input() -> None:
    first = fuzz(broken(raise_the_wrong_error), seed=3, count=1_000)
    second = fuzz(broken(raise_the_wrong_error), seed=3, count=1_000)

    assert first.failing_input == second.failing_input
    assert first.inputs == second.inputs
