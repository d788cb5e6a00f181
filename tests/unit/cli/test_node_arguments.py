"""The arguments of `penstock up` that are understood without typer mean what typer makes of them."""

import pytest
import typer

from penstock.cli.node_process import FLAGS, parse_plain
from penstock.cli.up import up

NODE = ["--data-dir=d", "--node-id=2", "--kafka", "127.0.0.1:0", "--http=[::1]:0", "--metrics", ":0"]


def parsed_by_typer(arguments: list[str]) -> tuple[object, ...]:
    app = typer.Typer(add_completion=False)
    app.command("up")(up)
    params = typer.main.get_command(app).make_context("up", list(arguments)).params
    flags = {flag: params[flag.removeprefix("--").replace("-", "_")] for flag in FLAGS}
    given = {flag: text for flag, text in flags.items() if text is not None}
    return params["config"], tuple(params["assignments"] or ()), given, params["as_json"]


@pytest.mark.parametrize(
    "arguments",
    [
        [],
        ["--json"],
        NODE,
        [*NODE, "--json", "--peer=h:1", "--voters", "1@h:1,2@i:1", "--grpc=x:1"],
        ["--set", "node.id=3", "--set=storage.fsync.mode=every", "--config", "p.yaml"],
        ["--config=a=b", "--kafka=", "--kafka=last:1"],
    ],
)
def test_plain_arguments_mean_what_typer_makes_of_them(arguments: list[str]) -> None:
    assert parse_plain(arguments) == parsed_by_typer(arguments)


@pytest.mark.parametrize(
    "arguments",
    [
        ["--help"],
        ["--brokers=3"],
        ["--kafka"],
        ["--kafka", "--json"],
        ["--kafkas=h:1"],
        ["node-1"],
        ["--json=yes"],
        ["--", "--json"],
    ],
)
def test_anything_else_is_left_to_typer(arguments: list[str]) -> None:
    assert parse_plain(arguments) is None
