"""The consumer of the end-to-end measurement, in a process of its own.

    python -m penstock.cli.bench.waiter BOOTSTRAP TOPIC RECORDS SECONDS

It writes `ready` when it waits at the end of the topic, and then the age of every record in
nanoseconds as one JSON list.
"""

import json
import os
import sys

from penstock.cli.broker_options import endpoint
from penstock.client.load import await_stamped
from penstock.core.model import PenstockError


def main() -> None:
    bootstrap, topic, records, seconds = sys.argv[1:]
    said: list[str] = []

    def ready() -> None:
        if not said:
            said.append("ready")
            os.write(sys.stdout.fileno(), b"ready\n")

    ages = await_stamped(endpoint(bootstrap, None), topic, int(records), float(seconds), ready)
    json.dump(ages, sys.stdout)


if __name__ == "__main__":
    try:
        main()
    except PenstockError as error:
        sys.exit(str(error))
