"""Classic consumer groups: the clients' own leader assigns, the coordinator keeps order.

    group, member, ballot   the state and what must hold in it
    rebalance               from one generation to the next
    join, static, sync      who takes part
    presence                who is still there
    storing                 what survives the coordinator
    directory               which groups are alive

Eager and cooperative rebalancing look the same from here: what members give up between
generations is between them and their leader.

Left out: the move of a group between this protocol and the newer ones.
"""

from penstock.core.groups.classic.directory import ClassicGroups
from penstock.core.groups.classic.group import ClassicGroup

__all__ = ["ClassicGroup", "ClassicGroups"]
