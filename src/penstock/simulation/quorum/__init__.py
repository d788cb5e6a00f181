"""Several controllers that keep the cluster's metadata by Raft, under every fault there is.

The production controller, quorum, storage and codec run on the simulated runtime. Clients on
every node form the cluster, register a broker and then ask for blocks of producer ids, which
no two answers may share. What was acknowledged must be in every image at the end.

Left out: brokers; changes of members (the machine's own tests have them).
"""

from penstock.simulation.quorum.node import ControllerNode, Journal
from penstock.simulation.quorum.world import QuorumWorld, run_quorum

__all__ = ["ControllerNode", "Journal", "QuorumWorld", "run_quorum"]
