"""Counts records by their keys with quixstreams, exactly once; runs in a venv of its own, and may be killed.

python quix_counts.py BOOTSTRAP SOURCE SINK STATE_DIRECTORY
"""

import sys

from quixstreams import Application, State  # type: ignore[import-not-found]


def main(bootstrap: str, source: str, sink: str, directory: str) -> None:
    application = Application(
        broker_address=bootstrap,
        consumer_group="counters",
        processing_guarantee="exactly-once",
        auto_offset_reset="earliest",
        commit_interval=0.2,
        state_dir=directory,
        consumer_extra_config={"session.timeout.ms": 6_000, "heartbeat.interval.ms": 500},
    )
    frame = application.dataframe(application.topic(source, key_deserializer="str"))

    def count(_value: int, key: str, _timestamp: int, _headers: object, state: State) -> str:
        number = state.get("count", 0) + 1
        state.set("count", number)
        return f"{key}={number}"

    frame = frame.apply(count, stateful=True, metadata=True)
    frame.to_topic(application.topic(sink, key_serializer="str", value_serializer="str"))
    application.run()


if __name__ == "__main__":
    main(*sys.argv[1:])
