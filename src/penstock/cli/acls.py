"""`penstock acl`: who may do what."""

import enum
from typing import Any, TypeVar

import typer

from penstock.cli.broker_options import BOOTSTRAP, CLIENT_OPTION, InvalidOption, endpoint
from penstock.cli.output import JSON_OPTION, counted, show_json, show_table
from penstock.core.metadata.access import (
    ANY_HOST,
    CLUSTER_NAME,
    AclBinding,
    AclFilter,
    AclOperation,
    AclPermission,
    PatternType,
    ResourceType,
)

app = typer.Typer(help="Allow and deny users what they may do, and see what they may.", no_args_is_help=True)
TOPIC = typer.Option(None, "--topic", metavar="NAME", help="A topic; `*` is all of them.")
GROUP = typer.Option(None, "--group", metavar="NAME", help="A group; `*` is all of them.")
TRANSACTIONAL_ID = typer.Option(None, "--transactional-id", metavar="ID", help="A transactional id.")
CLUSTER = typer.Option(False, "--cluster", help="The cluster itself.")
PREFIXED = typer.Option(False, "--prefixed", help="All whose names begin so.")
USER = typer.Option(None, "--user", metavar="USER", help="Who; `*` is everyone.")
HOST = typer.Option(ANY_HOST, "--host", metavar="ADDRESS", help="From where; `*` is everywhere.")
E = TypeVar("E", bound=enum.Enum)


@app.command("list")
def list_(
    *,
    user: str | None = USER,
    topic: str | None = TOPIC,
    group: str | None = GROUP,
    transactional_id: str | None = TRANSACTIONAL_ID,
    cluster: bool = CLUSTER,
    as_json: bool = JSON_OPTION,
    bootstrap: str = BOOTSTRAP,
    options: list[str] | None = CLIENT_OPTION,
) -> None:
    """List access rules: all, or those that are about a user or apply to a resource."""
    from penstock.client.access import AccessAdmin

    resources = _resources(topic, group, transactional_id, cluster)
    if len(resources) > 1:
        raise InvalidOption("name one resource, or none")
    kind, name = resources[0] if resources else (None, None)
    wanted = AclFilter(
        resource=kind,
        name=name,
        principal=None if user is None else _principal(user),
        matches_name=name is not None,
    )
    _show(AccessAdmin(endpoint(bootstrap, options)).acls(wanted), as_json=as_json)


@app.command()
def allow(
    *,
    user: str | None = USER,
    operations: list[str] = typer.Option(
        ..., "--operation", "-o", metavar="OPERATION", help="read, write, create …; may be repeated."
    ),
    topic: str | None = TOPIC,
    group: str | None = GROUP,
    transactional_id: str | None = TRANSACTIONAL_ID,
    cluster: bool = CLUSTER,
    prefixed: bool = PREFIXED,
    host: str = HOST,
    bootstrap: str = BOOTSTRAP,
    options: list[str] | None = CLIENT_OPTION,
) -> None:
    """Let a user do something. Reading and writing a topic implies seeing that it is there."""
    resources = _resources(topic, group, transactional_id, cluster)
    pattern = PatternType.PREFIXED if prefixed else PatternType.LITERAL
    acls = _bindings(AclPermission.ALLOW, user, operations, resources, pattern, host)
    _create(acls, bootstrap, options)


@app.command()
def deny(
    *,
    user: str | None = USER,
    operations: list[str] = typer.Option(
        ..., "--operation", "-o", metavar="OPERATION", help="read, write, create …; may be repeated."
    ),
    topic: str | None = TOPIC,
    group: str | None = GROUP,
    transactional_id: str | None = TRANSACTIONAL_ID,
    cluster: bool = CLUSTER,
    prefixed: bool = PREFIXED,
    host: str = HOST,
    bootstrap: str = BOOTSTRAP,
    options: list[str] | None = CLIENT_OPTION,
) -> None:
    """Keep a user from doing something, whatever else it is allowed."""
    resources = _resources(topic, group, transactional_id, cluster)
    pattern = PatternType.PREFIXED if prefixed else PatternType.LITERAL
    acls = _bindings(AclPermission.DENY, user, operations, resources, pattern, host)
    _create(acls, bootstrap, options)


