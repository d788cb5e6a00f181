"""The examples and tables of docs/formats/peer-frames.md are true."""

import re
from pathlib import Path
from uuid import UUID

from penstock.broker.cluster.peers import LINE_OF, Channel
from penstock.broker.cluster.raft_codec import MESSAGES as RAFT_MESSAGES
from penstock.broker.cluster.raft_codec import decode_message, encode_message
from penstock.broker.cluster.rpc import MESSAGES, RpcFrame, SendHeartbeat, decode_frame, encode_frame
from penstock.core.model import BrokerEpoch, NodeId, Offset
from penstock.core.raft import Index, Term
from penstock.core.raft.messages import RaftHeartbeat
from penstock.runtime import NodeIdentity
from penstock.runtime.peer_handshake import Hello, HelloRefusal, read_greeting, write_hello

PAGE = (Path(__file__).parents[4] / "docs" / "formats" / "peer-frames.md").read_text()
FIRST_COLUMN = re.compile(r"^((?:[0-9a-f]{2} )*[0-9a-f]{2})(?:  |$)", re.MULTILINE)


def example(heading: str) -> bytes:
    block = PAGE.split(f"### {heading}\n")[1].split("```")[1]
    return bytes.fromhex(" ".join(FIRST_COLUMN.findall(block)))


def test_the_hello_of_the_page_reads_as_the_page_says() -> None:
    cluster, directory = "0190163d-8694-739b-aea5-966c26f8ad91", "2f0c8a4e-1111-4222-8333-444455556666"
    hello = Hello(NodeIdentity(UUID(cluster), NodeId(2), UUID(directory)))

    shown = example("Worked example: a hello")

    assert read_greeting(shown) == hello
    assert write_hello(hello) == shown


def test_the_heartbeats_of_the_page_read_as_the_page_says() -> None:
    raft = RaftHeartbeat(Term(3), Index(41), 7)
    control = RpcFrame(False, 16_777_217, SendHeartbeat(NodeId(2), BrokerEpoch(5), Offset(40)))

    of_raft = example("Worked example: a heartbeat of a leader")
    of_control = example("Worked example: a broker's heartbeat")

    assert decode_message(of_raft) == raft
    assert encode_message(raft) == of_raft
    assert decode_frame(memoryview(of_control)) == control
    assert encode_frame(control) == of_control


def test_the_page_has_every_kind_channel_and_reason() -> None:
    for number, kind in enumerate(RAFT_MESSAGES):
        assert re.search(rf"\b{number}\s+{kind.__name__}\b", PAGE)
    for number, message in enumerate(MESSAGES):
        as_question = f"| {number} | {message.__name__}" in PAGE
        assert as_question or re.search(rf"[|,] {number} {message.__name__}\b", PAGE), message
    for channel in Channel:
        row = next(line for line in PAGE.splitlines() if line.startswith(f"| {channel.value} "))
        assert channel.name.lower() in row
        assert row.rstrip().endswith(f"{LINE_OF[channel].name.lower()} |")
    for reason in HelloRefusal:
        assert f"{reason.value} {reason.name.lower().replace('_', ' ')}" in PAGE
