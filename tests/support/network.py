"""Machines of one's own: each node in a network namespace, behind a router that can drop packets.

        node 1 ── 10.N.1.0/24 ──┐
        node 2 ── 10.N.2.0/24 ──┤ router ── 10.N.0.0/24 ── the test
        node 3 ── 10.N.3.0/24 ──┘

The router forwards; a rule there makes it drop what one node sends to another without a word, in that
direction only. Clients stand on another side of it and are not cut off.
"""

import contextlib
import os
import subprocess
from collections.abc import Iterator

import pytest

TEST, GATEWAY, HOST = 0, 1, 2


class NoNetwork(Exception):
    """Namespaces cannot be made here."""


class Network:
    """A router, and one namespace for each of `count` nodes."""

    def __init__(self, count: int) -> None:
        # Two tests at a time are two processes, and must not meet.
        self._tag = f"ps{os.getpid() % 100_000}"
        self._net = 20 + os.getpid() % 200
        self._router = f"{self._tag}r"
        self._count = count
        self._cuts: list[tuple[int, int]] = []

    def open(self) -> None:
        try:
            self._add_namespace(self._router)
            for number in range(1, self._count + 1):
                namespace = self.namespace(number)
                self._add_namespace(namespace)
                _ip("link", "add", self._port(number), "type", "veth", "peer", "eth0", "netns", namespace)
                _ip("link", "set", self._port(number), "netns", self._router)
                self._up(self._router, self._port(number), self._address(number, GATEWAY))
                self._up(namespace, "eth0", self._address(number, HOST))
                _ip("-n", namespace, "route", "add", "default", "via", self._address(number, GATEWAY))
            self._join_the_test()
        except NoNetwork:
            self.close()
            raise

    def _join_the_test(self) -> None:
        ours = self._port(TEST)
        _ip("link", "add", f"{self._tag}c", "type", "veth", "peer", ours, "netns", self._router)
        _ip("addr", "add", f"{self._address(TEST, HOST)}/24", "dev", f"{self._tag}c")
        _ip("link", "set", f"{self._tag}c", "up")
        self._up(self._router, ours, self._address(TEST, GATEWAY))
        _ip("route", "add", f"10.{self._net}.0.0/16", "via", self._address(TEST, GATEWAY))
        forwarding = "echo 1 > /proc/sys/net/ipv4/ip_forward"
        _run("ip", "netns", "exec", self._router, "sh", "-c", forwarding)

    def close(self) -> None:
        """Remove everything; interfaces and routes go with their namespaces."""
        for name in (self._router, *(self.namespace(number) for number in range(1, self._count + 1))):
            with contextlib.suppress(NoNetwork):
                _ip("netns", "del", name)

    def namespace(self, number: int) -> str:
        return f"{self._tag}n{number}"

    def wrapper(self, number: int) -> tuple[str, ...]:
        """Words before a command that shall run on that node's machine."""
        return "ip", "netns", "exec", self.namespace(number)

    def host(self, number: int) -> str:
        return self._address(number, HOST)

    def cut(self, sender: int, receiver: int) -> None:
        """Drop what `sender` sends to `receiver` from now on; what goes the other way still arrives."""
        self._rule("add", sender, receiver)
        self._cuts.append((sender, receiver))

    def cut_off(self, number: int) -> None:
        """Let a node and the others hear nothing of each other; the test still reaches all of them."""
        for other in range(1, self._count + 1):
            if other != number:
                self.cut(number, other)
                self.cut(other, number)

    def heal(self) -> None:
        """Drop nothing any more."""
        while self._cuts:
            self._rule("del", *self._cuts.pop())

    def _rule(self, verb: str, sender: int, receiver: int) -> None:
        route = ("iif", self._port(sender), "to", self.host(receiver), "blackhole")
        _ip("-n", self._router, "rule", verb, *route)

    def _add_namespace(self, name: str) -> None:
        _ip("netns", "add", name)
        _ip("-n", name, "link", "set", "lo", "up")

    def _up(self, namespace: str, device: str, address: str) -> None:
        _ip("-n", namespace, "addr", "add", f"{address}/24", "dev", device)
        _ip("-n", namespace, "link", "set", device, "up")

    def _address(self, number: int, last: int) -> str:
        return f"10.{self._net}.{number}.{last}"

    def _port(self, number: int) -> str:
        return f"{self._tag}v{number}"


@contextlib.contextmanager
def network_of(count: int) -> Iterator[Network]:
    """A network; a test is skipped where none can be made."""
    if os.geteuid() != 0:
        pytest.skip("a network of namespaces needs root")
    network = Network(count)
    try:
        network.open()
    except (NoNetwork, FileNotFoundError) as error:
        pytest.skip(f"no network namespaces can be made here: {error}")
    try:
        yield network
    finally:
        network.close()


def _ip(*words: str) -> None:
    _run("ip", *words)


def _run(*words: str) -> None:
    done = subprocess.run(words, check=False, capture_output=True, text=True)
    if done.returncode:
        raise NoNetwork(f"{' '.join(words)}: {done.stderr.strip()}")
