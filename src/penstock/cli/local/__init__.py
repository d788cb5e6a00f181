"""`penstock up --brokers N`: a cluster of N nodes on this machine, each a process of its own.

    plan         what each node is told: number, directory, addresses
    node         one child process: its ready line, its events, how it ended
    launching    the parent: starts them, says when all are ready, stops them in order

    penstock up --brokers 3
      ├ node 1   <data-dir>/node-1   kafka 9092, http 8080, metrics 9090, peer 7000
      ├ node 2   <data-dir>/node-2   every port 100 higher
      └ node 3   <data-dir>/node-3   and 100 more

The nodes are exactly those that `penstock up --voters …` starts one by one, and find one another
the same way. The parent serves nobody. It holds every address until the nodes have it, so that a
port that is taken is said before anything starts; it passes on what the nodes say, with the node's
number before each line (a JSON line has it inside); and it starts nothing a second time: a node that
ends is reported with its last words, and the others go on. A parent that is killed takes its nodes
with it, by a signal that the kernel sends them.

Left out: restarting nodes, which is the business of whoever watches over processes; more than one
machine, for which there is `--voters`.
"""
