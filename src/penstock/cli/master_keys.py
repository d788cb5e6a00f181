"""`penstock key rotate|status`: the master keys of encryption at rest."""

import time
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import typer

from penstock.cli.broker_options import BOOTSTRAP, CLIENT_OPTION, InvalidOption, endpoint
from penstock.cli.output import JSON_OPTION, counted, note, show_json, show_table

if TYPE_CHECKING:
    from penstock.client.master_keys import MasterKeyClient, MasterKeyRotation, MasterKeyStatus

LOOK_SECONDS = 0.5
SECOND_MS = 1_000
ALL = "all"
NODE_OPTION = typer.Option(ALL, "--node", metavar="NODE", help="The id of a node, or `all`.")


def rotate(
    *,
    reseal: bool = typer.Option(
        False,
        "--reseal",
        help="Encrypt old segments again as well, in the background: for a key that others may have.",
    ),
    node: str = NODE_OPTION,
    wait: bool = typer.Option(False, "--wait", help="Wait until nothing is under the old keys any more."),
    as_json: bool = JSON_OPTION,
    bootstrap: str = BOOTSTRAP,
    options: list[str] | None = CLIENT_OPTION,
) -> None:
    """Have nodes go on with another master key; what is under the old one is encrypted again, while they run.

    One node after another: those that share a keyring get one key. Do not remove the old key from where it
    is kept before `penstock key status` shows that no node needs it.
    """
    from penstock.client.master_keys import MasterKeyClient

    admin = MasterKeyClient(endpoint(bootstrap, options))
    done = [admin.rotate(each, reseal=reseal) for each in _nodes(admin, node)]
    if not as_json:
        for one in done:
            note(f"node {one.node_id}: {_outcome(one, reseal=reseal)}")
    asked = [one.node_id for one in done if one.error is None]
    found = _wait(admin, asked, quiet=as_json) if wait else []
    if as_json:
        status = {one.node_id: asdict(one) for one in found}
        show_json([{**asdict(one), "status": status.get(one.node_id)} for one in done])
    is_refused = any(one.error is not None or not (one.is_new or reseal) for one in done)
    if is_refused or any(_is_unfinished(one) for one in found):
        raise typer.Exit(1)


def status(
    *,
    node: str = NODE_OPTION,
    as_json: bool = JSON_OPTION,
    bootstrap: str = BOOTSTRAP,
    options: list[str] | None = CLIENT_OPTION,
) -> None:
    """Show the master keys that nodes need, and what they do about old ones."""
    from penstock.client.master_keys import MasterKeyClient

    found = MasterKeyClient(endpoint(bootstrap, options)).status(_node_id(node))
    if as_json:
        show_json([asdict(one) for one in found])
    else:
        columns = ("node", "keys from", "current key", "made", "state", "also needs")
        show_table("", columns, [_row(one) for one in found])
        for one in found:
            for use in one.needed:
                if use.key != one.key and one.is_idle:
                    note(f"node {one.node_id}: {use.key} is needed for {_some(use.examples)}")
            if one.problem:
                note(f"node {one.node_id}: {one.problem}")
    if any(one.error is not None for one in found):
        raise typer.Exit(1)


def _node_id(text: str) -> int | None:
    if text == ALL:
        return None
    if not text.isdecimal() or len(text) > 9:
        raise InvalidOption(f"--node {text}: the id of a node, or {ALL}")
    return int(text)


def _nodes(admin: "MasterKeyClient", node: str) -> list[int]:
    one = _node_id(node)
    return [each.node_id for each in admin.status()] if one is None else [one]


def _outcome(one: "MasterKeyRotation", *, reseal: bool) -> str:
    if one.error is not None:
        return one.error
    more = "; old segments are being encrypted again" if reseal else ""
    if one.is_new:
        return f"the master key is {one.key} now{more}"
    return f"its key service has no other master key: it is {one.key} still{more}"


def _wait(admin: "MasterKeyClient", nodes: list[int], *, quiet: bool) -> list["MasterKeyStatus"]:
    """Look again until these nodes have nothing to do; a node that is not there for a while is waited for."""
    said: dict[int, str] = {}
    while True:
        found = [one for one in admin.status() if one.node_id in nodes]
        for one in found:
            line = _state(one)
            if said.get(one.node_id) != line and not quiet:
                note(f"node {one.node_id}: {line}")
            said[one.node_id] = line
        if len(found) == len(nodes) and all(one.is_idle for one in found):
            return found
        time.sleep(LOOK_SECONDS)


def _is_unfinished(one: "MasterKeyStatus") -> bool:
    return bool(one.left_out) or any(use.key != one.key for use in one.needed)


def _row(one: "MasterKeyStatus") -> tuple[Any, ...]:
    if one.error is not None or not one.is_encrypted:
        return one.node_id, "-", "-", "-", one.error or "not encrypted", "-"
    old = ", ".join(use.key for use in one.needed if use.key != one.key)
    return one.node_id, one.service, one.key, _time(one.created_ms), _state(one), old or "-"


def _state(one: "MasterKeyStatus") -> str:
    if one.error is not None:
        return one.error
    if one.phase == "rewrapping":
        return f"rewrapping: {one.logs - one.logs_left} of {counted(one.logs, 'log')}"
    if one.phase == "resealing":
        done = one.reseal_logs - one.reseal_logs_left
        return f"resealing: {done} of {counted(one.reseal_logs, 'log')}, {one.resealed_bytes >> 20} MB"
    return f"{one.phase}, left out: {_some(one.left_out)}" if one.left_out else one.phase


def _some(names: tuple[str, ...]) -> str:
    return ", ".join(names[:5]) + (" …" if len(names) > 5 else "")


def _time(at_ms: int) -> str:
    return "-" if at_ms < 0 else time.strftime("%Y-%m-%d %H:%M", time.localtime(at_ms / SECOND_MS))
