import os

from penstock.client import BulkSender, Endpoint
from penstock.pipeline.sink.senders import keep_sender, kept_sender

NOWHERE = {"bootstrap.servers": "127.0.0.1:1"}


def in_a_child(sender: BulkSender) -> int:
    """The exit code of a forked process: 1 if it is handed the parent's producer."""
    child = os.fork()
    if child == 0:
        os._exit(int(kept_sender(NOWHERE) is sender))
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def test_a_producer_is_kept_for_the_next_task_of_the_process_but_not_for_a_fork_of_it() -> None:
    sender = BulkSender(Endpoint("127.0.0.1:1"))
    keep_sender(NOWHERE, sender)

    handed_down = in_a_child(sender)

    assert handed_down == 0
    assert kept_sender(NOWHERE) is sender
