"""A client that changes the metadata: topics come and go, grow, and are configured."""

from collections.abc import Callable
from functools import partial
from typing import NamedTuple

from penstock.core.metadata import ConfigChange, ConfigOperation, ConfigResource, ResourceKind
from penstock.core.model import Refused, Why
from penstock.services.topics import ConfigChanges, MorePartitions, NewTopic
from penstock.simulation.checkers.metadata import Change
from penstock.simulation.cluster.clients.client import Client, Nodes
from penstock.simulation.cluster.door import SETTING, Act, Changed, Door, Register, What
from penstock.simulation.cluster.options import ClusterOptions

TIMEOUT_MS = 1_000
PARTITIONS_MAX = 4
# Nobody knows what became of it.
UNCERTAIN = (Why.NOT_CONTROLLER, Why.TIMED_OUT, Why.STORAGE_FAILED)


class Wish(NamedTuple):
    """What a register shall be, how to ask for it, and the refusal that says that it is so already."""

    register: Register
    value: bool | int | str
    act: Act
    already: Why | None


class Admin(Client):
    """Asks any node for one change after the other, each until it is done or refused for good."""

    def __init__(self, nodes: Nodes, host: str, options: ClusterOptions) -> None:
        super().__init__(nodes, host)
        # A topic that is never deleted: it is configured, and grows.
        self._settled = f"{host}-settled"
        self._partitions = 0
        self._replicas = options.replicas
        self._pace_ms = options.pace_ms * 2
        self._topics: list[str] = []
        self._made = 0
        self._stopped = False

    def start(self) -> None:
        self._wish(self._creation(self._settled), self._begun)

    def _begun(self) -> None:
        self._partitions = 1
        self._rest()

    def stop(self) -> None:
        self._stopped = True

    def _rest(self) -> None:
        if not self._stopped:
            self.after_ms(self._pace_ms * 2 * self.luck.random(), self._step)

    def _step(self) -> None:
        luck = self.luck.random()
        if luck < 0.35 or not self._topics:
            self._made += 1
            name = f"{self.host}-{self._made}"
            self._topics.append(name)
            self._wish(self._creation(name), self._rest)
        elif luck < 0.6:
            name = self._topics.pop(self.luck.randrange(len(self._topics)))
            self._wish(_deletion(name), self._rest)
        elif luck < 0.65 and self._partitions < PARTITIONS_MAX:
            self._partitions += 1
            self._wish(_growth(self._settled, self._partitions), self._rest)
        else:
            self._wish(_setting(self._settled, self.luck.randint(10_000, 1_000_000)), self._rest)

    def _creation(self, name: str) -> Wish:
        wanted = [NewTopic(name, 1, self._replicas)]
        return Wish(
            Register(What.EXISTS, name),
            True,
            lambda backend, done: backend.topics.create(wanted, done, timeout_ms=TIMEOUT_MS),
            Why.TOPIC_EXISTS,
        )

    def _wish(self, wish: Wish, then: Callable[[], None]) -> None:
        change = self.journal.metadata.changing(wish.register, wish.value)

        def answered(reply: object) -> None:
            if self._is_over(wish, change, reply):
                then()
            elif not self._stopped:
                self.after_ms(self.backoff_ms(), self._wish, wish, then)

        self.ask(self.any_node(), partial(Door.change, act=wish.act), answered)

    def _is_over(self, wish: Wish, change: Change, answer: object) -> bool:
        if not isinstance(answer, Changed):
            return False
        reply, metadata = answer.reply, self.journal.metadata
        if not isinstance(reply, Refused) or reply.why is wish.already:
            metadata.done(change, answer.version)
            return True
        if reply.why in UNCERTAIN:
            return False
        # Too few brokers are there, or the topic is gone because a creation was refused.
        metadata.refused(change)
        return wish.register.topic != self._settled


def _deletion(name: str) -> Wish:
    return Wish(
        Register(What.EXISTS, name),
        False,
        lambda backend, done: backend.topics.delete([name], done, timeout_ms=TIMEOUT_MS),
        Why.UNKNOWN_TOPIC,
    )


def _growth(name: str, count: int) -> Wish:
    wanted = [MorePartitions(name, count)]
    return Wish(
        Register(What.PARTITIONS, name),
        count,
        lambda backend, done: backend.topics.add_partitions(wanted, done, timeout_ms=TIMEOUT_MS),
        Why.INVALID_PARTITIONS,
    )


def _setting(name: str, value: int) -> Wish:
    change = ConfigChange(ConfigOperation.SET, SETTING, str(value))
    wanted = [ConfigChanges(ConfigResource(ResourceKind.TOPIC, name), (change,))]
    return Wish(
        Register(What.SETTING, name),
        str(value),
        lambda backend, done: backend.configs.change(wanted, done),
        None,
    )
