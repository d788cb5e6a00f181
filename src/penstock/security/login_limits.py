"""Failed logins slow down whoever makes them: an address, and a user that is guessed at.

The first failure of an address costs it a tenth of a second, each further one twice as much, up to ten
seconds; so do failures for one user, from wherever they come. It is the answer that waits, not the loop, and
not a login that succeeds: nobody can lock a user out. A success forgives the address, unless it has failed as
many users lately: or an account of one's own would make guessing at others cheap. It does not forgive a user:
guessing on from elsewhere stays slow. After a quiet while everything is forgotten.

Of IPv6 addresses the network counts (/64), which is what one customer has. Addresses and users have places of
their own, so that made-up users do not push addresses out, and long names are kept as hashes: what a million
of either costs is bounded.
"""

import hashlib
from collections import OrderedDict
from ipaddress import IPv6Address, ip_address
from typing import NamedTuple

from penstock.core.model import SECOND, Instant

FIRST_DELAY_MS = 100
DELAY_MS_MAX = 10_000
FORGOTTEN_AFTER_NS = 300 * SECOND
REMEMBERED_MAX = 20_000
NAME_CHARS_MAX = 64
# So many users may have the wrong password at one address before a success forgives nothing.
OTHERS_MAX = 20
_NETWORK_BITS = 64
_DOUBLINGS_MAX = 20


class _Failures(NamedTuple):
    times: int
    last: Instant
    # Who the address wanted to be last, and how often that was somebody else than before.
    user: str
    others: int = 0


class LoginLimits:
    """Who has failed how often lately."""

    def __init__(self) -> None:
        # The oldest first.
        self._hosts: OrderedDict[str, _Failures] = OrderedDict()
        self._users: OrderedDict[str, _Failures] = OrderedDict()

    def failed(self, host: str, user: str, now: Instant) -> int:
        """Count a failed login; returns after how many milliseconds it is to be answered."""
        name = _short(user)
        count = _count(self._hosts, _network(host), name, now)
        if user:
            count = max(count, _count(self._users, name, name, now))
        return min(DELAY_MS_MAX, FIRST_DELAY_MS << min(count - 1, _DOUBLINGS_MAX))

    def succeeded(self, host: str) -> None:
        """Forgive an address, unless it tries many users."""
        network = _network(host)
        found = self._hosts.get(network)
        if found is not None and found.others < OTHERS_MAX:
            self._hosts[network] = found._replace(times=0)


def _count(table: OrderedDict[str, _Failures], key: str, user: str, now: Instant) -> int:
    before = table.pop(key, None)
    if before is None or now - before.last > FORGOTTEN_AFTER_NS:
        before = _Failures(0, now, user)
    count = before.times + 1
    table[key] = _Failures(count, now, user, before.others + (before.user != user))
    if len(table) > REMEMBERED_MAX:
        table.popitem(last=False)
    return count


def _short(name: str) -> str:
    if len(name) <= NAME_CHARS_MAX:
        return name
    return hashlib.blake2b(name.encode(), digest_size=16).hexdigest()


def _network(host: str) -> str:
    try:
        address = ip_address(host.strip("[]").partition("%")[0])
    except ValueError:
        return _short(host)
    if isinstance(address, IPv6Address) and address.ipv4_mapped is None:
        return f"{int(address) >> _NETWORK_BITS:x}/64"
    return str(address)
