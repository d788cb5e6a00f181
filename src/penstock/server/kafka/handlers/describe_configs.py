"""DescribeConfigs: the settings of topics, brokers, groups and client metrics.

A name of a few bytes may have a row of some thousand, and groups need not exist to have settings: a response
has `RESPONSE_BYTES_MAX`, and what does not fit is refused. Settings that are the same for many resources are
one row in memory; those of groups that have none of their own are described once.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import chain
from typing import NamedTuple

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
# Enough for 20,000 topics, or half of them with synonyms.
RESPONSE_BYTES_MAX = 32 << 20
TOO_LARGE = ConfigResult(
    ErrorCode.INVALID_REQUEST, "the response has no room for it: ask for fewer at a time"
)
# Numbers, lengths and flags.
ROW_BYTES = 8
# So many rows are remembered while a response is made.
KNOWN_MAX = 5_000
NAMED_KINDS = (ConfigResourceType.GROUP, ConfigResourceType.CLIENT_METRICS)


@routes.handles(DescribeConfigsRequest)
def describe_configs(request: DescribeConfigsRequest, call: Request) -> Iterator[None]:
    wanted = yield from _distinct(request.resources)
    rows = _Rows(call, request)
    results = yield from collected(rows.row(each) for each in wanted)
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


class _SizedRow(NamedTuple):
    """The rows of one resource, or one of them, and about how many bytes of the response they take."""

    row: tuple[DescribeConfigsResponseConfig, ...]
    size_bytes: int


class _Rows:
    """Makes the rows of one response, as long as they fit into it."""

    def __init__(self, call: Request, request: DescribeConfigsRequest) -> None:
        self._call = call
        self._request = request
        self._bytes_left = RESPONSE_BYTES_MAX
        self._known: dict[DescribedConfig, _SizedRow] = {}
        # Of resources without settings of their own, by kind and keys.
        self._plain: dict[tuple[ConfigResourceType, tuple[str, ...] | None], _SizedRow] = {}

    def row(self, wanted: DescribeConfigsRequestResource) -> DescribeConfigsResponseResource:
        found = TOO_LARGE if self._bytes_left <= 0 else self._configs(wanted)
        if isinstance(found, ConfigResult):
            return _failed(wanted, found)
        self._bytes_left -= found.size_bytes
        return DescribeConfigsResponseResource(
            error_code=ErrorCode.NONE,
            error_message=None,
            resource_type=wanted.resource_type,
            resource_name=wanted.resource_name,
            configs=found.row,
        )

    def _configs(self, wanted: DescribeConfigsRequestResource) -> _SizedRow | ConfigResult:
        resource = _resource(self._call, wanted)
        if isinstance(resource, ConfigResult):
            return resource
        keys = wanted.configuration_keys
        is_plain = resource.kind in NAMED_KINDS and not self._call.backend.controller.image.config(*resource)
        if is_plain and (resource.kind, keys) in self._plain:
            return self._plain[resource.kind, keys]
        described = self._call.backend.configs.describe(resource, keys)
        if isinstance(described, ApiError):
            return error_outcome(described)
        if resource == ALL_BROKERS:
            described = _set_for_all_brokers(described)
        parts = [self._known.get(each) or self._add(each) for each in described]
        found = _SizedRow(
            tuple([part.row[0] for part in parts]), ROW_BYTES + sum([part.size_bytes for part in parts])
        )
        if is_plain and len(self._plain) < KNOWN_MAX:
            self._plain[resource.kind, keys] = found
        return found

    def _add(self, config: DescribedConfig) -> _SizedRow:
        row = _row(self._request, config, self._call.version)
        texts = [row.name, row.value, row.documentation]
        for synonym in row.synonyms:
            texts += synonym.name, synonym.value
        made = _SizedRow((row,), sum([ROW_BYTES + len(text) for text in texts if text is not None]))
        if len(self._known) < KNOWN_MAX:
            self._known[config] = made
        return made


def _resource(call: Request, wanted: DescribeConfigsRequestResource) -> ConfigResource | ConfigResult:
    resource = configurable(call, AclOperation.DESCRIBE_CONFIGS, wanted.resource_type, wanted.resource_name)
    if not isinstance(resource, ConfigResource):
        return resource
    if resource.kind in NAMED_KINDS and not resource.name:
        return ConfigResult(ErrorCode.INVALID_REQUEST, f"a {resource.kind.name.lower()} needs a name")
    complaint = problem_with_name(resource.name) if resource.kind is ConfigResourceType.TOPIC else None
    if complaint is not None:
        return error_outcome(ApiError(ErrorKind.INVALID_TOPIC_NAME, complaint))
    return resource


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
