"""Which names a topic may have."""

import re

NAME_LENGTH_MAX = 249
_ALLOWED = re.compile(r"[a-zA-Z0-9._-]+", re.ASCII)
OFFSETS_TOPIC = "__consumer_offsets"
TRANSACTIONS_TOPIC = "__transaction_state"
QUEUES_TOPIC = "__queue_state"
DELAYED_TOPIC = "__delayed"
AUDIT_TOPIC = "__audit"
INTERNAL_TOPICS = (OFFSETS_TOPIC, TRANSACTIONS_TOPIC, QUEUES_TOPIC, DELAYED_TOPIC, AUDIT_TOPIC)
# Kafka keeps its metadata under this name; tools expect that it cannot be created.
METADATA_TOPIC = "__cluster_metadata"


def is_internal(name: str) -> bool:
    """Whether the cluster itself keeps state in the topic of this name."""
    return name in INTERNAL_TOPICS


def problem_with_name(name: str) -> str | None:
    """What is wrong with a topic name, as a sentence; None if nothing is."""
    if not name:
        return "a topic name must not be empty"
    if name in (".", ".."):
        return f"'{name}' is not allowed as a topic name"
    if len(name) > NAME_LENGTH_MAX:
        return f"a topic name has at most {NAME_LENGTH_MAX} characters, this one has {len(name)}"
    if not _ALLOWED.fullmatch(name):
        return f"topic name {name!r} has characters other than ASCII letters, digits, '.', '_' and '-'"
    return None


def collision_key(name: str) -> str | None:
    """What names that differ only in '.' and '_' have in common; None if `name` has neither.

    Metric names cannot tell such topics apart, so Kafka rejects the second one.
    """
    if "." not in name and "_" not in name:
        return None
    return name.replace(".", "_")
