"""Links to the other nodes of the cluster, shared by everything that nodes say to each other.

    raft ──┐                            ┌── control line ──► node 2      votes, entries, commands
    control┼──► PeerHub.send(channel) ──┤
    replication┘     ▲                  └── bulk line ─────► node 2      records; dialled on first use
                     └── received(peer, frame) ◄── whoever dialled us, and answers on links we dialled

Every node has one door for peers. The first byte of a frame is its channel, and each channel has
one handler. Two lines go to each node, so that a megabyte of records never stands before a vote;
which frames go on which line is fixed by the channel (`LINE_OF`).

Each side sends what it begins on links that it dialled itself, and answers on the link that the
question came by (`Peer.send`). `keep` says who is to be dialled and where, per purpose; the hub
dials the union and dials again whatever is lost: at once when the peer's process ended, so that
a machine that refuses shows that nobody is there any more, and after a growing pause otherwise.
An incoming call from a node that we fail to reach is a sign that it is back: it is dialled at once.

Who answers under another node id than the one that was dialled is turned away.

Left out: authentication beyond the handshake; holding a link back while its receiver is busy;
more than one link per line.
"""

from penstock.services.peering.channels import (
    LINE_OF,
    Channel,
    ChannelHandler,
    LaxWatcher,
    Line,
    Peer,
    PeerWatcher,
)
from penstock.services.peering.hub import PeerHub

__all__ = ["PeerHub", "Peer", "Channel", "ChannelHandler", "PeerWatcher", "LaxWatcher", "Line", "LINE_OF"]
