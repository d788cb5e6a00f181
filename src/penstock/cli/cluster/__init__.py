"""`penstock cluster`: what an operator does with a cluster that runs.

    command        the table of the commands
    admin_client   one connection with our own codec to a broker; the cluster, its partitions, plans and
                   rates as values
    status         penstock cluster status
    members        penstock cluster members, add-voter, remove-voter, unregister
    reassign       penstock cluster reassign, elect, drain
    scrub          penstock cluster scrub

Every command speaks Kafka's own administration APIs, to any broker: one that does not lead the
metadata quorum forwards what only its leader can do. Like all commands they end with 1 and one
line when something fails; `status` also when a partition is offline.

Left out: making plans. A plan says where partitions shall be, and comes from `--to` or from a file.
"""
