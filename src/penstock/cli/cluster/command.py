"""`penstock cluster`: every command of it."""

import typer

from penstock.cli.cluster.members import add_voter, members, remove_voter, unregister
from penstock.cli.cluster.reassign import drain, elect, reassign
from penstock.cli.cluster.scrub import scrub
from penstock.cli.cluster.status import status
from penstock.cli.cluster.upgrade import upgrade

app = typer.Typer(help="Look after a cluster: its state, its members, its leaders.", no_args_is_help=True)


app.command()(status)


app.command()(members)


app.command()(reassign)


app.command()(elect)


app.command()(drain)


app.command()(scrub)


app.command("add-voter")(add_voter)


app.command("remove-voter")(remove_voter)


app.command()(unregister)


app.command()(upgrade)
