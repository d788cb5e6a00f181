"""`penstock version`: what is installed here, for a bug report."""

import typer

from penstock.cli.output import JSON_OPTION, show_json


def version(as_json: bool = JSON_OPTION) -> None:
    """Show the version of Penstock and of what it runs on."""
    import platform
    from importlib.metadata import PackageNotFoundError
    from importlib.metadata import version as installed

    from penstock import __version__

    shown = {"penstock": __version__, "python": platform.python_version(), "platform": platform.platform()}
    for package in ("confluent-kafka", "cramjam", "fastcrc", "msgspec", "uvloop"):
        try:
            shown[package] = installed(package)
        except PackageNotFoundError:
            shown[package] = "missing"
    if as_json:
        show_json(shown)
    else:
        for name, value in shown.items():
            typer.echo(f"{name:<15} {value}")
