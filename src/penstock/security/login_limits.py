"""Failed logins slow down whoever makes them: an address, and a user that is guessed at.

The first failure of an address costs it a tenth of a second, each further one twice as much, up to ten
seconds; so do failures for one user, from wherever they come. For as long the answer waits, and so do the
other passwords that come from there, on whatever connection: the next one is checked when the time is over,
right or wrong. Nobody waits for what others do elsewhere, so that nobody can lock a user out; and who has
logged in from an address before waits there for its own failures only.

    an address without failures   [check][check][check] …
    after a failure               [check] ── 0.1 s ── [check] ──── 0.2 s ──── [check] …   users take turns

A success forgives the address, unless it has failed as many users lately: or an account of one's own would
make guessing at others cheap. It does not forgive a user: guessing on from elsewhere stays slow. After a
quiet while everything is forgotten.

Tokens and API keys are not guessed: they count as failures, and are checked at once.

Of IPv6 addresses the network counts (/64), which is what one customer has. Addresses and users have places of
their own, so that made-up users do not push addresses out, and long names are kept as hashes: what a million
of either costs is bounded.
"""

import hashlib
from collections import OrderedDict, deque
from collections.abc import Callable
from functools import partial
from ipaddress import IPv6Address, ip_address
from typing import NamedTuple, TypeAlias

from penstock.core.model import MILLISECOND, SECOND, Instant
from penstock.runtime import Clock, Timers

FIRST_DELAY_MS = 100
DELAY_MS_MAX = 10_000
FORGOTTEN_AFTER_NS = 300 * SECOND
REMEMBERED_MAX = 20_000
NAME_CHARS_MAX = 64
# So many users may have the wrong password at one address before a success forgives nothing.
OTHERS_MAX = 20
# Passwords of one network that are checked at once, while none was wrong: threads take two.
CHECKS_AT_ONCE = 2
# Those that wait for their turn, of one network; and for how long, until nobody waits for the answer.
WAITING_MAX = 500
WAIT_NS_MAX = 30 * SECOND
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
        count = _count(self._hosts, network_of(host), name, now)
        if user:
            count = max(count, _count(self._users, name, name, now))
        return min(DELAY_MS_MAX, FIRST_DELAY_MS << min(count - 1, _DOUBLINGS_MAX))

    def succeeded(self, host: str) -> None:
        """Forgive an address, unless it tries many users."""
        network = network_of(host)
        found = self._hosts.get(network)
        if found is not None and found.others < OTHERS_MAX:
            self._hosts[network] = found._replace(times=0)


Finished: TypeAlias = Callable[[bool], None]


class _Check(NamedTuple):
    """A password that waits to be checked."""

    since: Instant
    # The network that it comes from, and the user whose it may be.
    caller: tuple[str, str]
    begin: Callable[[Finished], None]
    refuse: Callable[[], None]


class _Turns:
    """The checks of one network, or of a user that has logged in from there."""

    __slots__ = ("failed_at", "is_serving", "key", "open_at", "running", "timer_set", "waiting")

    def __init__(self, key: tuple[str, str]) -> None:
        self.key = key
        self.running = 0
        # By user: who tries most must not keep the others waiting.
        self.waiting: OrderedDict[str, deque[_Check]] = OrderedDict()
        self.failed_at: Instant | None = None
        self.open_at = Instant(0)
        self.is_serving = self.timer_set = False

    def is_failing(self, now: Instant) -> bool:
        """Whether the last password was wrong, and not long ago."""
        return self.failed_at is not None and now - self.failed_at <= FORGOTTEN_AFTER_NS

    def add(self, check: _Check) -> _Check | None:
        """Let it wait; returns the one that gives way to it, if there are too many."""
        self.waiting.setdefault(check.caller[1], deque()).append(check)
        if sum(map(len, self.waiting.values())) <= WAITING_MAX:
            return None
        # The last one of whoever has most: of the one that came, if all have as many.
        most = max(reversed(self.waiting), key=lambda user: len(self.waiting[user]))
        return self._taken(most, last=True)

    def next(self) -> _Check:
        user = next(iter(self.waiting))
        check = self._taken(user)
        if user in self.waiting:
            self.waiting.move_to_end(user)
        return check

    def _taken(self, user: str, *, last: bool = False) -> _Check:
        checks = self.waiting[user]
        check = checks.pop() if last else checks.popleft()
        if not checks:
            del self.waiting[user]
        return check


