"""Topics, configuration and counters against a model that a reader can check at a glance."""

from dataclasses import dataclass, field

from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.core.metadata import (
    AllocateProducerIds,
    AlterConfigs,
    ConfigOperation,
    ConfigResourceType,
    CreatePartitions,
    CreateTopic,
    DeleteTopic,
    IncrementalAlterConfigs,
    MetadataImage,
    MetadataMachine,
    ProducerIdBlock,
    RegisterBroker,
    RegisteredBroker,
    Reply,
    is_internal,
)
from penstock.core.metadata.commands import Command
from penstock.core.model import ApiError, Instant, TopicId
from tests.property.metadata.metadata_worlds import commands


@dataclass
class Model:
    """Dictionaries and counters, updated only by accepted commands."""

    topics: dict[str, tuple[TopicId, int]] = field(default_factory=dict)
    configs: dict[str, dict[str, str]] = field(default_factory=dict)
    blocks: int = 0
    broker_epochs: list[int] = field(default_factory=list)

    def must_refuse(self, command: Command) -> bool:
        match command:
            case CreateTopic():
                return self._must_refuse_topic(command)
            case CreatePartitions():
                present = self.topics.get(command.name)
                return present is None or command.count <= present[1] or is_internal(command.name)
            case DeleteTopic():
                return command.name not in self.topics and command.topic_id not in self._ids()
            case AlterConfigs() | IncrementalAlterConfigs():
                topic = command.resource.kind is ConfigResourceType.TOPIC
                return topic and command.resource.name not in self.topics
            case _:
                return False

    def _ids(self) -> frozenset[TopicId]:
        return frozenset(topic_id for topic_id, _ in self.topics.values())

    def _must_refuse_topic(self, command: CreateTopic) -> bool:
        taken = {name.replace(".", "_") for name in self.topics}
        known = command.name.replace(".", "_") in taken or command.topic_id in self._ids()
        bad_value = any(key == "unknown.key" or value == "never" for key, value in command.configs)
        return known or bad_value or " " in command.name or command.partitions == 0

    def accept(self, command: Command, reply: Reply, image: MetadataImage) -> None:
        match command:
            case CreateTopic() | CreatePartitions() if command.validate_only:
                pass
            case CreateTopic():
                by_default = command.partitions if command.partitions > 0 else 6
                self.topics[command.name] = (command.topic_id, len(command.assignments) or by_default)
                self.configs[command.name] = {k: v for k, v in command.configs if v is not None}
                if is_internal(command.name):
                    # The cluster gives them settings of its own; which, is checked in unit tests.
                    self.configs[command.name] = dict(image.config(ConfigResourceType.TOPIC, command.name))
            case CreatePartitions():
                self.topics[command.name] = (self.topics[command.name][0], command.count)
            case DeleteTopic():
                self._delete(command)
            case AlterConfigs() | IncrementalAlterConfigs():
                self._configure(command, image)
            case AllocateProducerIds() | RegisterBroker():
                self._count(reply)
            case _:
                pass

    def _delete(self, command: DeleteTopic) -> None:
        for name, (topic_id, _) in list(self.topics.items()):
            if command.name == name or command.topic_id == topic_id:
                del self.topics[name], self.configs[name]

    def _configure(self, command: AlterConfigs | IncrementalAlterConfigs, image: MetadataImage) -> None:
        kind, name = command.resource
        if kind is not ConfigResourceType.TOPIC:
            return
        if isinstance(command, AlterConfigs):
            self.configs[name] = {key: value for key, value in command.values if value is not None}
            return
        for operation, key, value in command.changes:
            match operation:
                case ConfigOperation.SET:
                    assert value is not None
                    self.configs[name][key] = value
                case ConfigOperation.DELETE:
                    self.configs[name].pop(key, None)
                case _:
                    # What lists become is checked in unit tests.
                    self.configs[name] = dict(image.config(kind, name))

    def _count(self, reply: Reply) -> None:
        if isinstance(reply, ProducerIdBlock):
            assert reply.start == self.blocks * 1_000
            self.blocks += 1
        else:
            assert isinstance(reply, RegisteredBroker)
            assert reply.epoch not in self.broker_epochs
            self.broker_epochs.append(reply.epoch)

    def matches(self, image: MetadataImage) -> None:
        assert {t.name: (t.id, len(t.partitions)) for t in image.each_topic()} == self.topics
        assert image.topic_names() == sorted(self.topics)
        configured = image.configured(ConfigResourceType.TOPIC)
        assert configured == sorted(name for name, values in self.configs.items() if values)
        assert all(image.config(ConfigResourceType.TOPIC, name) == self.configs[name] for name in configured)
        assert image.next_producer_id == self.blocks * 1_000


@given(st.data())
@settings(max_examples=150, deadline=None)
def test_topics_and_counters_follow_the_model(data: st.DataObject) -> None:
    machine = MetadataMachine()
    model = Model()

    for _ in range(data.draw(st.integers(1, 30))):
        command = data.draw(commands(machine.image))
        decision = machine.decide(command, Instant(0))
        machine.replay(decision.facts)

        if isinstance(decision.reply, ApiError):
            assert decision.reply.detail
        else:
            assert not model.must_refuse(command)
            model.accept(command, decision.reply, machine.image)
        model.matches(machine.image)
