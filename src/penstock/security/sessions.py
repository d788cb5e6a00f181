"""Who is calling, and through which listener."""

from typing import NamedTuple

from penstock.core.metadata.access import AclOperation


class Principal(NamedTuple):
    """An identity, written as Kafka's tools write it: `User:alice`."""

    kind: str
    name: str

    def __str__(self) -> str:
        return f"{self.kind}:{self.name}"


ANONYMOUS = Principal("User", "ANONYMOUS")


class Session(NamedTuple):
    """What a request's permissions and quotas depend on."""

    principal: Principal
    listener: str
    client_id: str
    host: str
    # The principal as access rules write it.
    principal_name: str = "User:ANONYMOUS"
    # What an API key narrows its user's permissions down to; None is everything.
    scope: frozenset[AclOperation] | None = None
