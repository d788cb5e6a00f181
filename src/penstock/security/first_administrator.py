"""The first administrator of a cluster: how it gets from the command line to a node.

`penstock user bootstrap` leaves a file in the data directory of a node, and the node asks the controller to
add that user, at its start or, while it runs, within seconds:

    <data-dir>/meta/first-administrator            what is kept of its password, and its access rules
    <data-dir>/meta/first-administrator.refused    why the cluster did not take it; the command shows it

So it takes whoever owns the data directory: nobody can ask for it over the network. The controller refuses
if the cluster has users, rules or API keys. The password itself is never written; the file goes with the
answer.
"""

import os
import secrets
from collections.abc import Collection
from pathlib import Path

import msgspec

from penstock.core.metadata.access import (
    ANY_HOST,
    ANY_NAME,
    CLUSTER_NAME,
    AclBinding,
    AclOperation,
    AclPermission,
    PatternType,
    ResourceType,
    ScramMechanism,
)
from penstock.core.metadata.commands import AddFirstAdministrator
from penstock.core.model import PenstockError
from penstock.core.sasl import credential_of
from penstock.security.private_files import SecretExposed, read_private

FILE_NAME = "meta/first-administrator"
FILE_BYTES_MAX = 64 << 10
ITERATIONS = 8_192
SALT_BYTES = 24
PRIVATE_DIRECTORY, PRIVATE_FILE = 0o700, 0o600


class FirstAdministratorUnusable(PenstockError):
    """The file of a first administrator cannot be read, or holds something else."""


class FirstAdministratorFile:
    """The file in one data directory, as the command and the node see it."""

    def __init__(self, data_dir: str) -> None:
        self.path = Path(data_dir, FILE_NAME)
        self._refusal = self.path.with_name(f"{self.path.name}.refused")

    def write(self, administrator: AddFirstAdministrator) -> None:
        """Leave this one, in the place of any other; when this returns, it survives a power cut."""
        meta = self.path.parent
        meta.parent.parent.mkdir(parents=True, exist_ok=True)
        # The data directory, if no node was started yet.
        meta.parent.mkdir(PRIVATE_DIRECTORY, exist_ok=True)
        meta.mkdir(PRIVATE_DIRECTORY, exist_ok=True)
        self._refusal.unlink(missing_ok=True)
        draft = self.path.with_name(f"{self.path.name}.new")
        draft.unlink(missing_ok=True)
        descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, PRIVATE_FILE)
        with open(descriptor, "wb") as file:
            if os.geteuid() == 0:
                # Left by root for a node that runs as somebody else.
                owner = self.path.parent.stat()
                os.fchown(file.fileno(), owner.st_uid, owner.st_gid)
            file.write(msgspec.json.encode(administrator))
            file.flush()
            os.fsync(file.fileno())
        draft.rename(self.path)
        directory = os.open(self.path.parent, os.O_RDONLY)
        try:
            os.fsync(directory)
        finally:
            os.close(directory)

    @property
    def is_there(self) -> bool:
        return self.path.exists()

    def read(self) -> AddFirstAdministrator:
        """Raises FirstAdministratorUnusable."""
        try:
            content = read_private(str(self.path), FILE_BYTES_MAX)
            return msgspec.json.decode(content, type=AddFirstAdministrator)
        except (SecretExposed, msgspec.DecodeError) as error:
            raise FirstAdministratorUnusable(f"{self.path} cannot be used: {error}") from None

    def remove(self) -> None:
        """It was added, or is not wanted any more."""
        self.path.unlink(missing_ok=True)

    def refuse(self, reason: str) -> None:
        """It will never be added; say why."""
        draft = self._refusal.with_name(f"{self._refusal.name}.new")
        draft.write_text(f"{reason}\n")
        draft.rename(self._refusal)
        self.path.unlink(missing_ok=True)

    def take_refusal(self) -> str | None:
        """Why it was not added, said once; None if nobody has refused it."""
        try:
            reason = self._refusal.read_text().strip()
        except FileNotFoundError:
            return None
        self._refusal.unlink(missing_ok=True)
        return reason


def first_administrator(user: str, password: str, super_users: Collection[str]) -> AddFirstAdministrator:
    """A user with this password, who may do everything; one that always may needs no rules for it."""
    credentials = tuple(
        credential_of(user, mechanism, password, secrets.token_bytes(SALT_BYTES), ITERATIONS)
        for mechanism in ScramMechanism
    )
    if user in super_users or f"User:{user}" in super_users:
        return AddFirstAdministrator(user, credentials)
    return AddFirstAdministrator(user, credentials, tuple(_everything(user, kind) for kind in ResourceType))


def _everything(user: str, kind: ResourceType) -> AclBinding:
    name = CLUSTER_NAME if kind is ResourceType.CLUSTER else ANY_NAME
    return AclBinding(
        kind,
        PatternType.LITERAL,
        name,
        f"User:{user}",
        ANY_HOST,
        AclOperation.ALL,
        AclPermission.ALLOW,
    )
