"""IncrementalAlterConfigs: changing single settings."""

from collections.abc import Iterable, Iterator
from itertools import chain

from penstock.broker.configs import ConfigChanges
from penstock.core.metadata import ConfigChange, ConfigOperation, ConfigResource, Ok
from penstock.core.model import ApiError, ErrorKind
from penstock.core.protocol.messages.incremental_alter_configs import (
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsRequestConfig,
    IncrementalAlterConfigsResponse,
    IncrementalAlterConfigsResponseResource,
)
from penstock.security import AclOperation, QuotaType
from penstock.server.kafka.config_resources import (
    DUPLICATE,
    ConfigResult,
    as_outcome,
    configurable,
    error_outcome,
    oversized,
)
from penstock.server.kafka.request import Request
from penstock.server.kafka.response_rows import collected, repeated
from penstock.server.kafka.router import routes

Key = tuple[int, str]


@routes.handles(IncrementalAlterConfigsRequest)
def incremental_alter_configs(request: IncrementalAlterConfigsRequest, call: Request) -> Iterator[None]:
    twice = yield from repeated((each.resource_type, each.resource_name) for each in request.resources)
    outcomes: dict[Key, ConfigResult] = {}
    wanted: dict[Key, ConfigChanges] = {}
    for each in request.resources:
        key = (each.resource_type, each.resource_name)
        changes = _changes(call, key, each.configs)
        if key in twice:
            outcomes[key] = DUPLICATE
        elif isinstance(changes, ConfigChanges):
            wanted[key] = changes
        else:
            outcomes[key] = changes
        yield

    def done(replies: list[Ok | ApiError]) -> None:
        decided = ((key, as_outcome(reply)) for key, reply in zip(wanted, replies, strict=True))
        rows = chain(outcomes.items(), decided)
        call.run(_answer(call, rows, 0 if request.validate_only else len(wanted)))

    call.backend.configs.change(
        list(wanted.values()), done, validate_only=request.validate_only, account=call.connection.account
    )


def _changes(
    call: Request, key: Key, configs: tuple[IncrementalAlterConfigsRequestConfig, ...]
) -> ConfigChanges | ConfigResult:
    resource = configurable(call, AclOperation.ALTER_CONFIGS, *key)
    if not isinstance(resource, ConfigResource):
        return resource
    refused = oversized(configs)
    if refused is not None:
        return error_outcome(refused)
    try:
        changes = tuple(
            ConfigChange(ConfigOperation(config.config_operation), config.name, config.value)
            for config in configs
        )
    except ValueError as error:
        return error_outcome(ApiError(ErrorKind.INVALID_REQUEST, str(error)))
    return ConfigChanges(resource, changes)


def _answer(call: Request, outcomes: Iterable[tuple[Key, ConfigResult]], changed: int) -> Iterator[None]:
    throttle_ms = call.charge(QuotaType.MUTATIONS, changed)
    rows = yield from collected(_row(key, outcome) for key, outcome in outcomes)
    call.reply(IncrementalAlterConfigsResponse(throttle_time_ms=throttle_ms, responses=rows))


def _row(key: Key, outcome: ConfigResult) -> IncrementalAlterConfigsResponseResource:
    return IncrementalAlterConfigsResponseResource(
        error_code=outcome.code, error_message=outcome.message, resource_type=key[0], resource_name=key[1]
    )
