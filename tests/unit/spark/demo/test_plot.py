from datetime import UTC, datetime
from typing import Any
from xml.etree import ElementTree as ET

from penstock.spark.demo import first_of_each, svg


def row(name: str, host: str, minute: int, seconds: int = 60, value: float = 5.0) -> dict[str, Any]:
    return {
        "name": name,
        "series": f'{name}{{"host":"{host}"}}',
        "window_start": datetime(2026, 11, 15, 12, minute, tzinfo=UTC),
        "window_seconds": seconds,
        "count": 4,
        "sum": 4 * value,
        "min": value - 1,
        "max": value + 1,
        "p50": value,
        "p95": value + 0.9,
    }


def test_of_each_metric_one_series_is_shown_in_the_order_of_time() -> None:
    rows = [row("cpu", "b", 0), row("cpu", "a", 2), row("cpu", "a", 1, value=7.0), row("io", "b", 0)]

    found = first_of_each(rows)

    assert list(found) == ["cpu", "io"]
    assert [(window.mean, window.p50) for window in found["cpu"]] == [(7.0, 7.0), (5.0, 5.0)]
    assert len(found["io"]) == 1


def test_the_picture_is_valid_svg_with_a_panel_for_each_metric() -> None:
    rows = [row(name, "a", minute) for name in ("cpu", "<odd> & name") for minute in range(10)]
    rows += [row("cpu", "a", 0, seconds=300)]

    picture = ET.fromstring("\n".join(svg(first_of_each(rows))))

    texts = [element.text for element in picture.iter("{http://www.w3.org/2000/svg}text")]
    assert {"cpu", "<odd> & name", "12:00", "12:10"} <= set(texts)
    assert len(list(picture.iter("{http://www.w3.org/2000/svg}polygon"))) == 2
    # p50 and p95 of both, and one mean of five minutes.
    assert len(list(picture.iter("{http://www.w3.org/2000/svg}polyline"))) == 5


def test_a_metric_that_never_changes_can_be_drawn() -> None:
    flat = row("cpu", "a", 0) | {"min": 5.0, "max": 5.0, "p95": 5.0}

    assert "NaN" not in "".join(svg(first_of_each([flat])))
