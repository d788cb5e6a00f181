"""`penstock delay`: records that are to be published later."""

from dataclasses import asdict
from datetime import UTC, datetime

import typer

from penstock.cli.broker_options import BOOTSTRAP, CLIENT_OPTION, InvalidOption, endpoint
from penstock.cli.output import JSON_OPTION, counted, note, show_json, show_table

app = typer.Typer(help="List and cancel records that are published later.", no_args_is_help=True)
UNITS_MS = {"ms": 1, "s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}


@app.command("list")
def list_(
    *,
    topic: str | None = typer.Option(None, "--topic", help="Only records for this topic."),
    count: int = typer.Option(500, "--count", min=1, max=1_000_000, help="How many at most."),
    as_json: bool = JSON_OPTION,
    bootstrap: str = BOOTSTRAP,
    options: list[str] | None = CLIENT_OPTION,
) -> None:
    """List records that are to be published later, in the order of their ids."""
    from penstock.client.delays import DelayAdmin

    found = DelayAdmin(endpoint(bootstrap, options)).listed(topic, count)
    if as_json:
        show_json([asdict(one) for one in found])
        return
    show_table(
        "",
        ("delay id", "topic", "deliver at", "bytes"),
        [(one.delay_id, one.topic, shown_time(one.deliver_at_ms), one.size_bytes) for one in found],
    )


@app.command()
def cancel(
    delay_ids: list[str] = typer.Argument(metavar="ID..."),
    *,
    bootstrap: str = BOOTSTRAP,
    options: list[str] | None = CLIENT_OPTION,
) -> None:
    """Do not publish these records; exit with 1 if one of them cannot be cancelled."""
    from penstock.client.delays import DelayAdmin

    reasons = DelayAdmin(endpoint(bootstrap, options)).cancel(delay_ids)
    for delay_id, reason in zip(delay_ids, reasons, strict=True):
        if reason is not None:
            note(f"penstock: {delay_id}: {reason}")
    cancelled = sum(reason is None for reason in reasons)
    note(f"{counted(cancelled, 'delay')} cancelled")
    if cancelled < len(reasons):
        raise typer.Exit(1)


def deliver_at_ms(delay: str | None, deliver_at: str | None, now_ms: int) -> int | None:
    """When to publish, of `--delay 30s` or `--deliver-at 2030-01-01T00:00:00Z`; None for at once."""
    if delay is not None and deliver_at is not None:
        raise InvalidOption("--delay and --deliver-at exclude each other")
    if delay is not None:
        return now_ms + _duration_ms(delay)
    return None if deliver_at is None else _time_ms(deliver_at)


def _duration_ms(text: str) -> int:
    number = text.rstrip("abcdefghijklmnopqrstuvwxyz")
    unit = text[len(number) :] or "s"
    try:
        found = float(number) * UNITS_MS[unit]
    except (ValueError, KeyError):
        found = -1.0
    if not 0 <= found < 10**15:
        raise InvalidOption(f"--delay {text}: expected a number with ms, s, m, h or d, such as 30s")
    return int(found)


def _time_ms(text: str) -> int:
    try:
        time = datetime.fromisoformat(text)
    except ValueError:
        raise InvalidOption(f"--deliver-at {text}: expected a time such as 2030-01-01T12:00:00Z") from None
    if time.tzinfo is None:
        raise InvalidOption(f"--deliver-at {text}: say in which zone, such as Z or +01:00 behind it")
    return int(time.timestamp() * 1_000)


def shown_time(time_ms: int) -> str:
    return datetime.fromtimestamp(time_ms / 1_000, UTC).isoformat(timespec="milliseconds")
