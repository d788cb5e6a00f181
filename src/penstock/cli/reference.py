"""The reference pages that are written from the code, so that they cannot fall behind it.

python -m penstock.cli.reference docs/reference
"""

import importlib
import inspect
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import penstock
from penstock.cli.commands import announced, command_tree
from penstock.config.kafka_settings import BUILT_IN, DECIDED_BY, SHARED_BY_ALL
from penstock.config.reference import reference as settings_reference
from penstock.core.metadata import ConfigResourceType
from penstock.core.metadata.configs import (
    REFUSED_CONFIGS,
    ConfigDefinition,
    DynamicUpdateMode,
    definitions,
)
from penstock.observability import Metrics
from penstock.observability.reference import reference as metrics_reference
from penstock.server.kafka.errors import CODES
from penstock.server.kafka.handlers import NOT_ANNOUNCED, every_route

_CLI_INTRODUCTION = """\
# Commands

Exit codes: 0 done; 1 refused or failed, with one line on stderr; 2 used wrongly; 130 interrupted.
`penstock COMMAND --help` says the same as this page. The defaults of `penstock up` are those of the
[settings](settings.md). Tables are plain text in columns under a header where stdout is not a terminal.
Control characters in names are printed as escapes such as `\\x1b`; records are printed as they are.
`penstock --install-completion` lets your shell complete commands and options."""

_KAFKA_INTRODUCTION = """\
# Kafka APIs

What a node serves. Any other key or version ends the connection, except that an unknown version
of ApiVersions itself gets this list as its response. ApiVersions announces the same, but Produce from
version 0 on: without that, older librdkafka does not compress. Nobody sends those versions. And
GetTelemetrySubscriptions and PushTelemetry are announced while a `client-metrics` subscription asks for
metrics; clients that connected before learn of it with their next connection."""
_KAFKA_SETTINGS_INTRODUCTION = """\
# Kafka's settings

Every setting that Kafka 4.3 has for topics, brokers, groups and client metrics, and the few of Penstock's
own. None is accepted and ignored:

* **honoured**: it can be changed while the cluster runs, with `kafka-configs`, any Admin client or
  `penstock topic alter`, or it is decided by the [setting](settings.md) of the node that is named;
  `node.kafka_settings` takes what has no setting of its own, as `name=value`.
* **fixed**: it is shown, with the value here, and any other is refused; the note says why.
* **refused**: it is not shown, and setting it fails with INVALID_CONFIG and the reason in the note.

`broker` settings that are honoured `cluster-wide` can be set for all brokers, those `per broker` for one.

A number outside of what is allowed is refused with INVALID_CONFIG, and so are two settings that cannot be
together. Whatever is stored can be changed or removed. If another version has stored a number that is out of
range here, the nearest that is allowed counts; if it has stored what cannot be read at all for brokers, that
counts as not set, but nothing is deleted if it might be about that. The event `setting.not_allowed` says so.
If a topic itself has what cannot be read, its partitions keep the settings that they had; after a restart
they are offline (`topic.settings_invalid`, `penstock_offline_partitions`) until it is corrected, which needs
no restart.

The topics in which the cluster keeps its own state (`__consumer_offsets`, `__transaction_state`,
`__queue_state`, `__delayed`) keep the `cleanup.policy`, the retention and the `compression.type` that they
are created with, and take batches of at least 1 MB, whatever is set. The retention of `__audit` can be
changed."""
# It counts where Kerberos is offered, in Kafka and here: nowhere so far. The suite of librdkafka sets it.
WITHOUT_KERBEROS = "sasl.kerberos.min.time.before.relogin"
_ERROR_INTRODUCTION = """\
# Errors

Why a request can fail, and the Kafka error code of each kind. The detail in a response's error
message says more; the label `error` of `penstock_produce_errors_total` is the reason's name."""


def pages() -> dict[str, list[str]]:
    """Each page's file name and lines."""
    return {
        "settings.md": list(settings_reference()),
        "metrics.md": list(metrics_reference(declared_metrics())),
        "cli.md": list(cli_reference()),
        "kafka-apis.md": list(kafka_reference()),
        "kafka-settings.md": list(kafka_settings_reference()),
        "errors.md": list(error_reference()),
    }


def kafka_reference() -> Iterator[str]:
    """The lines of docs/reference/kafka-apis.md."""
    yield from _KAFKA_INTRODUCTION.splitlines()
    yield from ("", "| key | API | versions |", "|---|---|---|")
    for route in every_route().all():
        yield f"| {route.api.key} | {route.api.name} | {route.versions.start}–{route.versions.stop - 1} |"  # noqa: RUF001
    yield from ("", "What Kafka 4.3 announces and a node does not:", "", "| API | why |", "|---|---|")
    for name, reason in NOT_ANNOUNCED.items():
        yield f"| {name} | {reason} |"


