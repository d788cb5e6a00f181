"""`penstock cluster`: what an operator does with a cluster that runs.

    overview     a cluster at one moment as values, and what is wrong with it
    targets      partitions, nodes, plans and rates as they are typed
    asking       one connection with our own codec, to whichever broker answers
    status       penstock cluster status
    members      penstock cluster members, add-voter, remove-voter, unregister
    moves        reassignments under way, and how far they are
    reassign     penstock cluster reassign
    elect        penstock cluster elect
    drain        penstock cluster drain
    watching     a bar or lines while something takes long

Every command speaks Kafka's own administration APIs, to any broker: one that does not lead the
metadata quorum passes on what only its leader can do. Like all commands they end with 1 and one
line when something is refused; `status` also when a partition is offline.

Left out: making plans. A plan says where partitions shall be, and comes from `--to` or from a file.
"""
