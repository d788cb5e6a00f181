from hypothesis import given
from hypothesis import strategies as st

from penstock.spark.metrics.measurement import MetricSeries

TEXT = st.text(st.characters(codec="utf-8"), max_size=8) | st.text(st.sampled_from('{}":,\\a'), max_size=12)
SERIES = st.builds(MetricSeries, TEXT.filter(bool), st.dictionaries(TEXT, TEXT, max_size=3))


@given(SERIES)
def test_a_series_is_found_again_in_its_text(series: MetricSeries) -> None:
    assert MetricSeries.parse(series.text) == series


@given(SERIES, SERIES)
def test_two_series_never_share_a_text(one: MetricSeries, other: MetricSeries) -> None:
    assert (one.text == other.text) == (one == other)


def test_the_order_of_labels_does_not_matter() -> None:
    assert MetricSeries("cpu", {"b": "1", "a": "2"}).text == 'cpu{"a":"2","b":"1"}'
