"""What is between transaction coordinators and the partitions that take part in transactions.

    markers            the end of transactions, written into the partitions that this node leads
    marker_sender      the coordinator's side: sends markers until every partition has them
    verification       whether a transactional batch may be appended: the leader asks the coordinator
    offset_commits     positions of groups, committed inside transactions
    late_transactions  those that should have ended long ago
    batch_commit       many transactions of a sink, committed at once
    peers              what the two ask of each other, on this node or another

Nothing here is replicated: what must survive is in the logs of partitions and coordinators.
"""
