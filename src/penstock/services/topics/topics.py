"""Creating, deleting and growing topics."""

from collections.abc import Callable, Mapping, Sequence
from typing import TypeAlias
from uuid import UUID

from penstock.core.metadata import (
    AlteredPartition,
    CreatedPartitions,
    CreatedTopic,
    CreatePartitions,
    CreateTopic,
    DeletedTopic,
    DeleteTopic,
    ElectLeader,
    ReassignPartition,
    broker_setting,
    is_internal,
)
from penstock.core.metadata.configs import NO_CONFIGS
from penstock.core.model import Refused, TopicId, Why
from penstock.runtime import Runtime
from penstock.services.cluster import Controller
from penstock.services.partitions import Partitions
from penstock.services.topics.gathering import TIMEOUT_MS, Gathering, duplicates
from penstock.services.topics.internal import internal_topic
from penstock.services.topics.wanted import MorePartitions, NewTopic

Created: TypeAlias = Callable[[list[CreatedTopic | Refused]], None]
Deleted: TypeAlias = Callable[[list[DeletedTopic | Refused]], None]
Grown: TypeAlias = Callable[[list[CreatedPartitions | Refused]], None]
Changed: TypeAlias = Callable[[list[AlteredPartition | Refused]], None]
CreatedOne: TypeAlias = Callable[[CreatedTopic | Refused], None]
_DUPLICATE = Refused(Why.INVALID_REQUEST, "the request names this topic more than once")


class Topics:
    """The use cases around whole topics. No `done` is called inside the call that it was given to."""

    def __init__(
        self,
        runtime: Runtime,
        controller: Controller,
        partitions: Partitions,
        static: Mapping[str, str] = NO_CONFIGS,
    ) -> None:
        self._runtime = runtime
        self._controller = controller
        self._partitions = partitions
        self._static = static
        self._creating: dict[str, list[CreatedOne]] = {}

    def create(
        self,
        wanted: Sequence[NewTopic],
        done: Created,
        *,
        validate_only: bool = False,
        timeout_ms: int = TIMEOUT_MS,
    ) -> None:
        """Create topics, each on its own; answers when their logs are there."""
        settle = None if validate_only else self._partitions.when_settled
        gathering = Gathering(self._runtime, CreatedTopic, len(wanted), done, timeout_ms, settle)
        twice = duplicates([topic.name for topic in wanted])
        for index, topic in enumerate(wanted):
            if topic.name in twice:
                gathering.refuse(index, _DUPLICATE)
            else:
                self._controller.submit(self._command(topic, validate_only), gathering.slot(index))

    def _command(self, topic: NewTopic, validate_only: bool) -> CreateTopic:
        return CreateTopic(
            topic.name,
            TopicId(UUID(bytes=self._runtime.entropy.bytes(16), version=4)),
            topic.partitions,
            topic.replication_factor,
            topic.assignments,
            topic.configs,
            validate_only,
        )

    def delete(self, doomed: Sequence[str | TopicId], done: Deleted, *, timeout_ms: int = TIMEOUT_MS) -> None:
        """Delete topics by name or id; answers when nobody is served from them any more."""
        gathering = Gathering(self._runtime, DeletedTopic, len(doomed), done, timeout_ms)
        for index, which in enumerate(doomed):
            command = DeleteTopic(name=which) if isinstance(which, str) else DeleteTopic(topic_id=which)
            self._controller.submit(command, gathering.slot(index))

    def add_partitions(
        self,
        wanted: Sequence[MorePartitions],
        done: Grown,
        *,
        validate_only: bool = False,
        timeout_ms: int = TIMEOUT_MS,
    ) -> None:
        """Let topics have more partitions; answers when their logs are there."""
        settle = None if validate_only else self._partitions.when_settled
        gathering = Gathering(self._runtime, CreatedPartitions, len(wanted), done, timeout_ms, settle)
        twice = duplicates([more.name for more in wanted])
        for index, more in enumerate(wanted):
            if more.name in twice:
                gathering.refuse(index, _DUPLICATE)
                continue
            command = CreatePartitions(more.name, more.count, more.assignments, validate_only)
            self._controller.submit(command, gathering.slot(index))

    def reassign(
        self, wanted: Sequence[ReassignPartition], done: Changed, *, timeout_ms: int = TIMEOUT_MS
    ) -> None:
        """Start moves of partitions, or call them off; answers when that is decided, not when they end."""
        self._change(wanted, done, timeout_ms)

    def elect(self, wanted: Sequence[ElectLeader], done: Changed, *, timeout_ms: int = TIMEOUT_MS) -> None:
        """Give partitions other leaders; answers when that is decided."""
        self._change(wanted, done, timeout_ms)

    def _change(
        self, wanted: Sequence[ReassignPartition | ElectLeader], done: Changed, timeout_ms: int
    ) -> None:
        gathering = Gathering(self._runtime, AlteredPartition, len(wanted), done, timeout_ms)
        for index, command in enumerate(wanted):
            self._controller.submit(command, gathering.slot(index))

    def auto_create(self, name: str, done: CreatedOne, *, timeout_ms: int = TIMEOUT_MS) -> None:
        """Create a topic because a client asked for it; those who ask meanwhile share answer and timeout.

        Internal topics are made whenever they are asked for, others if
        `auto.create.topics.enable` says so. A topic that exists is an answer too.
        """
        waiting = self._creating.get(name)
        if waiting is not None:
            waiting.append(done)
            return
        allowed = broker_setting(self._controller.image, "auto.create.topics.enable", static=self._static)
        if not (allowed or is_internal(name)):
            refusal = Refused(Why.UNKNOWN_TOPIC, f"there is no topic '{name}'")
            self._runtime.timers.soon(lambda: done(refusal))
            return
        self._creating[name] = [done]
        self.create(
            [self._automatic(name)],
            lambda replies: self._created(name, replies[0]),
            timeout_ms=timeout_ms,
        )

    def _automatic(self, name: str) -> NewTopic:
        special = internal_topic(name, self._controller.image, self._static)
        return NewTopic(name) if special is None else special

    def _created(self, name: str, reply: CreatedTopic | Refused) -> None:
        topic = self._controller.image.topic(name)
        if isinstance(reply, Refused) and reply.why is Why.TOPIC_EXISTS and topic is not None:
            # Somebody else was faster: whoever asked has what they wanted.
            reply = CreatedTopic(topic.name, topic.id, len(topic.partitions), topic.replication_factor)
        for done in self._creating.pop(name):
            done(reply)
