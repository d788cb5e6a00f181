"""Who did what from where, and whether it was allowed.

    request ── decision ─▶ AuditLog ── entries, a batch at a time, off the loop ─▶ AuditFile    JSON lines
                           (bounded)                                           └─▶ the topic `__audit`

    entry       one line, and what must not be in it: secrets, contents of records
    log         which entries are written at once and which are counted first; the bounded buffer
    node_audit  logins that the node's gateway asks about, its own pages, and what the node does by itself
    file        files that are rotated, and read again by `penstock audit`

The file is the record of a node. The topic is a copy for those who collect it elsewhere: it may lack what was
recorded in the last moments of a node, or while the topic could not be written.

Nothing here delays or fails a request. What a large request changed has no place in the buffer: its entries
are made from the request when they are written. What does not fit into the buffer is dropped and counted
(`penstock_audit_dropped_total`), and the next line that is written says how many are missing.
"""

from penstock.security.audit.entry import AuditDecision, AuditEntry
from penstock.security.audit.log import AuditLog, AuditMetrics, AuditTopicWriter
from penstock.security.audit.node_audit import LoginMeans, NodeAudit

__all__ = [
    "AuditEntry",
    "AuditDecision",
    "AuditLog",
    "AuditMetrics",
    "AuditTopicWriter",
    "LoginMeans",
    "NodeAudit",
]
