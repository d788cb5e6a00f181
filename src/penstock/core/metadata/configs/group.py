"""The configuration of groups; keys of features that do not exist are fixed."""

from penstock.core.metadata.configs.definition import (
    ConfigDefinition,
    ConfigSynonym,
    ConfigType,
    at_least,
    by_name,
)

NO_SHARE_GROUPS = "there are no share groups so far"


def _shared(name: str, default: str, about: str, reason: str | None = None) -> ConfigDefinition:
    """A key that follows the broker's."""
    synonyms = (ConfigSynonym(f"group.{name}"),)
    if reason is None:
        return ConfigDefinition(name, ConfigType.INT, default, about, at_least(1), synonyms=synonyms)
    return ConfigDefinition(name, ConfigType.INT, default, about, synonyms=synonyms, fixed=reason)


_GROUPS = (
    _shared(
        "consumer.session.timeout.ms",
        "45000",
        "Silence after which a member of this group counts as gone.",
    ),
    _shared(
        "consumer.heartbeat.interval.ms",
        "500",
        "How often members of this group send a heartbeat.",
    ),
    _shared(
        "share.session.timeout.ms",
        "45000",
        "Silence after which a member of this share group counts as gone.",
        NO_SHARE_GROUPS,
    ),
    _shared(
        "share.heartbeat.interval.ms",
        "500",
        "How often members of this share group send a heartbeat.",
        NO_SHARE_GROUPS,
    ),
    _shared(
        "share.record.lock.duration.ms",
        "30000",
        "How long a record delivered to this share group stays locked.",
        NO_SHARE_GROUPS,
    ),
    _shared(
        "share.delivery.count.limit",
        "4",
        "Deliveries of a record to this share group before it is given up.",
        NO_SHARE_GROUPS,
    ),
    _shared(
        "share.partition.max.record.locks",
        "2000",
        "Records of one partition that this share group may have in flight.",
        NO_SHARE_GROUPS,
    ),
    ConfigDefinition(
        "share.auto.offset.reset",
        ConfigType.STRING,
        "latest",
        "Where this share group begins on a partition that it has not read: earliest, latest or "
        "by_duration:<ISO 8601 duration>.",
        fixed=NO_SHARE_GROUPS,
    ),
    ConfigDefinition(
        "share.isolation.level",
        ConfigType.STRING,
        "read_uncommitted",
        "Whether this share group is given records of transactions that are still open or were aborted.",
        fixed=NO_SHARE_GROUPS,
    ),
)
GROUP_CONFIGS = by_name(_GROUPS)
