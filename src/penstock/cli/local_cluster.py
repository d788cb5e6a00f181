"""`penstock up --brokers N`: a cluster of N nodes on this machine, each a process of its own.

    penstock up --brokers 3
      ├ node 1   <data-dir>/node-1   kafka 9092, http 8080, grpc 9000, metrics 9090, peer 7000
      ├ node 2   <data-dir>/node-2   every port 100 higher
      └ node 3   <data-dir>/node-3   and 100 more

The nodes are exactly those that `penstock up --voters …` starts one by one, and find one another
the same way. The parent serves nobody. It reserves every address until the nodes listen, so that a
port that is taken is reported before anything starts; it passes on what the nodes print, with the
node's number before each line (a JSON line has it inside); and it starts nothing a second time: a
node that ends is reported with its last line, and the others go on. A parent that is killed takes its
nodes with it, by a signal that the kernel sends them.

Left out: restarting nodes, which is the business of a process supervisor; more than one
machine, for which there is `--voters`.
"""

import asyncio
import enum
import json
import os
import re
import signal
import sys
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from penstock.cli.child import command_line
from penstock.cli.node_process import FLAGS, other_address
from penstock.cli.output import counted
from penstock.config import (
    SETTINGS,
    Config,
    ConfigError,
    ListenAddress,
    ListenerSetting,
    LoadedConfig,
    VoterAddress,
    not_available,
)
from penstock.config import ListenAddress as ConfiguredAddress
from penstock.config.addresses import PORT_MAX
from penstock.config.checks import DEFAULT_SOURCE
from penstock.config.settings import PEER_DEFAULT
from penstock.core.model import PenstockError
from penstock.node.options import AddressInUse, PortReservations
from penstock.runtime import Address

# Longer lines than this are cut in pieces; events are far shorter.
LINE_BYTES_MAX = 1 << 20
WORDS_KEPT = 20
# An event of level debug or info, as JSON and as text.
_ROUTINE = re.compile(r'\{"time":"[^"]*","level":"(debug|info)"|\S+ \S+ (DEBUG|INFO) ')
STOP_SECONDS = 20
LOOK_SECONDS = 30
DONE, FAILED = 0, 1
BROKERS_MAX = 9
PORT_STEP = 100
LOOPBACK = "127.0.0.1"
# Beside a single node's `./penstock-data`, so that both can be tried in one directory.
DATA_DIR_DEFAULT = "./penstock-cluster"
PEER = "listen.peer"
LISTENERS = "listen.listeners"
# An address that nothing listens on is passed on, and not asked for.
UNSERVED = ("listen.advertised",)
# What a local cluster decides by itself.
DECIDED = ("node.id", "cluster.voters", "node.roles")
Listeners = dict[str, ListenAddress]


class NodeProcess:
    """A process that runs one node; `ready` is what its ready line said."""

    def __init__(self, number: int, process: asyncio.subprocess.Process) -> None:
        self.number = number
        self.ready: dict[str, Any] | None = None
        self._process = process
        self._said: deque[str] = deque(maxlen=WORDS_KEPT)

    @classmethod
    async def start(cls, number: int, arguments: Sequence[str]) -> "NodeProcess":
        process = await asyncio.create_subprocess_exec(
            *command_line(["up", "--json", *arguments]),
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            limit=LINE_BYTES_MAX,
            # Ctrl-C is for the parent, which stops its nodes one after the other.
            start_new_session=True,
        )
        return cls(number, process)

    @property
    def is_running(self) -> bool:
        return self._process.returncode is None

    @property
    def pid(self) -> int:
        return self._process.pid

    def send(self, number: signal.Signals) -> None:
        if self.is_running:
            self._process.send_signal(number)

    async def await_ready(self) -> bool:
        """Wait for the ready line; False if it ended without one."""
        assert self._process.stdout is not None
        line = await self._process.stdout.readline()
        if not line.endswith(b"\n"):
            return False
        self.ready = json.loads(line)
        return True

    async def relay(self, write: Callable[[str], None], is_wanted: Callable[[str], bool]) -> None:
        """Pass on the lines it prints that are worth reading, until it prints no more."""
        stderr = self._process.stderr
        assert stderr is not None
        while line := await _line_of(stderr):
            text = line.decode(errors="replace").rstrip("\n")
            self._said.append(text)
            if not is_wanted(text):
                continue
            # Events in JSON name their node, and would be no JSON with a word before them.
            write(text if text.startswith("{") else f"node {self.number}: {text}")

    async def ended(self) -> int:
        return await self._process.wait()

    @property
    def last_words(self) -> str:
        """The last line it printed for people, or else its last event."""
        spoken = [line for line in self._said if line and not line.startswith("{")]
        said = spoken or [line for line in self._said if line]
        return said[-1].removeprefix("penstock: ") if said else "it said nothing"

    @property
    def ending(self) -> str:
        """How it ended."""
        code = self._process.returncode
        assert code is not None
        if code >= 0:
            return f"exit code {code}"
        try:
            return signal.Signals(-code).name
        except ValueError:
            return f"signal {-code}"


