"""Who is calling, and through which listener."""

from typing import NamedTuple


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
