"""How a blank node becomes a member: it founds a quorum with others, or joins the one there is.

    blank ── Founding ──┬── every voter answers: blank, and with the same list ──► founding members
       (asks everybody) ├── somebody is a member, and founded with us ───────────► the same members
                        ├── somebody is a member of a quorum without us ─────────► Joining
                        └── lists differ, two clusters, an id that is taken ─────► one line, and the end

Every node asks all voters again and again, in rounds, and says whom it has reached. It founds only
when all have answered one round with the same list of voters and the same directories, over links
that go to the addresses in the list: so no two nodes ever found different quorums out of the same
directories. A node that was away in that moment learns the founding members from another.

`Joining` is the newcomer's side: it asks to be let in until it is where it wants to be.
`Admission` is the leader's: one change of members per question, and each question is safe to
repeat. A voter whose directory is lost comes back with a new one; the old one is removed first,
unless a node still runs under it.

    meta/joining      while a newcomer has not got the vote it was started for: see `wishes`

Left out: founding with a part of the voters; discovering voters other than by the list.
"""

from penstock.services.cluster.founding.admission import Admission
from penstock.services.cluster.founding.foreigners import Foreigners
from penstock.services.cluster.founding.founding import Founding, founds_alone
from penstock.services.cluster.founding.joining import Joining
from penstock.services.cluster.founding.outcomes import Found, JoinThem, NotFounded
from penstock.services.cluster.founding.wishes import read_wish, write_wish

__all__ = [
    "Founding",
    "founds_alone",
    "Foreigners",
    "Found",
    "JoinThem",
    "NotFounded",
    "Joining",
    "Admission",
    "read_wish",
    "write_wish",
]
