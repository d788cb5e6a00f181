"""Delayed records as a replicated machine: the coordinator of one partition of `__delayed`.

    facts            what is stored: the records themselves are
    commands         what clients and the node itself ask, and the replies
    delay_ids        what clients show to cancel
    pending_delays   what is kept in memory of a pending delay: 32 bytes, the record stays in the log
    timer_wheel      which of them are due: 8 bytes more
    coordinator      the machine

A record is published when the wall clock shows its time, and not before. The node that coordinates takes
what is due (`DelaysDue`, `TakeDueDelays`), reads the records from the log, and publishes them in a
transaction that `EndDelays` is part of: if it is committed, the records are in their topics and the delays
are over; if it is not, neither. Until the marker comes nobody else can take them, whoever coordinates.

docs/adr/0018-delayed-records.md says why.

Left out: repetition (a record that is published every hour), and an order among records that are due at once.
"""

from penstock.core.delays.commands import (
    CancelDelays,
    ClientDelayCommand,
    DelayCommand,
    DelayList,
    DelayReply,
    DelayResults,
    DelayTopics,
    DueDelays,
    EndDelays,
    FindDelays,
    ListDelays,
    OnDelayReply,
    ReleaseDelays,
    ScheduleRecords,
    TakeDueDelays,
)
from penstock.core.delays.coordinator import (
    BEING_PUBLISHED,
    NOT_PENDING,
    DelayCoordinator,
    DelayEvent,
    DelayOptions,
    DelayOutcome,
    DelaysDropped,
    DelaysDue,
)
from penstock.core.delays.delay_ids import (
    ID_BYTES,
    ID_MAX,
    SLOTS,
    DelayId,
    choose_ids,
    read_delay_id,
    slot_at,
    write_delay_id,
    write_delay_ids,
)
from penstock.core.delays.facts import (
    ANY_PARTITION,
    DelayedRecords,
    DelayFact,
    DelayFinish,
    DelaysEnding,
    DelaysFinished,
    DelaysStored,
    DelayTransactionEnded,
    join_records,
)
from penstock.core.delays.pending_delays import PendingDelay, PendingDelays
from penstock.core.delays.timer_wheel import TimerWheel

__all__ = [
    "ANY_PARTITION",
    "BEING_PUBLISHED",
    "ID_BYTES",
    "ID_MAX",
    "NOT_PENDING",
    "CancelDelays",
    "ClientDelayCommand",
    "DelayCommand",
    "DelayCoordinator",
    "DelayEvent",
    "DelayFact",
    "DelayFinish",
    "DelayId",
    "DelayList",
    "DelayOptions",
    "DelayOutcome",
    "DelayReply",
    "DelayResults",
    "DelayTopics",
    "DelayTransactionEnded",
    "DelayedRecords",
    "DelaysDropped",
    "DelaysDue",
    "DelaysEnding",
    "DelaysFinished",
    "DelaysStored",
    "DueDelays",
    "EndDelays",
    "FindDelays",
    "ListDelays",
    "OnDelayReply",
    "PendingDelay",
    "PendingDelays",
    "ReleaseDelays",
    "ScheduleRecords",
    "TakeDueDelays",
    "TimerWheel",
    "SLOTS",
    "choose_ids",
    "slot_at",
    "join_records",
    "read_delay_id",
    "write_delay_id",
    "write_delay_ids",
]
