"""DescribeConfigs: the settings of topics, brokers, groups and client metrics."""

from penstock.core.metadata import ConfigResource, ResourceKind, problem_with_name
from penstock.core.metadata.configs import DescribedConfig
from penstock.core.model import Refused, Why
from penstock.core.wire import ErrorCode
from penstock.core.wire.kafka.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsRequestResource,
    DescribeConfigsResponse,
    DescribeConfigsResponseConfig,
    DescribeConfigsResponseResource,
    DescribeConfigsResponseSynonym,
)
from penstock.gateways.kafka.answers.config_resources import Outcome, configurable, refusal_outcome
from penstock.gateways.kafka.call import Call
from penstock.gateways.kafka.routes import routes
from penstock.security import Operation

NAMED_KINDS = (ResourceKind.GROUP, ResourceKind.CLIENT_METRICS)


@routes.handles(DescribeConfigsRequest)
def describe_configs(request: DescribeConfigsRequest, call: Call) -> None:
    results = tuple(_result(call, request, wanted) for wanted in request.resources)
    call.reply(DescribeConfigsResponse(throttle_time_ms=call.charge_time(), results=results))


def _result(
    call: Call, request: DescribeConfigsRequest, wanted: DescribeConfigsRequestResource
) -> DescribeConfigsResponseResource:
    found = _find(call, wanted)
    if isinstance(found, Refused):
        return _failed(wanted, refusal_outcome(found))
    if not isinstance(found, Described):
        return _failed(wanted, found)
    return DescribeConfigsResponseResource(
        error_code=ErrorCode.NONE,
        error_message=None,
        resource_type=wanted.resource_type,
        resource_name=wanted.resource_name,
        configs=tuple(_row(request, config) for config in found.configs),
    )


class Described:
    """The settings of one resource."""

    __slots__ = ("configs",)

    def __init__(self, configs: tuple[DescribedConfig, ...]) -> None:
        self.configs = configs


def _find(call: Call, wanted: DescribeConfigsRequestResource) -> Described | Refused | Outcome:
    resource = configurable(call, Operation.DESCRIBE_CONFIGS, wanted.resource_type, wanted.resource_name)
    if not isinstance(resource, ConfigResource):
        return resource
    if resource.kind in NAMED_KINDS and not resource.name:
        return Refused(Why.INVALID_REQUEST, f"a {resource.kind.name.lower()} needs a name")
    complaint = problem_with_name(resource.name) if resource.kind is ResourceKind.TOPIC else None
    if complaint is not None:
        return Refused(Why.INVALID_TOPIC_NAME, complaint)
    # No keys at all is how some clients say "every key".
    configs = call.backend.configs.describe(resource, wanted.configuration_keys or None)
    return configs if isinstance(configs, Refused) else Described(configs)


def _failed(wanted: DescribeConfigsRequestResource, outcome: Outcome) -> DescribeConfigsResponseResource:
    code, message = outcome
    return DescribeConfigsResponseResource(
        error_code=code,
        error_message=message,
        resource_type=wanted.resource_type,
        resource_name=wanted.resource_name,
        configs=(),
    )


def _row(request: DescribeConfigsRequest, config: DescribedConfig) -> DescribeConfigsResponseConfig:
    synonyms = config.synonyms if request.include_synonyms else ()
    return DescribeConfigsResponseConfig(
        name=config.name,
        value=config.value,
        read_only=config.read_only,
        config_source=config.source,
        is_default=config.is_default,
        is_sensitive=config.sensitive,
        synonyms=tuple(
            DescribeConfigsResponseSynonym(name=known.name, value=known.value, source=known.source)
            for known in synonyms
        ),
        config_type=config.type,
        documentation=config.documentation if request.include_documentation else None,
    )
