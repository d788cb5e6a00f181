import os

import pytest

from penstock.client import BulkProducer, Endpoint
from penstock.spark.sink.delivery import keep_sender, kept_sender

NOWHERE = {"bootstrap.servers": "127.0.0.1:1"}


def test_a_producer_is_kept_for_the_next_task_of_the_process_but_not_for_a_fork_of_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    sender = BulkProducer(Endpoint("127.0.0.1:1"))
    keep_sender(NOWHERE, sender)

    # A fork in earnest, in a process with librdkafka's threads, may never come back.
    with monkeypatch.context() as forked:
        forked.setattr(os, "getpid", lambda: -1)
        handed_down = kept_sender(NOWHERE)

    assert handed_down is not sender
    assert kept_sender(NOWHERE) is sender