@app.command()
def delete(
    *,
    user: str | None = USER,
    operation: str | None = typer.Option(None, "--operation", "-o", metavar="OPERATION", help="Only this."),
    topic: str | None = TOPIC,
    group: str | None = GROUP,
    transactional_id: str | None = TRANSACTIONAL_ID,
    cluster: bool = CLUSTER,
    everything: bool = typer.Option(False, "--all", help="Every rule there is."),
    as_json: bool = JSON_OPTION,
    bootstrap: str = BOOTSTRAP,
    options: list[str] | None = CLIENT_OPTION,
) -> None:
    """Remove access rules, and show those that were removed."""
    from penstock.client.access import AccessAdmin

    resources = _resources(topic, group, transactional_id, cluster)
    if len(resources) > 1:
        raise InvalidOption("name one resource, or none")
    if not (user or operation or resources or everything):
        raise InvalidOption("say which rules: by --user, --operation or a resource; --all is every rule")
    kind, name = resources[0] if resources else (None, None)
    removed = AccessAdmin(endpoint(bootstrap, options)).delete_acls(
        AclFilter(
            resource=kind,
            name=name,
            principal=None if user is None else _principal(user),
            operation=None if operation is None else _word(AclOperation, operation),
        )
    )
    _show(removed, as_json=as_json)
    typer.echo(f"{counted(len(removed), 'rule')} removed", err=True)


def _bindings(
    permission: AclPermission,
    user: str | None,
    operations: list[str],
    resources: list[tuple[ResourceType, str]],
    pattern: PatternType,
    host: str,
) -> list[AclBinding]:
    if user is None:
        raise InvalidOption("--user says who; `*` is everyone")
    if not resources:
        raise InvalidOption("--topic, --group, --transactional-id or --cluster says what")
    return [
        AclBinding(kind, pattern, name, _principal(user), host, _word(AclOperation, each), permission)
        for kind, name in resources
        for each in operations
    ]


def _create(acls: list[AclBinding], bootstrap: str, options: list[str] | None) -> None:
    from penstock.client.access import AccessAdmin

    AccessAdmin(endpoint(bootstrap, options)).create_acls(acls)
    typer.echo(f"{counted(len(acls), 'rule')} added", err=True)


def _resources(
    topic: str | None, group: str | None, transactional_id: str | None, cluster: bool
) -> list[tuple[ResourceType, str]]:
    named = (
        (ResourceType.TOPIC, topic),
        (ResourceType.GROUP, group),
        (ResourceType.TRANSACTIONAL_ID, transactional_id),
        (ResourceType.CLUSTER, CLUSTER_NAME if cluster else None),
    )
    return [(kind, name) for kind, name in named if name is not None]


def _principal(user: str) -> str:
    return user if ":" in user else f"User:{user}"


def _word(kind: type[E], text: str) -> E:
    try:
        return kind[text.strip().upper().replace("-", "_").replace(" ", "_")]
    except KeyError:
        known = ", ".join(each.name.lower().replace("_", "-") for each in kind)
        raise InvalidOption(f"{text!r} is none of {known}") from None


def _show(acls: list[AclBinding], *, as_json: bool) -> None:
    rows: list[dict[str, Any]] = [
        {
            "resource": acl.resource.name.lower(),
            "name": acl.name,
            "pattern": acl.pattern.name.lower(),
            "principal": acl.principal,
            "host": acl.host,
            "operation": acl.operation.name.lower().replace("_", "-"),
            "permission": acl.permission.name.lower(),
        }
        for acl in acls
    ]
    if as_json:
        show_json(rows)
        return
    columns = ("permission", "principal", "host", "operation", "resource", "name", "pattern")
    show_table("", columns, [[row[column] for column in columns] for row in rows])