async def _line_of(stream: asyncio.StreamReader) -> bytes:
    try:
        return await stream.readline()
    except ValueError:
        # A line without end: its beginning was thrown away, and the rest may follow.
        return b"(a line that is too long)\n"


def is_routine(line: str) -> bool:
    """Whether a line is an event of level debug or info."""
    return _ROUTINE.match(line) is not None


def write_error(line: str) -> None:
    """One line to stderr, whole even if several processes share it."""
    os.write(sys.stderr.fileno(), f"{line}\n".encode())


class ClusterNotStarted(PenstockError):
    """A node ended before all were ready."""


class LauncherEventKind(enum.Enum):
    """What can happen to the parent."""

    READY = "a node is ready"
    ENDED = "a node has ended"
    TOLD = "a signal asks for the end"
    OVERDUE = "a node that was asked to stop has not"


class LauncherEvent(NamedTuple):
    """One of them, and whom it concerns."""

    what: LauncherEventKind
    child: NodeProcess | None = None


class LocalCluster:
    """Handles one event after the other."""

    def __init__(self, ready: Callable[[Sequence[NodeProcess]], None], *, is_verbose: bool = False) -> None:
        self._announce = ready
        self._is_verbose = is_verbose
        self._children: list[NodeProcess] = []
        self._left: list[NodeProcess] = []
        # Bounded by what can happen: a node is ready once and ends once.
        self._happenings: asyncio.Queue[LauncherEvent] = asyncio.Queue()
        self._is_ready = False
        self._is_stopping = False
        self._hurried = False
        self._failure: str | None = None

    async def run(self, commands: Sequence[tuple[int, Sequence[str]]]) -> int:
        """Run nodes with these numbers and arguments; returns the exit code."""
        loop = asyncio.get_running_loop()
        for asked in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            if asked is signal.SIGHUP and signal.getsignal(asked) is signal.SIG_IGN:
                continue  # `nohup`: the end of the terminal is not the end of the cluster
            loop.add_signal_handler(asked, self._happenings.put_nowait, LauncherEvent(LauncherEventKind.TOLD))
        async with asyncio.TaskGroup() as group:
            for number, arguments in commands:
                child = await NodeProcess.start(number, arguments)
                self._children.append(child)
                self._left.append(child)
                group.create_task(self._follow(child))
            while self._left:
                await self._next()
        if self._failure is not None:
            raise ClusterNotStarted(self._failure)
        if not self._is_stopping:
            return FAILED
        write_error(f"penstock: stopped {counted(len(self._children), 'node')}")
        return DONE

    async def _follow(self, child: NodeProcess) -> None:
        """Report what happens to a child, from its start to its end."""
        async with asyncio.TaskGroup() as group:
            relayed = group.create_task(child.relay(write_error, self._is_wanted))
            if await child.await_ready():
                self._happenings.put_nowait(LauncherEvent(LauncherEventKind.READY, child))
            await child.ended()
            # Its last lines may still be on their way; something it has started may hold the pipe open.
            with suppress(TimeoutError):
                await asyncio.wait_for(asyncio.shield(relayed), 1)
            relayed.cancel()
        self._happenings.put_nowait(LauncherEvent(LauncherEventKind.ENDED, child))

    def _is_wanted(self, line: str) -> bool:
        """Nodes that stop one after the other log how the rest takes over: not shown here."""
        return self._is_verbose or not self._is_stopping or not is_routine(line)

    async def _next(self) -> None:
        try:
            happening = await asyncio.wait_for(self._happenings.get(), LOOK_SECONDS)
        except TimeoutError:
            if not self._is_ready and not self._is_stopping:
                waiting = " and ".join(f"node {child.number}" for child in self._children if not child.ready)
                write_error(f"penstock: still waiting for {waiting}")
            return
        match happening:
            case LauncherEvent(LauncherEventKind.READY):
                self._one_ready()
            case LauncherEvent(LauncherEventKind.ENDED, child):
                assert child is not None
                self._one_ended(child)
            case LauncherEvent(LauncherEventKind.OVERDUE, child):
                assert child is not None
                if child.is_running:
                    write_error(f"penstock: node {child.number} did not stop in {STOP_SECONDS} s: killing it")
                    child.send(signal.SIGKILL)
            case LauncherEvent(LauncherEventKind.TOLD):
                self._told_to_stop()

    def _one_ready(self) -> None:
        if not self._is_ready and not self._is_stopping and all(child.ready for child in self._children):
            self._is_ready = True
            self._announce(self._children)

    def _one_ended(self, child: NodeProcess) -> None:
        self._left.remove(child)
        if self._is_stopping:
            self._stop_next()
        elif not self._is_ready:
            self._failure = f"node {child.number} did not start: {child.last_words}"
            self._is_stopping = True
            self._stop_next()
        else:
            write_error(f"penstock: node {child.number} ended ({child.ending}): {child.last_words}")
            write_error(f"penstock: {self._account()}")

    def _account(self) -> str:
        """Who is left, and what that means."""
        alive, all_ = len(self._left), len(self._children)
        if not alive:
            return "no node is left"
        left = f"{alive} of {all_} nodes {'is' if alive == 1 else 'are'} left"
        if self._has_majority:
            return f"{left}, a majority: the cluster goes on"
        return f"{left}, no majority: nothing can be written or changed until more are back"

    def _told_to_stop(self) -> None:
        if self._is_stopping and not self._hurried:
            # Asked twice: no more waiting for one another.
            self._hurried = True
            for child in self._left:
                self._ask_to_stop(child)
            return
        self._is_stopping = True
        self._stop_next()

    def _stop_next(self) -> None:
        """Ask the next one to stop: one after the other while a majority is left, then all."""
        if self._hurried:
            return
        if not self._has_majority:
            self._hurried = True
        for child in self._left if self._hurried else self._left[-1:]:
            self._ask_to_stop(child)

    @property
    def _has_majority(self) -> bool:
        return len(self._left) * 2 > len(self._children)

    def _ask_to_stop(self, child: NodeProcess) -> None:
        child.send(signal.SIGTERM)
        overdue = LauncherEvent(LauncherEventKind.OVERDUE, child)
        asyncio.get_running_loop().call_later(STOP_SECONDS, self._happenings.put_nowait, overdue)


