"""Who is alive: brokers say so, and whoever leads the quorum believes them for a while.

    Pulse (every broker) ── heartbeat, every 500 ms ──► Sessions (the leader)
        ▲                                                   │ silence for 2 s, or a machine that refuses
        └── live, fenced or stale ◄─────────────────────────┘   ──► FenceBroker

A broker that is fenced asks to be unfenced, one whose epoch is stale ends. A new leader grants
everybody a whole session, for it cannot know who was silent before; a process that is gone shows
at once, because nobody listens where it was, and no link from it is open.

A node that stops says so first (`Farewell`): its leaderships go to others, it leaves every ISR, and
the quorum gets another leader. Then nobody notices its end.

Left out: sessions that brokers choose themselves; wall clocks, which have no say here.
"""

from penstock.services.cluster.sessions.farewell import Farewell
from penstock.services.cluster.sessions.pulse import Pulse
from penstock.services.cluster.sessions.sessions import SessionOptions, Sessions

__all__ = ["Sessions", "SessionOptions", "Pulse", "Farewell"]
