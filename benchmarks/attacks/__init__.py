"""Attacks on a node, and what clients beside them feel.

    python -m benchmarks.attacks [--only NAME ...] [--nodes 1|3] [--seconds N] [--json F] [--list]
    python -m benchmarks.attacks --all-at-once [--minutes N] [--kill] [--nodes 1|3] [--json F]

    catalog       every attack there is
    attack        what an attack is; what an attacker has to work with
    settings      settings at their edges
    requests      one valid request that is much work
    frames        connections that are no use to anybody
    state         things that a node keeps because a client asked
    fairness      many small requests, and many who wait
    batches       batches that are not what they say, and small ones that unpack to large ones
    groups        groups that never settle
    admin         topics and partitions without end
    gateway       REST, WebSocket and gRPC
    secured       handshakes, logins, refusals, and what administrators add, with security on
    host          a stalled process, few descriptors, a full disk, a damaged file

    well_behaved  a producer and a consumer group that must not feel any of it
    nodes         the nodes that are attacked
    run           one attack: before, meanwhile, afterwards, after `kill -9`
    together      all of them at once, for minutes
    niceness      who goes first where processor time is short
    figures       the row that is printed, and the goals

Each attack has nodes of its own, started for it. The well-behaved clients run for some seconds alone
(`base p99`), then beside the attackers (`p50`, `p99`, `max` of the producer, counted from when a record
should have been sent; `read max` from there to the consumer), then alone again. `MB` is the anonymous
memory of the nodes and their gateways before the attack, the most during it, and some seconds after it.
At the end every node is killed and started (`start s`), the topic is read from its start, and every
acknowledged record must be there once.

The goals: p99 below 50 ms, no wait of 500 ms, memory back within 50 MB, nothing lost, no node ended,
every node starts again. `misses` names those that were missed. The row `nothing` has no attacker:
what it shows is the noise of the machine, and no other row can be better.

Attackers are polite to the machine, though not to the node: they run at nice 19, so that on two cores the
node's loop is what is busy, and the clients' own wait for a core does not count as the node's.

Left out: attackers on other machines, and whoever has a shell on the node (but for a full disk, a
stopped process and a damaged file, which happen without anybody's will).
"""
