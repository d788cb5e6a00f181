"""Who gives way when a node keeps too much for its clients."""

from hypothesis import given
from hypothesis import strategies as st

from penstock.broker.client_shares import ClientShares, ShareLimits


class Bench:
    def __init__(self, entries_max: int = 100, weight_max: int = 100, client_weight_max: int = 80) -> None:
        self.evicted: list[str] = []
        self.idle: set[str] = set()
        limits = ShareLimits(entries_max, weight_max, client_weight_max)
        self.shares: ClientShares[str] = ClientShares(limits, self.evicted.append, self.idle.__contains__)


def test_the_client_that_holds_the_most_gives_way_to_one_that_holds_less() -> None:
    bench = Bench()
    for number in range(8):
        assert bench.shares.add("greedy", f"greedy-{number}", 10)
    assert bench.shares.add("other", "other-0", 20)

    assert bench.shares.add("modest", "modest-0", 15)

    assert bench.evicted == ["greedy-0", "greedy-1"]
    assert bench.shares.weight == 95


def test_a_client_that_would_hold_the_most_gives_way_itself() -> None:
    bench = Bench()
    assert bench.shares.add("other", "other-0", 40)
    assert bench.shares.add("greedy", "greedy-0", 20)
    assert bench.shares.add("greedy", "greedy-1", 40)

    assert not bench.shares.add("greedy", "greedy-2", 40)

    assert bench.evicted == []
    assert (bench.shares.weight, bench.shares.refusals) == (100, 1)


def test_a_heavy_entry_gives_way_to_a_light_one_of_the_same_client() -> None:
    bench = Bench()
    assert bench.shares.add("client", "light", 5)
    assert bench.shares.add("client", "heavy", 75)

    assert bench.shares.add("client", "new", 5)

    assert bench.evicted == ["heavy"]


def test_an_idle_entry_gives_way_to_any_other_of_the_same_client() -> None:
    bench = Bench(entries_max=2)
    assert bench.shares.add("client", "idle", 1)
    assert bench.shares.add("client", "busy", 1)
    assert not bench.shares.add("client", "new", 1)

    bench.idle.add("idle")

    assert bench.shares.add("client", "new", 1)
    assert bench.evicted == ["idle"]


def test_an_entry_that_is_used_is_not_the_oldest() -> None:
    bench = Bench(entries_max=3)
    for name in ("first", "second", "third"):
        assert bench.shares.add("greedy", name, 1)

    bench.shares.touch("greedy", "first")

    assert bench.shares.add("modest", "modest-0", 1)
    assert bench.evicted == ["second"]


def test_no_client_gets_more_than_its_part_though_nobody_else_is_there() -> None:
    bench = Bench()
    assert bench.shares.add("client", "first", 80)

    assert not bench.shares.add("client", "second", 81)
    assert bench.shares.resize("client", "first", 10)
    assert bench.shares.add("client", "second", 70)


def test_an_entry_that_grows_too_large_is_removed_and_does_not_push_out_smaller_ones() -> None:
    bench = Bench()
    assert bench.shares.add("client", "small", 20)
    assert bench.shares.add("client", "growing", 60)

    assert not bench.shares.resize("client", "growing", 61)

    assert bench.evicted == []
    assert (len(bench.shares), bench.shares.weight) == (1, 20)


def test_an_entry_that_is_removed_twice_counts_once() -> None:
    bench = Bench()
    assert bench.shares.add("client", "first", 20)
    assert bench.shares.add("client", "second", 20)

    bench.shares.remove("client", "first")
    bench.shares.remove("client", "first")
    bench.shares.remove("nobody", "first")

    assert (len(bench.shares), bench.shares.weight) == (1, 20)


class Account:
    """What is held according to a plain list, beside the shares."""

    def __init__(self) -> None:
        self.held: dict[tuple[str, int], int] = {}
        self.shares: ClientShares[tuple[str, int]] = ClientShares(
            ShareLimits(9, 100, 70), self.held.__delitem__
        )

    def carry_out(self, act: str, entry: tuple[str, int], weight: int) -> None:
        held, shares, client = self.held, self.shares, entry[0]
        if act == "remove":
            shares.remove(client, entry)
            held.pop(entry, None)
        elif entry not in held:
            if shares.add(client, entry, weight):
                held[entry] = weight
        elif act == "touch":
            shares.touch(client, entry)
        elif shares.resize(client, entry, weight):
            held[entry] = weight
        else:
            del held[entry]


@given(
    st.lists(
        st.tuples(
            st.sampled_from(["add", "remove", "touch"]),
            st.tuples(st.sampled_from("abc"), st.integers(0, 30)),
            st.integers(1, 60),
        ),
        max_size=80,
    )
)
def test_the_limits_hold_whatever_clients_do(steps: list[tuple[str, tuple[str, int], int]]) -> None:
    account = Account()

    for step in steps:
        account.carry_out(*step)

        held = account.held
        assert (len(account.shares), account.shares.weight) == (len(held), sum(held.values()))
        assert len(held) <= 9
        assert sum(held.values()) <= 100
        for name in "abc":
            assert sum(size for (owner, _), size in held.items() if owner == name) <= 70
