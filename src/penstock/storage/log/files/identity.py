"""Which topic a partition directory belongs to: 16 bytes of topic id.

It is written last when a log is created. A directory without it was never finished, so
nothing was ever appended there.
"""

from uuid import UUID

from penstock.core.model import TopicId
from penstock.storage.disk import Buffer
from penstock.storage.log.errors import CorruptFile
from penstock.storage.log.files.frame import Kind, frame, unframe

_TOPIC_ID_BYTES = 16


def encode_identity(topic_id: TopicId) -> bytes:
    return frame(Kind.IDENTITY, topic_id.bytes)


def decode_identity(content: Buffer) -> TopicId:
    payload = unframe(Kind.IDENTITY, content)
    if len(payload) != _TOPIC_ID_BYTES:
        raise CorruptFile(f"a topic id has 16 bytes, not {len(payload)}")
    return TopicId(UUID(bytes=bytes(payload)))