def kafka_settings_reference() -> Iterator[str]:
    """The lines of docs/reference/kafka-settings.md."""
    yield from _KAFKA_SETTINGS_INTRODUCTION.splitlines()
    for kind in ConfigResourceType:
        yield from ("", f"## {kind.name.lower().replace('_', '-')}", "")
        yield from ("| setting | status | default | allowed | note |", "|---|---|---|---|---|")
        table, refused = definitions(kind), REFUSED_CONFIGS[kind]
        for name in sorted({**table, **refused}):
            if name in refused:
                yield f"| `{name}` | refused | | | {refused[name]} |"
                continue
            status, note = _status(kind, table[name])
            default = "" if table[name].default is None else f"`{table[name].default}`"
            yield f"| `{name}` | {status} | {default} | {_allowed(table[name])} | {note} |"


def _allowed(definition: ConfigDefinition) -> str:
    """The numbers that a setting may have, if it has numbers and may be changed."""
    bounds = definition.range
    if bounds is None or definition.fixed is not None:
        return ""
    words = f"{bounds.lowest} to {bounds.highest}"
    return words if bounds.special is None else f"{bounds.special}, {words}"


def _status(kind: ConfigResourceType, definition: ConfigDefinition) -> tuple[str, str]:
    """Whether a setting is honoured, and by whom it is decided or why it is fixed."""
    if definition.fixed is not None:
        return "fixed", definition.fixed
    if kind is not ConfigResourceType.BROKER:
        return "honoured", definition.documentation
    decided_by = DECIDED_BY.get(definition.name)
    node = "" if decided_by is None else f"`{decided_by}` of the node"
    if definition.update is DynamicUpdateMode.READ_ONLY:
        if definition.name in BUILT_IN:
            return "fixed", "as the node is built"
        return "honoured", node or "`node.kafka_settings`"
    if definition.name == WITHOUT_KERBEROS:
        return "honoured", "per broker; logins with Kerberos, which are not offered so far"
    scope = "per broker" if definition.update is DynamicUpdateMode.PER_BROKER else "cluster-wide"
    if definition.update is DynamicUpdateMode.PER_BROKER or definition.name in SHARED_BY_ALL:
        return "honoured", scope
    return "honoured", f"{scope}, and {node or '`node.kafka_settings`'}"


def error_reference() -> Iterator[str]:
    """The lines of docs/reference/errors.md."""
    yield from _ERROR_INTRODUCTION.splitlines()
    yield from ("", "| reason | meaning | Kafka | worth a retry |", "|---|---|---|---|")
    for why, code in CODES.items():
        retry = "yes" if code.retriable else "no"
        yield f"| `{why.name.lower()}` | {why.value} | {code.name} ({code.value}) | {retry} |"


def declared_metrics() -> list[Metrics]:
    """One of each class of metrics, wherever in the package a component declares its own."""
    root = Path(penstock.__path__[0])
    for module in sorted(root.rglob("*.py")):
        if "(Metrics):" not in module.read_text():
            continue
        importlib.import_module(".".join(["penstock", *module.relative_to(root).with_suffix("").parts]))
    return [kind() for kind in sorted(_subclasses(Metrics), key=lambda kind: kind.__qualname__)]


def _subclasses(kind: type[Metrics]) -> Iterator[type[Metrics]]:
    for subclass in kind.__subclasses__():
        if subclass.__module__.startswith("penstock."):
            yield subclass
        yield from _subclasses(subclass)


def cli_reference() -> Iterator[str]:
    """The lines of docs/reference/cli.md."""
    yield from _CLI_INTRODUCTION.splitlines()
    tree: Any = command_tree(announced())
    for name, command in tree.commands.items():
        yield from _command(f"penstock {name}", command)


def _command(path: str, command: Any) -> Iterator[str]:
    if hasattr(command, "commands"):
        for name, below in command.commands.items():
            yield from _command(f"{path} {name}", below)
        return
    arguments = [p.metavar or p.name.upper() for p in command.params if p.param_type_name == "argument"]
    yield from (
        "",
        f"## {' '.join([path, *arguments])}",
        "",
        *inspect.cleandoc(command.help or "").splitlines(),
    )
    options = [p for p in command.params if p.param_type_name == "option"]
    if options:
        yield from ("", "| option | default | meaning |", "|---|---|---|")
        for option in options:
            yield f"| `{', '.join(option.opts)}` | {_default(option)} | {option.help or ''} |"


def _default(option: Any) -> str:
    """What holds without the option; nothing where that is no value (the help says what then)."""
    if option.required:
        return "required"
    if isinstance(option.show_default, str):
        # Typer puts a default that is not the option's own in brackets; here it is the setting's.
        return f"`{option.show_default}`"
    default = getattr(option.default, "value", option.default)
    if default is None or isinstance(default, bool) or callable(default) or default in ((), [], "", -1):
        return ""
    return f"`{', '.join(map(str, default)) if isinstance(default, tuple | list) else default}`"


def main() -> None:
    directory = Path(sys.argv[1])
    for name, lines in pages().items():
        (directory / name).write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
