"""DescribeConfigs: the settings of topics, brokers, groups and client metrics."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import chain

from penstock.core.metadata import ConfigResource, ConfigResourceType, problem_with_name
from penstock.core.metadata.configs import ConfigSource, DescribedConfig
from penstock.core.model import ApiError, ErrorKind
from penstock.core.protocol import ErrorCode, Steps
from penstock.core.protocol.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsRequestResource,
    DescribeConfigsResponse,
    DescribeConfigsResponseConfig,
    DescribeConfigsResponseResource,
    DescribeConfigsResponseSynonym,
)
from penstock.security import AclOperation
from penstock.server.kafka.config_resources import ConfigResult, configurable, error_outcome
from penstock.server.kafka.request import Request
from penstock.server.kafka.response_rows import collected
from penstock.server.kafka.router import routes

# From here on a value says where it comes from, before only whether it is the default.
SOURCES_SINCE = 1
ALL_BROKERS = ConfigResource(ConfigResourceType.BROKER, "")
NAMED_KINDS = (ConfigResourceType.GROUP, ConfigResourceType.CLIENT_METRICS)


@routes.handles(DescribeConfigsRequest)
def describe_configs(request: DescribeConfigsRequest, call: Request) -> Iterator[None]:
    wanted = yield from _distinct(request.resources)
    results = yield from collected(_result(call, request, each) for each in wanted)
    call.reply(DescribeConfigsResponse(throttle_time_ms=call.charge_time(), results=results))


def _distinct(
    resources: Sequence[DescribeConfigsRequestResource],
) -> Steps[tuple[DescribeConfigsRequestResource, ...]]:
    """Each once, however often it is named: a short request must not have an endless response."""
    keys: dict[tuple[int, str], list[tuple[str, ...]]] = {}
    for wanted in resources:
        # Some clients send an empty list for "every key".
        named = wanted.configuration_keys or ()
        keys.setdefault((wanted.resource_type, wanted.resource_name), []).append(named)
        yield
    found: list[DescribeConfigsRequestResource] = []
    for (kind, name), lists in keys.items():
        every = None if not all(lists) else tuple(dict.fromkeys(chain.from_iterable(lists)))
        found.append(
            DescribeConfigsRequestResource(resource_type=kind, resource_name=name, configuration_keys=every)
        )
        yield
    return tuple(found)


def _result(
    call: Request, request: DescribeConfigsRequest, wanted: DescribeConfigsRequestResource
) -> DescribeConfigsResponseResource:
    found = _find(call, wanted)
    if isinstance(found, ConfigResult):
        return _failed(wanted, found)
    return DescribeConfigsResponseResource(
        error_code=ErrorCode.NONE,
        error_message=None,
        resource_type=wanted.resource_type,
        resource_name=wanted.resource_name,
        configs=tuple(_row(request, config, call.version) for config in found),
    )


def _find(
    call: Request, wanted: DescribeConfigsRequestResource
) -> tuple[DescribedConfig, ...] | ConfigResult:
    resource = configurable(call, AclOperation.DESCRIBE_CONFIGS, wanted.resource_type, wanted.resource_name)
    if not isinstance(resource, ConfigResource):
        return resource
    if resource.kind in NAMED_KINDS and not resource.name:
        return ConfigResult(ErrorCode.INVALID_REQUEST, f"a {resource.kind.name.lower()} needs a name")
    complaint = problem_with_name(resource.name) if resource.kind is ConfigResourceType.TOPIC else None
    if complaint is not None:
        return error_outcome(ApiError(ErrorKind.INVALID_TOPIC_NAME, complaint))
    configs = call.backend.configs.describe(resource, wanted.configuration_keys)
    if isinstance(configs, ApiError):
        return error_outcome(configs)
    return _set_for_all_brokers(configs) if resource == ALL_BROKERS else configs


def _set_for_all_brokers(configs: tuple[DescribedConfig, ...]) -> tuple[DescribedConfig, ...]:
    """What was set for every broker: the rest belongs to this one broker."""
    shared = ConfigSource.ALL_BROKERS
    return tuple(
        replace(config, synonyms=tuple(known for known in config.synonyms if known.source is shared))
        for config in configs
        if config.source is shared
    )


def _failed(wanted: DescribeConfigsRequestResource, outcome: ConfigResult) -> DescribeConfigsResponseResource:
    return DescribeConfigsResponseResource(
        error_code=outcome.code,
        error_message=outcome.message,
        resource_type=wanted.resource_type,
        resource_name=wanted.resource_name,
        configs=(),
    )


def _row(
    request: DescribeConfigsRequest, config: DescribedConfig, version: int
) -> DescribeConfigsResponseConfig:
    synonyms = config.synonyms if request.include_synonyms else ()
    return DescribeConfigsResponseConfig(
        name=config.name,
        value=config.value,
        read_only=config.read_only,
        config_source=config.source,
        is_default=config.is_default and version < SOURCES_SINCE,
        is_sensitive=config.sensitive,
        synonyms=tuple(
            DescribeConfigsResponseSynonym(name=known.name, value=known.value, source=known.source)
            for known in synonyms
        ),
        config_type=config.type,
        documentation=config.documentation if request.include_documentation else None,
    )
