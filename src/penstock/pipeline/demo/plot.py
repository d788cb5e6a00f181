"""The rollups as a picture: one panel per metric, as plain SVG."""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from html import escape
from pathlib import Path
from typing import Any, NamedTuple

WIDTH, HEIGHT = 1_200, 720
COLUMNS = 2
MARGIN, GAP = 24, 28
TITLE_HEIGHT, AXIS_WIDTH, AXIS_HEIGHT, HEAD_HEIGHT = 56, 64, 24, 22
TICKS = 4
INK, FAINT, GRID, LINE, BAND = "#1f2933", "#616e7c", "#e4e7eb", "#0b69a3", "#b3d9f2"


class Moment(NamedTuple):
    """One minute of one metric, over all hosts."""

    start_ms: int
    mean: float
    low: float
    high: float


class Panel(NamedTuple):
    """Where one metric is drawn."""

    name: str
    x: float
    y: float
    width: float
    height: float


def draw_rollups(table: str, path: Path) -> Path:
    """Read the rollup table and write the picture; answers where it is."""
    path.write_text("\n".join(svg(moments(rows_of(table)))) + "\n")
    return path


def rows_of(table: str) -> list[dict[str, Any]]:
    """The one-minute rollups."""
    import pyarrow.compute as pc
    from deltalake import DeltaTable

    columns = ["name", "window_start", "count", "sum", "p50", "p95"]
    wanted = pc.field("window_seconds") == 60
    rows: list[dict[str, Any]] = (
        DeltaTable(table).to_pyarrow_dataset().to_table(columns=columns, filter=wanted).to_pylist()
    )
    return rows


def moments(rows: Sequence[dict[str, Any]]) -> dict[str, list[Moment]]:
    """By metric and in the order of time: the mean over the hosts, and the typical p50 and p95 of one."""
    gathered: dict[tuple[str, int], list[dict[str, Any]]] = defaultdict(list)
    for row in rows:
        gathered[row["name"], round(row["window_start"].timestamp() * 1_000)].append(row)
    found: dict[str, list[Moment]] = defaultdict(list)
    for (name, start_ms), members in sorted(gathered.items()):
        count = sum(row["count"] for row in members)
        mean = sum(row["sum"] for row in members) / count
        low, high = (sum(row[rank] for row in members) / len(members) for rank in ("p50", "p95"))
        found[name].append(Moment(start_ms, mean, min(low, mean), max(high, mean)))
    return dict(found)


def svg(metrics: dict[str, list[Moment]]) -> Iterator[str]:
    """The lines of the file."""
    yield (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" '
        f'width="{WIDTH}" height="{HEIGHT}" font-family="sans-serif" font-size="12">'
    )
    yield f'<rect width="{WIDTH}" height="{HEIGHT}" fill="white"/>'
    yield _text(MARGIN, 30, "Rollups of one minute", INK, size=20)
    yield _text(MARGIN, 48, "line: mean over all hosts; band: from p50 to p95 of a host", FAINT)
    for panel in _panels(list(metrics)):
        yield from _drawn(panel, metrics[panel.name])
    yield "</svg>"


def _panels(names: Sequence[str]) -> Iterator[Panel]:
    lines = max(1, -(-len(names) // COLUMNS))
    width = (WIDTH - 2 * MARGIN - (COLUMNS - 1) * GAP) / COLUMNS
    height = (HEIGHT - TITLE_HEIGHT - MARGIN - (lines - 1) * GAP) / lines
    for number, name in enumerate(names):
        line, column = divmod(number, COLUMNS)
        x = MARGIN + column * (width + GAP) + AXIS_WIDTH
        y = TITLE_HEIGHT + line * (height + GAP) + HEAD_HEIGHT
        yield Panel(name, x, y, width - AXIS_WIDTH, height - HEAD_HEIGHT - AXIS_HEIGHT)


def _drawn(panel: Panel, moments: Sequence[Moment]) -> Iterator[str]:
    bottom, top = min(one.low for one in moments), max(one.high for one in moments)
    span = (top - bottom) or 1.0
    first, last = moments[0].start_ms, moments[-1].start_ms

    def x(moment_ms: float) -> float:
        return panel.x + panel.width * (moment_ms - first) / ((last - first) or 1)

    def y(value: float) -> float:
        return panel.y + panel.height * (1 - (value - bottom) / span)

    yield _text(panel.x, panel.y - 8, panel.name, INK, size=14)
    for tick in range(TICKS):
        value = bottom + span * tick / (TICKS - 1)
        yield f'<path d="M{panel.x:.1f},{y(value):.1f} h{panel.width:.1f}" stroke="{GRID}"/>'
        yield _text(panel.x - 6, y(value) + 4, _short(value), FAINT, anchor="end")
        moment_ms = first + (last - first) * tick / (TICKS - 1)
        anchor = "start" if tick == 0 else "end" if tick == TICKS - 1 else "middle"
        yield _text(x(moment_ms), panel.y + panel.height + 16, _clock(moment_ms), FAINT, anchor=anchor)
    edge = [
        *((one.start_ms, one.high) for one in moments),
        *((one.start_ms, one.low) for one in reversed(moments)),
    ]
    yield f'<polygon points="{_points(edge, x, y)}" fill="{BAND}"/>'
    line = _points([(one.start_ms, one.mean) for one in moments], x, y)
    yield f'<polyline points="{line}" fill="none" stroke="{LINE}" stroke-width="1.5"/>'


def _points(places: Sequence[tuple[int, float]], x: Any, y: Any) -> str:
    return " ".join(f"{x(moment_ms):.1f},{y(value):.1f}" for moment_ms, value in places)


def _text(x: float, y: float, text: str, color: str, *, size: int = 12, anchor: str = "start") -> str:
    return (
        f'<text x="{x:.1f}" y="{y:.1f}" fill="{color}" font-size="{size}" text-anchor="{anchor}">'
        f"{escape(text)}</text>"
    )


def _clock(moment_ms: float) -> str:
    return datetime.fromtimestamp(moment_ms / 1_000, UTC).strftime("%H:%M")


def _short(value: float) -> str:
    for size, suffix in ((1e9, " G"), (1e6, " M"), (1e3, " k")):
        if abs(value) >= size:
            return f"{value / size:.3g}{suffix}"
    return f"{value:.3g}"
