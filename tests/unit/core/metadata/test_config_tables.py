"""The tables of configuration keys are sound in themselves."""

import pytest

from penstock.core.metadata import ConfigResourceType
from penstock.core.metadata.configs import (
    BROKER_CONFIGS,
    ConfigDefinition,
    ConfigLayers,
    ConfigType,
    definitions,
)

EVERY = [(kind, definition) for kind in ConfigResourceType for definition in definitions(kind).values()]
NAMES = [f"{kind.name.lower()}:{definition.name}" for kind, definition in EVERY]

KAFKA_TOPIC_KEYS = """
cleanup.policy compression.gzip.level compression.lz4.level compression.type compression.zstd.level
delete.retention.ms file.delete.delay.ms flush.messages flush.ms follower.replication.throttled.replicas
index.interval.bytes leader.replication.throttled.replicas local.retention.bytes local.retention.ms
max.compaction.lag.ms max.message.bytes message.timestamp.after.max.ms message.timestamp.before.max.ms
message.timestamp.type min.cleanable.dirty.ratio min.compaction.lag.ms min.insync.replicas preallocate
remote.log.copy.disable remote.log.delete.on.disable remote.storage.enable retention.bytes retention.ms
segment.bytes segment.index.bytes segment.jitter.ms segment.ms unclean.leader.election.enable
"""


def test_topics_have_the_keys_of_kafka_4_and_two_of_our_own() -> None:
    assert sorted(definitions(ConfigResourceType.TOPIC)) == sorted(
        [*KAFKA_TOPIC_KEYS.split(), "encryption.at.rest", "penstock.validation"]
    )


@pytest.mark.parametrize(("kind", "definition"), EVERY, ids=NAMES)
def test_a_definition_is_sound(kind: ConfigResourceType, definition: ConfigDefinition) -> None:
    assert definition.default is None or definition.problem(definition.default) is None
    assert definition.documentation.endswith(".")
    assert all(synonym.name in BROKER_CONFIGS for synonym in definition.synonyms)
    assert definition.type is not ConfigType.PASSWORD or definition.default is None
    if kind is not ConfigResourceType.BROKER and definition.synonyms:
        # The default on the page is the one that the layers end in.
        assert ConfigLayers(kind).text(definition) == definition.default
