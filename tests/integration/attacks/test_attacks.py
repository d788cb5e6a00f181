"""The attacks of `benchmarks/attacks`, a moment each: nobody is timed, nothing may be lost."""

from itertools import groupby
from pathlib import Path

import pytest

from benchmarks.attacks.attack import Attack
from benchmarks.attacks.batches import poison_headers
from benchmarks.attacks.catalog import ATTACKS
from benchmarks.attacks.nodes import NodeSetup
from tests.integration.attacks.stage import attack_stage

SECONDS, LONGER_SECONDS = 0.5, 10.0
# A node has some 50 MB, its gateway 40: what clients can make it keep has a bound.
RESIDENT_BYTES_MAX = 600 << 20
TOGETHER = [one for one in ATTACKS if not one.is_alone]
FAMILIES = {name: list(attacks) for name, attacks in groupby(TOGETHER, key=lambda one: one.family)}


@pytest.mark.parametrize("family", FAMILIES)
def test_clients_go_on_beside_a_family_of_attacks_and_lose_nothing(family: str, tmp_path: Path) -> None:
    attacks = FAMILIES[family]
    setup = NodeSetup(
        has_gateway=any(one.setup.has_gateway for one in attacks),
        has_peer_listener=any(one.setup.has_peer_listener for one in attacks),
    )
    with attack_stage(tmp_path, setup) as stage:
        for attack in attacks:
            counts = stage.attack(attack, SECONDS)
            if not counts.keys() - {"disconnected"} and family != "control":
                # Who is turned away each time has not attacked; on a busy machine a moment may be too short.
                counts = stage.attack(attack, LONGER_SECONDS)
            assert counts or family == "control", f"{attack.name} did nothing"
            assert stage.nodes.running, f"{attack.name} ended the node"
        assert stage.nodes.resident_bytes() < RESIDENT_BYTES_MAX

        account = stage.finish()

    assert account.misses() == []


@pytest.mark.parametrize("attack", [one for one in ATTACKS if one.setup.is_secured], ids=lambda one: one.name)
def test_clients_go_on_beside_an_attack_on_a_secured_node(attack: Attack, tmp_path: Path) -> None:
    with attack_stage(tmp_path, attack.setup) as stage:
        counts = stage.attack(attack, SECONDS) or stage.attack(attack, LONGER_SECONDS)
        assert counts, f"{attack.name} did nothing"
        assert stage.nodes.running, f"{attack.name} ended the node"
        assert stage.nodes.resident_bytes() < RESIDENT_BYTES_MAX

        assert stage.finish().misses() == []


def test_a_directory_that_lost_its_identity_takes_no_other_records_along(tmp_path: Path) -> None:
    attack = attack_named("damaged-identity")
    with attack_stage(tmp_path, attack.setup) as stage:
        assert stage.attack(attack, SECONDS)["requests"] > 0

        assert stage.finish(attack.while_stopped).misses() == []


def attack_named(name: str) -> Attack:
    return next(one for one in ATTACKS if one.name == name)


def test_no_batch_is_taken_whose_header_is_not_true(tmp_path: Path) -> None:
    with attack_stage(tmp_path, NodeSetup()) as stage:
        counts = stage.attack(attack_named("poison-batches"), SECONDS)

    assert counts["requests"] > 0
    taken = {name.removeprefix("took ") for name in counts if name.startswith("took ")}
    assert taken & poison_headers().keys() == set()
