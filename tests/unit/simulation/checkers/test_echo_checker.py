from penstock.simulation.checkers.echo import check_echo

SENT = {b"1": b"one", b"2": b"two"}


def test_a_faithful_run_has_no_anomaly() -> None:
    assert check_echo(SENT, {b"1": b"one"}, [(b"2", b"two"), (b"1", b"one")]) == []


def test_each_kind_of_unfaithfulness_is_named() -> None:
    lost = check_echo(SENT, {b"1": b"one"}, [])
    duplicate = check_echo(SENT, {}, [(b"1", b"one"), (b"1", b"one")])
    invented = check_echo(SENT, {b"3": b"three"}, [(b"3", b"three")])
    changed = check_echo(SENT, {b"1": b"ONE"}, [(b"1", b"one")])

    assert [line.split(":")[0] for line in lost + duplicate] == ["lost", "duplicate"]
    assert [line.split(":")[0] for line in invented] == ["unexpected", "unexpected"]
    assert [line.split(":")[0] for line in changed] == ["unexpected"]
