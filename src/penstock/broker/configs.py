"""Changing and showing configuration."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple, TypeAlias

from penstock.broker.cluster import Controller
from penstock.broker.topics import CommandQueue, ReplyCollector
from penstock.core.metadata import (
    ALL_BROKERS,
    AlterConfigs,
    ConfigChange,
    ConfigResource,
    ConfigResourceType,
    IncrementalAlterConfigs,
    Ok,
    describe_configs,
    layers_for,
)
from penstock.core.metadata.configs import NO_CONFIGS, DescribedConfig, describe_all
from penstock.core.metadata.effective_configs import topic_defaults
from penstock.core.model import ApiError, ErrorKind, NodeId
from penstock.runtime import Runtime
from penstock.runtime.fair_queue import Account
from penstock.runtime.sliced_work import NODE_ACCOUNT, SlicedWork


class ConfigValues(NamedTuple):
    """The complete new configuration of a resource."""

    resource: ConfigResource
    values: tuple[tuple[str, str | None], ...]


class ConfigChanges(NamedTuple):
    """Changes to single keys of a resource."""

    resource: ConfigResource
    changes: tuple[ConfigChange, ...]


Altered: TypeAlias = Callable[[list[Ok | ApiError]], None]


class ConfigService:
    """Configuration of topics, brokers, groups and client metrics; `static` is this node's own."""

    def __init__(
        self,
        runtime: Runtime,
        controller: Controller,
        node_id: NodeId,
        static: Mapping[str, str] = NO_CONFIGS,
        work: SlicedWork | None = None,
    ) -> None:
        self._runtime = runtime
        self._controller = controller
        self._node_id = node_id
        self._static = static
        self._commands = CommandQueue(runtime, controller, work)

    def alter(
        self,
        wanted: Sequence[ConfigValues],
        done: Altered,
        *,
        validate_only: bool = False,
        account: Account = NODE_ACCOUNT,
    ) -> None:
        """Replace whole configurations, each on its own."""
        gathering = ReplyCollector(self._runtime, Ok, len(wanted), done)
        commands = (
            (AlterConfigs(resource, values, validate_only), gathering.slot(index))
            for index, (resource, values) in enumerate(wanted)
        )
        self._commands.submit(commands, account)

    def change(
        self,
        wanted: Sequence[ConfigChanges],
        done: Altered,
        *,
        validate_only: bool = False,
        account: Account = NODE_ACCOUNT,
    ) -> None:
        """Change single keys, each resource on its own."""
        gathering = ReplyCollector(self._runtime, Ok, len(wanted), done)
        commands = (
            (IncrementalAlterConfigs(resource, changes, validate_only), gathering.slot(index))
            for index, (resource, changes) in enumerate(wanted)
        )
        self._commands.submit(commands, account)

    def describe(
        self, resource: ConfigResource, keys: tuple[str, ...] | None = None
    ) -> tuple[DescribedConfig, ...] | ApiError:
        """Every key of a resource as it applies on this node, or the requested ones."""
        image = self._controller.image
        if resource.kind is ConfigResourceType.TOPIC and image.topic(resource.name) is None:
            return ApiError(ErrorKind.UNKNOWN_TOPIC, f"there is no topic '{resource.name}'")
        if resource.kind is ConfigResourceType.BROKER and resource.name not in (
            ALL_BROKERS,
            str(self._node_id),
        ):
            detail = f"this is broker {self._node_id}, which does not know the settings of {resource.name!r}"
            return ApiError(ErrorKind.INVALID_REQUEST, detail)
        # The settings that brokers share are shown without this broker's own.
        static = NO_CONFIGS if _is_shared(resource) else self._static
        return describe_configs(image, resource, self._node_id, static, keys)

    def preview(
        self, name: str, own: Mapping[str, str], replication_factor: int
    ) -> tuple[DescribedConfig, ...]:
        """Every key of a topic with these values, which was just created or is only validated."""
        resource = ConfigResource(ConfigResourceType.TOPIC, name)
        layers = layers_for(self._controller.image, resource, self._node_id, self._static)
        return describe_all(replace(layers, own=own, defaults=topic_defaults(replication_factor)))


def _is_shared(resource: ConfigResource) -> bool:
    return resource.kind is ConfigResourceType.BROKER and resource.name == ALL_BROKERS
