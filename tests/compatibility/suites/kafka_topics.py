"""As much of `kafka-topics.sh` as librdkafka's tests use."""

import argparse
import sys

from confluent_kafka.admin import AdminClient, NewPartitions, NewTopic

SECONDS = 30


def main(arguments: list[str]) -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--bootstrap-server", required=True)
    parser.add_argument("--topic", required=True)
    parser.add_argument("--partitions", type=int, default=-1)
    parser.add_argument("--replication-factor", type=int, default=-1)
    parser.add_argument("--config", action="append", default=[])
    action = parser.add_mutually_exclusive_group(required=True)
    for verb in ("create", "alter", "delete"):
        action.add_argument(f"--{verb}", dest="verb", action="store_const", const=verb)
    asked = parser.parse_args(arguments)
    admin = AdminClient({"bootstrap.servers": asked.bootstrap_server})
    if asked.verb == "create":
        config = dict(entry.split("=", 1) for entry in asked.config)
        topic = NewTopic(asked.topic, asked.partitions, asked.replication_factor, config=config)
        done = admin.create_topics([topic])
    elif asked.verb == "alter":
        done = admin.create_partitions([NewPartitions(asked.topic, asked.partitions)])
    else:
        done = admin.delete_topics([asked.topic])
    done[asked.topic].result(SECONDS)


if __name__ == "__main__":
    main(sys.argv[1:])
