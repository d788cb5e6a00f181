"""Putting load on a broker, with a stock client and with none.

    fleet       what a fleet of hosts measures, for records that look like something
    flood       as many records as librdkafka can send, or so many a second
    drain       as many records as librdkafka can read
    stream      blocks of records of somebody's own, each acknowledged before the next
    pace        one record at a time at a rate, for a consumer that waits on the other side
    roundtrip   one request after the other on plain sockets: no client to measure by mistake

librdkafka can be pointed at a broker inside its own process (`mock_endpoint`): what it
reaches there is its own limit, and the yardstick for what it reaches elsewhere.

Every function is bounded in records and in time. What they answer are plain figures;
`penstock bench` makes them into a report.
"""

from penstock.client.load.drain import Drained, drain
from penstock.client.load.flood import Flooded, Load, flood, mock_endpoint
from penstock.client.load.pace import await_stamped, send_stamped
from penstock.client.load.roundtrip import RoundTrips, fetch_empty, fetch_for, publish, publish_frames
from penstock.client.load.stream import Stream

__all__ = [
    "Load",
    "Flooded",
    "flood",
    "mock_endpoint",
    "Stream",
    "Drained",
    "drain",
    "send_stamped",
    "await_stamped",
    "RoundTrips",
    "publish",
    "publish_frames",
    "fetch_empty",
    "fetch_for",
]
