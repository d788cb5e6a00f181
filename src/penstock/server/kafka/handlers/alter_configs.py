"""AlterConfigs: replacing all settings of a resource (superseded by IncrementalAlterConfigs)."""

from collections.abc import Iterable, Iterator
from itertools import chain

from penstock.broker.configs import ConfigValues
from penstock.core.metadata import ConfigResource, Ok
from penstock.core.model import ApiError
from penstock.core.protocol.messages.alter_configs import (
    AlterConfigsRequest,
    AlterConfigsResponse,
    AlterConfigsResponseResource,
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


@routes.handles(AlterConfigsRequest)
def alter_configs(request: AlterConfigsRequest, call: Request) -> Iterator[None]:
    twice = yield from repeated((each.resource_type, each.resource_name) for each in request.resources)
    outcomes: dict[Key, ConfigResult] = {}
    wanted: dict[Key, ConfigValues] = {}
    for each in request.resources:
        key = (each.resource_type, each.resource_name)
        resource = configurable(call, AclOperation.ALTER_CONFIGS, *key)
        if key in twice or not isinstance(resource, ConfigResource):
            outcomes[key] = DUPLICATE if isinstance(resource, ConfigResource) else resource
        elif (refused := oversized(each.configs)) is not None:
            outcomes[key] = error_outcome(refused)
        else:
            wanted[key] = ConfigValues(
                resource, tuple((config.name, config.value) for config in each.configs)
            )
        yield

    def done(replies: list[Ok | ApiError]) -> None:
        decided = ((key, as_outcome(reply)) for key, reply in zip(wanted, replies, strict=True))
        rows = chain(outcomes.items(), decided)
        call.run(_answer(call, rows, 0 if request.validate_only else len(wanted)))

    call.backend.configs.alter(
        list(wanted.values()), done, validate_only=request.validate_only, account=call.connection.account
    )


def _answer(call: Request, outcomes: Iterable[tuple[Key, ConfigResult]], changed: int) -> Iterator[None]:
    throttle_ms = call.charge(QuotaType.MUTATIONS, changed)
    rows = yield from collected(_row(key, outcome) for key, outcome in outcomes)
    call.reply(AlterConfigsResponse(throttle_time_ms=throttle_ms, responses=rows))


def _row(key: Key, outcome: ConfigResult) -> AlterConfigsResponseResource:
    return AlterConfigsResponseResource(
        error_code=outcome.code, error_message=outcome.message, resource_type=key[0], resource_name=key[1]
    )
