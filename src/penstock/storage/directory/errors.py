"""Why a data directory cannot be used."""

from uuid import UUID

from penstock.core.model import CorruptionError, StorageError


class FormatTooNew(StorageError):
    """A newer Penstock has been here."""

    def __init__(self, found: int, known: int) -> None:
        super().__init__(
            f"the data directory has format {found}, and this version of Penstock reads formats "
            f"up to {known}: upgrade Penstock, or use another data directory"
        )
        self.found = found
        self.known = known


class WrongCluster(StorageError):
    """The directory belongs to another cluster."""

    def __init__(self, ours: UUID, theirs: UUID) -> None:
        super().__init__(f"the data directory belongs to cluster {ours}, not {theirs}")
        self.ours = ours
        self.theirs = theirs


class WrongNode(StorageError):
    """The directory belongs to another node."""

    def __init__(self, owner: str, claimant: int) -> None:
        super().__init__(
            f"the data directory belongs to node {owner}, but this node's id is {claimant}: "
            "use its own data directory, or its own id"
        )
        self.owner = owner
        self.claimant = claimant


class DirectoryDamaged(CorruptionError):
    """The files that say whose directory it is are missing or broken."""