@dataclass(frozen=True, slots=True)
class NodePlan:
    """One node: its number, where it keeps its data, and the settings that are its own."""

    number: int
    data_dir: str
    values: Mapping[str, Any]

    @property
    def listeners(self) -> Listeners:
        """Where it is going to listen, by the setting that says so."""
        found: Listeners = {}
        for key, value in self.values.items():
            if key == LISTENERS:
                found |= {f"{LISTENERS} {one.name}": one.bind for one in value}
            elif isinstance(value, ListenAddress) and key not in UNSERVED:
                found[key] = value
        return found

    def at(self, listeners: Listeners) -> "NodePlan":
        """The same node, listening exactly there."""
        values = dict(self.values)
        for key, value in self.values.items():
            if key == LISTENERS:
                values[key] = tuple(one._replace(bind=listeners[f"{LISTENERS} {one.name}"]) for one in value)
            elif key in listeners:
                values[key] = listeners[key]
        return replace(self, values=values)

    def with_voters(self, voters: tuple[VoterAddress, ...]) -> "NodePlan":
        return replace(self, values={**self.values, "cluster.voters": voters})

    def assignments(self) -> Iterator[str]:
        """Its settings as `--set` takes them."""
        yield f"node.id={self.number}"
        yield f"node.data_dir={self.data_dir}"
        for key, value in self.values.items():
            yield f"{key}={SETTINGS[key].show(value)}"


