"""`penstock certs`: a private authority and its certificates, for those who have none."""

from pathlib import Path
from typing import Any

import typer

from penstock.cli.output import JSON_OPTION, show_json, show_table

app = typer.Typer(
    help="Make a private certificate authority, and certificates for nodes and clients.",
    no_args_is_help=True,
)
DIRECTORY = typer.Option(
    Path("penstock-certs"), "--dir", metavar="DIR", help="Where the authority and its certificates are kept."
)


@app.command()
def init(
    *,
    directory: Path = DIRECTORY,
    name: str = typer.Option("Penstock private CA", "--name", help="What the authority is called."),
    days: int = typer.Option(3_650, "--days", min=1, max=36_500, help="For how long it is valid."),
    as_json: bool = JSON_OPTION,
) -> None:
    """Make an authority. Everyone needs its certificate (ca.pem); its key (ca.key) is for nobody else."""
    from penstock.security.certificates import create_authority

    _show(create_authority(directory, name, days), as_json=as_json)


@app.command()
def node(
    node_id: int = typer.Argument(metavar="NODE_ID", min=0, help="The id of the node, `node.id`."),
    *,
    hosts: list[str] = typer.Option(
        ["localhost", "127.0.0.1"],
        "--host",
        metavar="HOST",
        help="A name or address that the node is reached by; may be repeated.",
    ),
    directory: Path = DIRECTORY,
    days: int = typer.Option(397, "--days", min=1, max=36_500, help="For how long it is valid."),
    as_json: bool = JSON_OPTION,
) -> None:
    """Make the certificate of a node, for its clients and for the other nodes."""
    from penstock.core.model import NodeId
    from penstock.security.certificates import create_node_certificate

    _show(create_node_certificate(directory, NodeId(node_id), hosts, days), as_json=as_json)


@app.command()
def client(
    user: str = typer.Argument(metavar="USER", help="Who the certificate is of."),
    *,
    directory: Path = DIRECTORY,
    days: int = typer.Option(397, "--days", min=1, max=36_500, help="For how long it is valid."),
    as_json: bool = JSON_OPTION,
) -> None:
    """Make a certificate that a client can log in with."""
    from penstock.security.certificates import create_client_certificate

    _show(create_client_certificate(directory, user, days), as_json=as_json)


@app.command()
def show(
    files: list[Path] = typer.Argument(metavar="FILE...", help="Files with certificates."),
    *,
    as_json: bool = JSON_OPTION,
) -> None:
    """Show whom certificates are of, who has signed them, and until when they are valid."""
    from penstock.security.certificates import show as read

    views = [view for file in files for view in read(file)]
    if as_json:
        rows: list[dict[str, Any]] = []
        for view in views:
            times = {
                "not_before": view.not_before.isoformat(),
                "not_after": view.not_after.isoformat(),
            }
            rows.append({**view._asdict(), **times})
        show_json(rows)
        return
    show_table(
        "",
        ("file", "subject", "names", "signed by", "valid until"),
        [
            (
                view.file,
                view.subject,
                ", ".join(view.names) or "-",
                "itself" if view.issuer == view.subject else view.issuer,
                f"{view.not_after:%Y-%m-%d %H:%M} UTC",
            )
            for view in views
        ],
    )


def _show(files: tuple[Path, Path], *, as_json: bool) -> None:
    certificate, key = files
    if as_json:
        show_json({"certificate": str(certificate), "key": str(key)})
        return
    typer.echo(f"certificate  {certificate}")
    typer.echo(f"key          {key}")
