"""Producers kept from one task to the next.

Spark runs one task after the other in the same Python process. A new producer asks the broker
for its id, and where librdkafka has no connection yet it asks again only after half a second:
longer than a whole batch takes otherwise. So a producer whose task ended well is kept for the
next one; whoever takes it has it alone, and one that failed is never given back.
"""

import os
from collections.abc import Mapping

from penstock.client import BulkProducer
from penstock.pipeline.settings import kafka_endpoint

SENDERS_MAX = 4
_Settings = tuple[tuple[str, str], ...]
# By process: the threads that serve a producer do not come along in a fork. The parent's stay
# here untouched, since the child could not even close them.
_kept: dict[int, dict[_Settings, BulkProducer]] = {}


def kept_sender(settings: Mapping[str, str]) -> BulkProducer:
    """The producer that the last task with these settings left, or a new one."""
    sender = _ours().pop(_key(settings), None)
    return BulkProducer(kafka_endpoint(settings)) if sender is None else sender


def keep_sender(settings: Mapping[str, str], sender: BulkProducer) -> None:
    """Leave a producer, with nothing on its way, to the next task."""
    sender.forget_topics()
    kept = _ours()
    kept[_key(settings)] = sender
    while len(kept) > SENDERS_MAX:
        del kept[next(iter(kept))]


def _ours() -> dict[_Settings, BulkProducer]:
    return _kept.setdefault(os.getpid(), {})


def _key(settings: Mapping[str, str]) -> _Settings:
    return tuple(sorted(settings.items()))
