"""The judgement behind each command: facts and a reply, or a refusal.

Each module takes the image as it is and answers a `Decision`; nothing here can change
anything, because images cannot change. Where a decision builds on facts it has just made
(a broker that is registered, then the partitions that may now have a leader), it works on
a `Draft`: the image as if those facts were applied already.

Left out: moving replicas because brokers are unevenly full; placement counts partitions, not
bytes, and only when they are made.
"""
