"""The two spellings of a cluster id: sixteen bytes, and Kafka's 22 characters for them."""

import base64
import binascii
from uuid import UUID

from penstock.core.model import CorruptionError
from penstock.runtime import Entropy


def new_cluster_id(entropy: Entropy) -> UUID:
    """A random id. None that starts with a dash: on a command line it would be an option."""
    while True:
        drawn = UUID(bytes=entropy.bytes(16), version=4)
        if not show_cluster_id(drawn).startswith("-"):
            return drawn


def show_cluster_id(cluster_id: UUID) -> str:
    """As clients and the metadata log know it: URL-safe base64 without padding."""
    return base64.urlsafe_b64encode(cluster_id.bytes).rstrip(b"=").decode("ascii")


def parse_cluster_id(text: str) -> UUID:
    """The id that is shown as `text`."""
    try:
        return UUID(bytes=base64.urlsafe_b64decode(text + "=="))
    except (binascii.Error, ValueError):
        raise CorruptionError(f"{text!r} is no cluster id") from None
