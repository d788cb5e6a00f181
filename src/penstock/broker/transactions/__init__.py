"""What is between transaction coordinators and the partitions that take part in transactions.

markers         the end of transactions, written into the partitions that this node leads
verification    whether a transactional batch may be appended: the leader asks the coordinator
"""
