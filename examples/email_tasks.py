"""What a small Celery or RQ job does: a web request enqueues mails, workers send them.

python examples/email_tasks.py enqueue anna@example.org ben@example.org     # returns when they are stored
python examples/email_tasks.py worker                                       # until Ctrl-C or SIGTERM

    Celery                                          here
    app = Celery("mails", broker=…)                 queue = TaskQueue("mails", bootstrap=…)
    @app.task(bind=True)                            @queue.task
    send.delay("anna")                              send.enqueue("anna")
    send.apply_async(["anna"], countdown=5)         send.with_options(delay_ms=5_000).enqueue("anna")
    raise self.retry(countdown=1)                   raise RetryLater(1_000)
    raise celery.exceptions.Reject(…)               raise Reject(…)
    celery -A mails worker --concurrency 4          Worker(queue, concurrency=4).run()
"""

import os
import sys

from penstock.client import Reject, RetryLater, TaskQueue, Worker, current_task

queue = TaskQueue("example-mails", bootstrap=os.environ.get("PENSTOCK_BOOTSTRAP", "127.0.0.1:9092"))


def say(line: str) -> None:
    """Print a line in one piece: the tasks run in threads, and `print` writes the line's end by itself."""
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


@queue.task
def send_mail(address: str, subject: str) -> None:
    """Send one mail, so to say."""
    if "@" not in address:
        # No other try can help: the call becomes a dead letter in example-mails.dlq.
        raise Reject(f"{address} is no address")
    if address.startswith("busy") and current_task().attempt == 1:
        # Without this, an exception is enough: the next try comes after the group's backoff.
        raise RetryLater(100, "the mail server is busy")
    say(f"sent to {address} at attempt {current_task().attempt}: {subject}")


@queue.task
async def note_visit(address: str) -> None:
    """Async tasks share the worker's loop."""
    say(f"{address} was here")


def main(command: str, addresses: list[str]) -> None:
    if command == "worker":
        Worker(queue, concurrency=4).run()
        print("finished what was running")
        return
    with queue:
        for address in addresses:
            print("stored", send_mail.enqueue(address, subject="Welcome").id)
            note_visit.with_options(priority=9).enqueue(address)


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else "worker", sys.argv[2:])
