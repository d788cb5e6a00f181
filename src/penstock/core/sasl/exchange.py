"""What a step of a SASL exchange leads to."""

from typing import TypeAlias

from penstock.core.model import Instant
from penstock.core.values import dataclass


@dataclass(frozen=True, slots=True)
class Challenge:
    """The client has to say more."""

    content: bytes


@dataclass(frozen=True, slots=True)
class LoggedIn:
    """The client is this user; `content` is the last thing it is told.

    `expires`: when what it logged in with ends, and with it the login.
    """

    user: str
    content: bytes = b""
    expires: Instant | None = None


@dataclass(frozen=True, slots=True)
class Refused:
    """The client is nobody. `reason` is for the log: it may say more than a stranger should know.

    `user` is who it wanted to be, as far as that is known. `is_judged`: it has shown something wrong;
    otherwise nobody has looked at it.
    """

    reason: str
    user: str = ""
    is_judged: bool = True


Step: TypeAlias = Challenge | LoggedIn | Refused
