"""Two logs, as lists of epochs: what the follower keeps is what they have in common, and no less."""

from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.core.model import LeaderEpoch, Offset
from penstock.core.replica import LeaderEpochHistory, diverging_epoch, truncation_offset

# A log is one epoch per offset, never decreasing. An epoch has one leader: what it wrote is at the same
# offsets wherever it is.
epochs = st.lists(st.integers(0, 6), max_size=12).map(sorted)


def history(log: list[int]) -> LeaderEpochHistory:
    built = LeaderEpochHistory()
    for offset, epoch in enumerate(log):
        built.assign(LeaderEpoch(epoch), Offset(offset))
    return built


@st.composite
def pairs(draw: st.DrawFn) -> tuple[list[int], list[int]]:
    """What one leader wrote in one epoch is at the same offsets in both logs, as far as each goes."""
    past = draw(epochs)
    last = past[-1] if past else 0
    later = sorted(draw(st.lists(st.integers(last + 1, last + 8), max_size=14)))
    who = draw(st.lists(st.booleans(), min_size=20, max_size=20))
    leader = past + [epoch for epoch in later if who[epoch - last]]
    follower = past + [epoch for epoch in later if not who[epoch - last]]
    # One of them may have missed the end of the common past.
    kept = draw(st.integers(0, len(past)))
    if len(leader) == len(past) and draw(st.booleans()):
        leader = past[:kept]
    elif len(follower) == len(past):
        follower = past[:kept]
    return leader, follower


@settings(max_examples=500)
@given(pairs())
def test_a_follower_ends_with_all_that_both_logs_have_and_nothing_else(
    pair: tuple[list[int], list[int]],
) -> None:
    leader, follower = pair
    common = 0
    while common < min(len(leader), len(follower)) and leader[common] == follower[common]:
        common += 1
    leading = history(leader)
    # A new leader has an epoch of its own, whether or not it has written.
    leading.assign(LeaderEpoch(99), Offset(len(leader)))

    rounds = 0
    while True:
        rounds += 1
        own = history(follower)
        last = LeaderEpoch(follower[-1] if follower else -1)
        parting = diverging_epoch(leading, Offset(len(leader)), Offset(len(follower)), last)
        if parting is None:
            break
        cut = truncation_offset(own, Offset(len(follower)), parting)
        assert cut < len(follower), "no progress"
        follower = follower[:cut]

    assert len(follower) == common
    assert rounds <= 12
