"""What whoever leads the quorum does unasked, now and then.

    Balance          gives leaderships back to preferred replicas
    InternalTopics   gives topics that were made on few brokers more replicas as brokers join
    Learners         lets brokers have the log, and those go that will not come back

Each looks at the committed image and submits what is missing as commands, so that a leader that
is none any more can do no harm. Their times begin anew with every leader.

Left out: moving replicas between brokers by load; giving up on moves that take long.
"""

from penstock.services.cluster.duties.balance import Balance
from penstock.services.cluster.duties.internal_topics import InternalTopics
from penstock.services.cluster.duties.learners import Learners

__all__ = ["Balance", "InternalTopics", "Learners"]
