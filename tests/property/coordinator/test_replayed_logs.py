"""Whatever a machine has been through, its log says the same as it does."""

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.unit.broker.coordinator.lock_machine import AcquireLock, Holder, LockBench, ReleaseLock

NAMES = st.sampled_from(["door", "gate", "window"])
OWNERS = st.sampled_from(["a", "b"])
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("acquire"), NAMES, OWNERS),
        st.tuples(st.just("wait"), NAMES, OWNERS),
        st.tuples(st.just("release"), NAMES, OWNERS),
        st.tuples(st.just("pass"), st.integers(0, 15_000)),
        st.tuples(st.just("restart")),
    ),
    max_size=60,
)


@settings(max_examples=60, deadline=None)
@given(STEPS)
def test_a_machine_that_is_rebuilt_from_its_log_is_the_one_that_wrote_it(
    steps: list[tuple[object, ...]],
) -> None:
    # Small enough that most runs rewrite the log, some of them several times.
    bench = LockBench(rewrite_records_min=8).start()
    for step in steps:
        match step:
            case ("acquire" | "wait" as how, str(name), str(owner)):
                replies = bench.submit(AcquireLock, name, owner=owner, wait=how == "wait")
                bench.settle()
                if replies == [Holder(owner)]:
                    assert bench.holder(name) == owner
            case ("release", str(name), str(owner)):
                bench.ask(ReleaseLock, name, owner=owner)
            case ("pass", int(duration_ms)):
                bench.timers.pass_ms(duration_ms)
                bench.settle()
            case _:
                before = bench.coordinator.machine.held
                bench = bench.restarted()
                assert bench.coordinator.machine.held == before
        assert bench.coordinator.machine.size() == len(list(bench.coordinator.machine.snapshot()))

    assert bench.restarted().coordinator.machine.held == bench.coordinator.machine.held
