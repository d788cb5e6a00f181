"""The metadata is linearizable: what was acknowledged is in every image from there on.

An image has a version, the number of facts it holds. Clients change registers (whether a
topic exists, how many partitions it has, a configuration value), one at a time per register,
and note the version at which a change was acknowledged.

    diverged      two images of one version differ
    version back  a node showed an older image after a newer one, in one incarnation
    lost change   an image of that version or a later one has another value

A change whose outcome nobody knows may take effect at any time, or never: its value is
right from then on, like that of the last acknowledged one.
"""

from collections.abc import Callable, Hashable
from dataclasses import dataclass, field
from typing import NamedTuple


class RegisterChange(NamedTuple):
    """One attempt to change a register."""

    number: int
    key: Hashable
    value: Hashable


@dataclass(slots=True)
class _Register:
    value: Hashable = None
    version: int = -1
    # Attempts that were neither acknowledged nor rejected.
    open: list[RegisterChange] = field(default_factory=list)


@dataclass(slots=True)
class MetadataChecker:
    """What clients changed, and what images showed."""

    anomalies: list[str] = field(default_factory=list)
    changes: int = 0
    _registers: dict[Hashable, _Register] = field(default_factory=dict)
    _images: dict[int, object] = field(default_factory=dict)
    _versions: dict[Hashable, int] = field(default_factory=dict)

    def changing(self, key: Hashable, value: Hashable) -> RegisterChange:
        """A client asks for a register to have a value."""
        self.changes += 1
        change = RegisterChange(self.changes, key, value)
        self._registers.setdefault(key, _Register()).open.append(change)
        return change

    def done(self, change: RegisterChange, version: int) -> None:
        """It was acknowledged by a node whose image had this version."""
        register = self._registers[change.key]
        register.open.remove(change)
        register.value, register.version = change.value, version

    def refused(self, change: RegisterChange) -> None:
        """It was rejected, and so never happens."""
        self._registers[change.key].open.remove(change)

    def showed(
        self, life: Hashable, version: int, content: object, read: Callable[[Hashable], Hashable]
    ) -> None:
        """A node, in one of its incarnations, showed an image."""
        if version < self._versions.get(life, -1):
            self._note(f"version back: {life} from {self._versions[life]} to {version}")
        self._versions[life] = version
        known = self._images.setdefault(version, content)
        if known != content:
            self._note(f"diverged: {life} has another image of version {version} than others")
        for key, register in self._registers.items():
            if register.version < 0 or version < register.version:
                continue
            value = read(key)
            if value != register.value and all(change.value != value for change in register.open):
                self._note(
                    f"lost change: {key} is {value!r} at {life} in version {version}, "
                    f"and was {register.value!r} in version {register.version}"
                )

    def _note(self, anomaly: str) -> None:
        if anomaly not in self.anomalies:
            self.anomalies.append(anomaly)
