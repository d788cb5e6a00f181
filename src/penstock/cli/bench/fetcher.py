"""A process that reads the start of a topic over and over, so that its broker is busy.

python -m penstock.cli.bench.fetcher HOST PORT TOPIC SECONDS
"""

import os
import sys

from penstock.cli.broker_options import endpoint
from penstock.client.connection import security_of
from penstock.client.load import fetch_for, open_connections
from penstock.core.model import PenstockError


def main() -> None:
    host, port, topic, seconds = sys.argv[1:]
    where = endpoint(f"{host}:{port}", None)
    connection = open_connections((host, int(port)), 1, security_of(where))[0]
    os.write(sys.stdout.fileno(), b"reading\n")
    fetch_for(connection, topic, float(seconds))


if __name__ == "__main__":
    try:
        main()
    except PenstockError as error:
        sys.exit(str(error))
