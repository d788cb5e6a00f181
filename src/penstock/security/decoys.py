"""Credentials of users that do not exist: strangers must not find out who does.

SCRAM shows a salt and a number of iterations before anything is proved. Those of an unknown user look like
those of the users there are: as long, as many, in the same proportions. They are the same whenever and
wherever they are asked for: made with a secret of the cluster, which all nodes have and no user does. With
something that a user knows, such as a key of its password, that user could tell them from others.
"""

import hashlib
import hmac
from collections import Counter
from typing import TypeAlias

from penstock.core.metadata import MetadataImage
from penstock.core.metadata.access import ScramCredential, ScramMechanism
from penstock.core.metadata.image import PersistentMap
from penstock.core.sasl import decoy_credential

Credentials: TypeAlias = PersistentMap[tuple[str, ScramMechanism], ScramCredential]
# What `penstock user` makes, while there is nobody to look like.
DEFAULT_SHAPE = (8_192, 24)
PURPOSE = b"credentials of users that do not exist"
_BIT_64 = 8


class DecoyCredentials:
    """Makes credentials that no password is right for."""

    def __init__(self, secret: bytes) -> None:
        """`secret` is for a cluster that has none yet: its first secured node makes one."""
        self._secret = secret
        self._clusters_secret = b""
        self._stored: Credentials = PersistentMap()
        # How many credentials there are, by iterations and length of their salt.
        self._shapes: dict[ScramMechanism, Counter[tuple[int, int]]] = {
            mechanism: Counter() for mechanism in ScramMechanism
        }

    def on_metadata(self, image: MetadataImage) -> None:
        """Look like the users of an image from now on."""
        secret = image.delegation_secret
        if secret not in (b"", self._clusters_secret):
            self._clusters_secret = secret
            # Nodes sign with it as well: nobody is to have something signed by asking for a salt.
            self._secret = hmac.digest(secret, PURPOSE, "sha256")
        self._on_credentials(image.credentials)

    def _on_credentials(self, stored: Credentials) -> None:
        before = self._stored
        if stored is before:
            return
        gone, changed = before.keys_missing_in(stored), stored.keys_changed_since(before)
        for key in (*gone, *changed):
            self._count(before.get(key), -1)
        for key in changed:
            self._count(stored.get(key), 1)
        self._stored = stored

    def _count(self, credential: ScramCredential | None, change: int) -> None:
        if credential is not None:
            shape = credential.iterations, len(credential.salt)
            self._shapes[credential.mechanism][shape] += change

    def of(self, user: str, mechanism: ScramMechanism) -> ScramCredential:
        """The credential of a user that does not exist."""
        seed = hmac.digest(self._secret, f"{mechanism.sasl_name} {user}".encode(), "sha256")
        iterations, salt_bytes = self._shape(mechanism, int.from_bytes(seed[:_BIT_64], "big"))
        return decoy_credential(user, mechanism, hashlib.shake_256(seed).digest(salt_bytes), iterations)

    def _shape(self, mechanism: ScramMechanism, number: int) -> tuple[int, int]:
        shapes = sorted((+self._shapes[mechanism]).items())
        total = sum(count for _, count in shapes)
        if not total:
            return DEFAULT_SHAPE
        place = number % total
        for shape, count in shapes:
            if place < count:
                return shape
            place -= count
        return DEFAULT_SHAPE

    @property
    def checked_mechanism(self) -> ScramMechanism:
        """By which a password of an unknown user is checked: as those of most users are."""
        for mechanism in ScramMechanism:
            if +self._shapes[mechanism]:
                return mechanism
        return ScramMechanism.SCRAM_SHA_256
