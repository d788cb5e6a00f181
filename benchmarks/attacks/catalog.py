"""Every attack there is."""

from benchmarks.attacks.admin import admin
from benchmarks.attacks.attack import Attack, Attacker, AttackTable
from benchmarks.attacks.batches import batches
from benchmarks.attacks.fairness import fairness
from benchmarks.attacks.frames import frames
from benchmarks.attacks.gateway import gateway
from benchmarks.attacks.groups import groups
from benchmarks.attacks.host import host
from benchmarks.attacks.requests import requests
from benchmarks.attacks.secured import secured
from benchmarks.attacks.settings import settings
from benchmarks.attacks.state import state

control = AttackTable("control")


@control.attack("nothing")
def nothing(attacker: Attacker) -> None:
    """No attack at all: the noise of the machine."""
    while not attacker.is_over:
        attacker.pause(0.5)


_TABLES = (
    control,
    settings,
    requests,
    frames,
    state,
    fairness,
    batches,
    groups,
    admin,
    gateway,
    secured,
    host,
)
ATTACKS: tuple[Attack, ...] = tuple(attack for table in _TABLES for attack in table.attacks)
