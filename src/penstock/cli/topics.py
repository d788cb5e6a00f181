"""`penstock topic`: which topics there are, what they look like, and changing them."""

from dataclasses import asdict

import typer

from penstock.cli.broker_options import BOOTSTRAP, CLIENT_OPTION, InvalidOption, assignments, endpoint
from penstock.cli.output import JSON_OPTION, counted, note, say, show_json, show_table
from penstock.client import PartitionDetail, TopicDetail

app = typer.Typer(help="Create, list, describe, alter and delete topics.", no_args_is_help=True)
TOPIC = typer.Argument(metavar="TOPIC")
CONFIGS = typer.Option(
    None, "--config", metavar="KEY=VALUE", help="A topic config, such as retention.ms; may be repeated."
)


@app.command()
def create(
    topic: str = TOPIC,
    *,
    partitions: int = typer.Option(
        -1, "--partitions", help="How many partitions; by default the broker decides."
    ),
    replication_factor: int = typer.Option(
        -1, "--replication-factor", "--rf", help="Copies of each; by default the broker decides."
    ),
    configs: list[str] | None = CONFIGS,
    bootstrap: str = BOOTSTRAP,
    options: list[str] | None = CLIENT_OPTION,
) -> None:
    """Create a topic."""
    from penstock.client import TopicAdmin

    values = assignments("--config", configs)
    TopicAdmin(endpoint(bootstrap, options)).create(topic, partitions, replication_factor, values)
    note(f"created {topic}")


@app.command("list")
def list_(
    *,
    internal: bool = typer.Option(False, "--internal", help="Show the brokers' own topics too."),
    as_json: bool = JSON_OPTION,
    bootstrap: str = BOOTSTRAP,
    options: list[str] | None = CLIENT_OPTION,
) -> None:
    """List the topics."""
    from penstock.client import TopicAdmin

    listed = [one for one in TopicAdmin(endpoint(bootstrap, options)).list() if internal or not one.internal]
    if as_json:
        show_json([asdict(one) for one in listed])
        return
    show_table(
        "",
        ("topic", "partitions", "replication factor"),
        [(one.name, one.partitions, one.replication_factor) for one in listed],
    )


@app.command()
def describe(
    topic: str = TOPIC,
    *,
    as_json: bool = JSON_OPTION,
    bootstrap: str = BOOTSTRAP,
    options: list[str] | None = CLIENT_OPTION,
) -> None:
    """Show a topic's partitions, their offsets, and the configs that were set."""
    from penstock.client import TopicAdmin

    found = TopicAdmin(endpoint(bootstrap, options)).describe(topic)
    if as_json:
        show_json(asdict(found))
        return
    say(_headline(found))
    show_table(
        "",
        ("partition", "leader", "replicas", "in sync", "start", "end", "records"),
        map(_row, found.partitions),
    )


@app.command()
def alter(
    topic: str = TOPIC,
    *,
    partitions: int | None = typer.Option(
        None, "--partitions", min=1, help="The new number of partitions; it can only grow."
    ),
    configs: list[str] | None = CONFIGS,
    removed: list[str] | None = typer.Option(
        None, "--unset", metavar="KEY", help="Remove a topic config; may be repeated."
    ),
    bootstrap: str = BOOTSTRAP,
    options: list[str] | None = CLIENT_OPTION,
) -> None:
    """Change a topic's configs, or give it more partitions."""
    from penstock.client import TopicAdmin

    values = assignments("--config", configs)
    if partitions is None and not values and not removed:
        raise InvalidOption("nothing to change: give --partitions, --config or --unset")
    topics = TopicAdmin(endpoint(bootstrap, options))
    if values or removed:
        topics.alter_configs(topic, values, removed or ())
    if partitions is not None:
        topics.add_partitions(topic, partitions)
    note(f"altered {topic}")


@app.command()
def delete(
    topics: list[str] = typer.Argument(metavar="TOPIC..."),
    *,
    bootstrap: str = BOOTSTRAP,
    options: list[str] | None = CLIENT_OPTION,
) -> None:
    """Delete topics and everything in them."""
    from penstock.client import TopicAdmin

    existing = TopicAdmin(endpoint(bootstrap, options))
    for topic in topics:
        existing.delete(topic)
        note(f"deleted {topic}")


def _headline(topic: "TopicDetail") -> str:
    configs = ", ".join(f"{key}={value}" for key, value in topic.configs.items()) or "no configs of its own"
    internal = ", internal" if topic.internal else ""
    partitions = counted(len(topic.partitions), "partition")
    return f"{topic.name}: id {topic.topic_id}{internal}, {partitions}, {configs}"


def _row(one: "PartitionDetail") -> tuple[object, ...]:
    known = one.start_offset is not None and one.end_offset is not None
    return (
        one.partition,
        one.leader if one.leader >= 0 else "none",
        ",".join(map(str, one.replicas)),
        ",".join(map(str, one.in_sync)),
        one.start_offset if known else "?",
        one.end_offset if known else "?",
        (one.end_offset or 0) - (one.start_offset or 0) if known else "?",
    )
