"""The ways in which a record can be none; each is refused by one of the rules."""

import itertools
from collections.abc import Callable, Iterator

from penstock.client.load import HostSeries
from penstock.pipeline.generator.plan import TIMESTAMP_END_MS


def malformed_values() -> Iterator[Callable[[HostSeries, int], bytes | None]]:
    """One maker after the other, so that every kind comes as often as any other."""
    return itertools.cycle(MAKERS.values())


def _whole(series: HostSeries, value: str, timestamp: str) -> bytes:
    return f"{series.before_value}{value}{series.before_time}{timestamp}{series.after_time}".encode()


def _without(series: HostSeries, timestamp: int, old: bytes, new: bytes) -> bytes:
    whole = _whole(series, "1", str(timestamp))
    assert old in whole
    return whole.replace(old, new)


def _labels(series: HostSeries) -> bytes:
    return series.before_time.encode().partition(b'"labels":')[2].rpartition(b',"timestamp"')[0]


MAKERS: dict[str, Callable[[HostSeries, int], bytes | None]] = {
    "not JSON": lambda s, t: b"%s,%d,17.5" % (s.shape.name.encode(), t),
    "cut off": lambda s, t: _whole(s, "17.5", str(t))[:-9],
    "no name": lambda s, t: _without(s, t, b'"name":"%s",' % s.shape.name.encode(), b""),
    "empty name": lambda s, t: _without(s, t, b'"name":"%s"' % s.shape.name.encode(), b'"name":""'),
    "value is text": lambda s, t: _whole(s, '"NaN"', str(t)),
    "value is no number": lambda s, t: _whole(s, "NaN", str(t)),
    "value is null": lambda s, t: _whole(s, "null", str(t)),
    "time before 1970": lambda s, t: _whole(s, "17.5", str(-t)),
    "time after 2099": lambda s, t: _whole(s, "17.5", str(TIMESTAMP_END_MS + t)),
    "time is text": lambda s, t: _whole(s, "17.5", f'"{t} ms"'),
    "labels are a list": lambda s, t: _without(s, t, _labels(s), b"[1,2]"),
    "labels are text": lambda s, t: _without(s, t, _labels(s), b'"host=1"'),
    "no client": lambda s, t: _without(s, t, b',"client":"%s"' % s.client.encode(), b""),
    "not UTF-8": lambda s, t: _without(s, t, s.shape.name.encode(), b"cpu\xff\xfe"),
    "empty": lambda _, __: b"",
    "null": lambda _, __: None,
}
