"""The rollups of one host as a picture: a panel for each metric, as plain SVG."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import UTC, datetime
from html import escape
from pathlib import Path
from typing import Any, NamedTuple

WIDTH, HEIGHT = 1_200, 760
COLUMNS = 2
MARGIN, GAP = 24, 24
TITLE_HEIGHT, AXIS_WIDTH, AXIS_HEIGHT, HEAD_HEIGHT = 64, 60, 24, 24
TICKS = 4
MINUTE, FIVE_MINUTES = 60, 300
INK, FAINT, GRID = "#1f2933", "#616e7c", "#e4e7eb"
BAND, MEDIAN, HIGH, MEAN = "#d3e5f3", "#0b69a3", "#c65d07", "#1f2933"
LEGEND = (
    ("min to max, 1 min", BAND, 10),
    ("p50, 1 min", MEDIAN, 3),
    ("p95, 1 min", HIGH, 3),
    ("mean, 5 min", MEAN, 1),
)
Place = Callable[[float], float]


class Window(NamedTuple):
    """One window of one series."""

    start_ms: int
    seconds: int
    mean: float
    least: float
    greatest: float
    p50: float
    p95: float


class Panel(NamedTuple):
    """Where one metric is drawn."""

    name: str
    x: float
    y: float
    width: float
    height: float


def draw_rollups(table: str, path: Path) -> Path:
    """Read the rollup table and write the picture; answers where it is."""
    path.write_text("\n".join(svg(first_of_each(rows_of(table)))) + "\n")
    return path


def rows_of(table: str) -> list[dict[str, Any]]:
    from deltalake import DeltaTable

    if not DeltaTable.is_deltatable(table):
        return []  # there was nothing to roll up
    columns = ["name", "series", "window_start", "window_seconds", "count", "sum", "min", "max", "p50", "p95"]
    rows: list[dict[str, Any]] = DeltaTable(table).to_pyarrow_dataset().to_table(columns=columns).to_pylist()
    return rows


def first_of_each(rows: Iterable[dict[str, Any]]) -> dict[str, list[Window]]:
    """By metric: the windows of its first series, in the order of time."""
    rows = list(rows)
    first: dict[str, str] = {}
    for row in rows:
        first[row["name"]] = min(row["series"], first.get(row["name"], row["series"]))
    found: dict[str, list[Window]] = {name: [] for name in sorted(first)}
    for row in rows:
        if row["series"] == first[row["name"]]:
            found[row["name"]].append(
                Window(
                    round(row["window_start"].timestamp() * 1_000),
                    row["window_seconds"],
                    row["sum"] / row["count"],
                    *(row["min"], row["max"], row["p50"], row["p95"]),
                )
            )
    return {name: sorted(windows) for name, windows in found.items()}


def svg(metrics: dict[str, list[Window]]) -> Iterator[str]:
    """The lines of the file."""
    yield (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" '
        f'width="{WIDTH}" height="{HEIGHT}" font-family="sans-serif" font-size="12">'
    )
    yield f'<rect width="{WIDTH}" height="{HEIGHT}" fill="white"/>'
    yield _text(MARGIN, 36, "Rollups of one host", INK, size=20)
    for number, (meaning, color, height) in enumerate(LEGEND):
        x = WIDTH / 2 - 20 + number * 150
        yield f'<rect x="{x}" y="{32 - height / 2}" width="20" height="{height}" fill="{color}"/>'
        yield _text(x + 26, 36, meaning, FAINT)
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


def _drawn(panel: Panel, windows: Sequence[Window]) -> Iterator[str]:
    bottom, top = min(one.least for one in windows), max(one.greatest for one in windows)
    first = min(one.start_ms for one in windows)
    last = max(one.start_ms + one.seconds * 1_000 for one in windows)

    def x(moment_ms: float) -> float:
        return panel.x + panel.width * (moment_ms - first) / (last - first)

    def y(value: float) -> float:
        return panel.y + panel.height * (1 - (value - bottom) / ((top - bottom) or 1.0))

    yield _text(panel.x, panel.y - 8, panel.name, INK, size=14)
    for tick in range(TICKS):
        value, moment_ms = (
            low + (high - low) * tick / (TICKS - 1) for low, high in ((bottom, top), (first, last))
        )
        yield f'<path d="M{panel.x:.1f},{y(value):.1f} h{panel.width:.1f}" stroke="{GRID}"/>'
        yield _text(panel.x - 6, y(value) + 4, _short(value), FAINT, anchor="end")
        anchor = "start" if tick == 0 else "end" if tick == TICKS - 1 else "middle"
        yield _text(x(moment_ms), panel.y + panel.height + 16, _clock(moment_ms), FAINT, anchor=anchor)
    yield from _lines(windows, x, y)


def _lines(windows: Sequence[Window], x: Place, y: Place) -> Iterator[str]:
    minutes = [(one.start_ms + 30_000, one) for one in windows if one.seconds == MINUTE]
    edge = [(moment, one.greatest) for moment, one in minutes]
    edge += [(moment, one.least) for moment, one in reversed(minutes)]
    yield f'<polygon points="{_points(edge, x, y)}" fill="{BAND}"/>'
    for color, line in (
        (HIGH, [(moment, one.p95) for moment, one in minutes]),
        (MEDIAN, [(moment, one.p50) for moment, one in minutes]),
    ):
        yield f'<polyline points="{_points(line, x, y)}" fill="none" stroke="{color}" stroke-width="1.5"/>'
    for one in windows:
        if one.seconds == FIVE_MINUTES:
            ends = [(one.start_ms, one.mean), (one.start_ms + FIVE_MINUTES * 1_000, one.mean)]
            yield f'<polyline points="{_points(ends, x, y)}" stroke="{MEAN}" stroke-width="1"/>'


def _points(places: Iterable[tuple[float, float]], x: Place, y: Place) -> str:
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
            return f"{value / size:.4g}{suffix}"
    return f"{value:.3g}"