def plan_nodes(loaded: LoadedConfig, count: int) -> list[NodePlan]:
    """The nodes that a configuration stands for; ConfigError says why there can be none."""
    _check(loaded, count)
    data_dir = os.path.abspath(data_dir_of(loaded))
    return [
        NodePlan(number, os.path.join(data_dir, f"node-{number}"), dict(_addresses(loaded, number)))
        for number in range(1, count + 1)
    ]


def data_dir_of(loaded: LoadedConfig) -> str:
    """Where a local cluster keeps the directories of its nodes."""
    if loaded.origins["node.data_dir"] == DEFAULT_SOURCE:
        return DATA_DIR_DEFAULT
    return loaded.config.node.data_dir


def voters_of(plans: list[NodePlan]) -> tuple[VoterAddress, ...]:
    """The first voters, at the addresses in their plans."""
    found = []
    for plan in plans:
        peer: ListenAddress = plan.values[PEER]
        host = LOOPBACK if peer.is_every_interface else peer.host
        found.append(VoterAddress(plan.number, ListenAddress(host, peer.port)))
    return tuple(found)


def _addresses(loaded: LoadedConfig, number: int) -> Iterator[tuple[str, Any]]:
    for key, value in loaded.values.items():
        if not key.startswith("listen."):
            continue
        if key == PEER:
            yield key, _shifted(key, PEER_DEFAULT if value == "auto" else value, number)
        elif key == LISTENERS:
            yield key, tuple(_shifted_listener(one, number) for one in value)
        elif not _is_served(key, loaded.config):
            continue
        elif isinstance(value, ListenAddress):
            yield key, _shifted(key, value, number)


def _is_served(key: str, config: Config) -> bool:
    return config.metrics.enabled if key == "listen.metrics" else key != "listen.grpc" or config.rest.enabled


def _shifted_listener(listener: ListenerSetting, number: int) -> ListenerSetting:
    advertised = listener.advertised
    if advertised != "auto":
        advertised = _shifted(LISTENERS, advertised, number)
    return listener._replace(bind=_shifted(LISTENERS, listener.bind, number), advertised=advertised)


def _shifted(key: str, address: ListenAddress, number: int) -> ListenAddress:
    if address.port == 0:
        return address
    port = address.port + PORT_STEP * (number - 1)
    if port > PORT_MAX:
        raise ConfigError([f"{key} = {address} is too high: node {number} would need port {port}"])
    return ListenAddress(address.host, port)