class LoginTurns:
    """When the next password of a network is checked."""

    def __init__(self, clock: Clock, timers: Timers) -> None:
        self._clock = clock
        self._timers = timers
        # Those that have failed or wait; the oldest first.
        self._turns: OrderedDict[tuple[str, str], _Turns] = OrderedDict()
        # Users that have logged in, with the network.
        self._familiar: OrderedDict[tuple[str, str], None] = OrderedDict()

    def take(
        self, host: str, user: str, begin: Callable[[Finished], None], refuse: Callable[[], None]
    ) -> None:
        """Call `begin` when it is the turn of this password, or `refuse` if too many wait.

        It has to call what it is given with whether the password was right, after `penalize` if it was not.
        """
        caller = network_of(host), _short(user)
        key = self._key(caller)
        turns = self._turns.get(key)
        if turns is None:
            turns = self._turns[key] = _Turns(key)
            if len(self._turns) > REMEMBERED_MAX:
                self._turns.popitem(last=False)
        surplus = turns.add(_Check(self._clock.now(), caller, begin, refuse))
        if surplus is not None:
            surplus.refuse()
        self._serve(turns)

    def penalize(self, host: str, user: str, delay_ms: int) -> None:
        """A login has failed: if its password was checked just now, the next one is for so long not."""
        turns = self._turns.get(self._key((network_of(host), _short(user))))
        if turns is not None and turns.running:
            turns.failed_at = now = self._clock.now()
            turns.open_at = Instant(now + delay_ms * MILLISECOND)
            self._turns.move_to_end(turns.key)

    def _key(self, caller: tuple[str, str]) -> tuple[str, str]:
        return caller if caller in self._familiar else (caller[0], "")

    def _serve(self, turns: _Turns) -> None:
        """Begin the checks whose turn it is."""
        if turns.is_serving:
            return
        turns.is_serving = True
        while turns.waiting and self._is_free(turns):
            check = turns.next()
            if self._clock.now() - check.since > WAIT_NS_MAX:
                check.refuse()
                continue
            turns.running += 1
            check.begin(partial(self._finished, turns, check.caller))
        turns.is_serving = False
        is_idle = not turns.waiting and not turns.running
        if is_idle and turns.failed_at is None and self._turns.get(turns.key) is turns:
            del self._turns[turns.key]

    def _is_free(self, turns: _Turns) -> bool:
        """Whether a check may begin now; a timer is set if time has to pass."""
        now = self._clock.now()
        if not turns.is_failing(now):
            return turns.running < CHECKS_AT_ONCE
        if turns.running:
            return False
        if now < turns.open_at:
            self._serve_later(turns)
            return False
        return True

    def _serve_later(self, turns: _Turns) -> None:
        if turns.timer_set:
            return

        def fire() -> None:
            turns.timer_set = False
            self._serve(turns)

        turns.timer_set = True
        self._timers.at(turns.open_at, fire)

    def _finished(self, turns: _Turns, caller: tuple[str, str], is_right: bool) -> None:
        turns.running -= 1
        if is_right:
            self._familiar[caller] = None
            self._familiar.move_to_end(caller)
            if len(self._familiar) > REMEMBERED_MAX:
                self._familiar.popitem(last=False)
            if self._clock.now() >= turns.open_at:
                turns.failed_at = None
        self._serve(turns)


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


def network_of(host: str) -> str:
    """What counts as one address: of IPv6 the network that one customer has."""
    try:
        address = ip_address(host.strip("[]").partition("%")[0])
    except ValueError:
        return _short(host)
    if isinstance(address, IPv6Address) and address.ipv4_mapped is None:
        return f"{int(address) >> _NETWORK_BITS:x}/64"
    return str(address)
