"""What nodes of a cluster ask each other, besides Raft and records: the control channel.

    Forwarding ── Submit ──►                              commands, decided by whoever leads
    Presence ──── BrokerHeartbeat ──►   ControlDesk ──►   sessions of brokers, kept by whoever leads
    Founding ──── Introduction ──►      (questions and    who is there, and where
    Joining ───── Join ──►               answers)         newcomers

A question gets one answer, or none: then the asker hears that it was lost, because the link
ended or time ran out. A question that arrives twice is answered once. Nothing is asked again
by itself, for only the asker knows whether that does harm.

    frame     version 1 │ 0 question, 1 answer │ kind 1 │ number 8 │ MessagePack of the message

Left out: questions that are larger than a frame; priorities among questions.
"""

from penstock.services.cluster.control.desk import Answered, ControlDesk, Respond
from penstock.services.cluster.control.forwarding import Forwarding

__all__ = ["ControlDesk", "Answered", "Respond", "Forwarding"]