def _check(loaded: LoadedConfig, count: int) -> None:
    problems = [
        f"{key} ({loaded.origins[key]}) and --brokers do not go together: a local cluster numbers its "
        "nodes from 1, and each is broker and controller"
        for key in DECIDED
        if loaded.values[key] != SETTINGS[key].default
    ]
    data_dir = data_dir_of(loaded)
    if os.path.isdir(os.path.join(data_dir, "meta")):
        problems.append(f"{data_dir} is the data directory of a single node: choose another with --data-dir")
    # A majority of the first voters must be started, or none of them can do anything.
    left_out = [number for number in range(count + 1, BROKERS_MAX + 1) if _exists(data_dir, number)]
    if left_out:
        problems.append(
            f"{data_dir} holds data up to node {left_out[-1]}: start it with --brokers {left_out[-1]}, "
            "or choose another directory with --data-dir"
        )
    if problems:
        raise ConfigError(problems)


def _exists(data_dir: str, number: int) -> bool:
    return os.path.isdir(os.path.join(data_dir, f"node-{number}"))


def run_local_cluster(loaded: LoadedConfig, count: int, sources: Sequence[str], as_json: bool) -> int:
    """Run `count` nodes until they are stopped; `sources` are the arguments that say what `loaded` says."""
    if problems := not_available(loaded.config):
        raise ConfigError(problems)
    plans = plan_nodes(loaded, count)
    reserved = _reserve(plans)
    try:
        plans = [plan.at(listeners) for plan, listeners in zip(plans, _found(plans, reserved), strict=True)]
        voters = voters_of(plans)
        events = ("--set", f"logging.format={_format(loaded)}")
        commands = [
            (plan.number, [*sources, *events, *_set(plan.with_voters(voters).assignments())])
            for plan in plans
        ]

        def ready(children: Sequence[NodeProcess]) -> None:
            reserved.close()
            sys.stdout.write(ready_line(data_dir_of(loaded), children, as_json) + "\n")
            sys.stdout.flush()

        return asyncio.run(
            LocalCluster(ready, is_verbose=loaded.config.logging.level == "debug").run(commands)
        )
    finally:
        reserved.close()


def ready_line(data_dir: str, children: Sequence[NodeProcess], as_json: bool) -> str:
    """Every address of every node, on one line."""
    nodes = [child.ready for child in children if child.ready is not None]
    listeners = {
        name: ",".join(node[name] for node in nodes)
        for name in ("kafka", "http", "grpc", "metrics", "peer")
        if name in nodes[0]
    }
    if as_json:
        return json.dumps(
            {
                "event": "ready",
                "brokers": len(nodes),
                "pid": os.getpid(),
                "data_dir": os.path.abspath(data_dir),
                **listeners,
                "nodes": nodes,
            }
        )
    count = "1 node" if len(nodes) == 1 else f"{len(nodes)} nodes"
    shown = ", ".join(f"{name} {addresses}" for name, addresses in listeners.items())
    return f"ready: {count}, {shown}, data in {data_dir}"


def _reserve(plans: Sequence[NodePlan]) -> PortReservations:
    """Reserve every address until the nodes listen: two starts at a time must not find the same ports."""
    try:
        return PortReservations(
            {
                f"{plan.number} {key}": Address(listener.host, listener.port)
                for plan in plans
                for key, listener in plan.listeners.items()
            }
        )
    except AddressInUse as taken:
        number, key, *_ = taken.name.split()
        flag = next((flag for flag, setting in FLAGS.items() if setting == key), key)
        raise ClusterNotStarted(
            f"{taken}: {other_address(flag)}; node {number} adds {PORT_STEP * (int(number) - 1)} to it"
        ) from taken


def _found(plans: Sequence[NodePlan], reserved: PortReservations) -> Iterator[dict[str, ConfiguredAddress]]:
    for plan in plans:
        yield {key: ConfiguredAddress(*reserved[f"{plan.number} {key}"]) for key in plan.listeners}


def _format(loaded: LoadedConfig) -> str:
    """The nodes write to a pipe; what `auto` means is decided by where their lines end up."""
    chosen = loaded.config.logging.format
    if chosen != "auto":
        return chosen
    return "text" if sys.stderr.isatty() else "json"


def _set(assignments: Iterator[str]) -> Iterator[str]:
    for assignment in assignments:
        yield from ("--set", assignment)
