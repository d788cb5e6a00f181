"""The codecs in use: generated when a (message, version) is first met, then kept.

The generators are imported with the first of them, so that `import penstock` stays quick.
"""

from collections.abc import Callable
from typing import Any, TypeVar, cast

from penstock.core.model import Fault, ProtocolError
from penstock.core.wire.reading import Buffer
from penstock.core.wire.schema import Part
from penstock.core.wire.types import Piece

M = TypeVar("M", bound=Part)

_decoders: dict[type[Part], "Decoders[Any]"] = {}
# What was generated so far; `encoder` and `gap_encoder` add to them.
ENCODERS: dict[tuple[type[Part], int], Callable[[Any, bytearray], None]] = {}
GAP_ENCODERS: dict[tuple[type[Part], int], Callable[[Any, bytearray], list[Piece]]] = {}


class Decoders(dict[int, Callable[[Buffer, int], tuple[M, int]]]):
    """The decoders of one message by version, each generated when it is first asked for."""

    def __init__(self, message: type[M]) -> None:
        super().__init__()
        self._message = message

    def __missing__(self, version: int) -> Callable[[Buffer, int], tuple[M, int]]:
        _check_version(self._message, version)
        from penstock.core.wire.decoding import decoder_source

        found = self[version] = _compiled(decoder_source(self._message, version), "decode")
        return found


def decoders(message: type[M]) -> Decoders[M]:
    """Answer the functions that read `message` from (buffer, position) and say where it ended, by version."""
    found = _decoders.get(message)
    if found is None:
        found = _decoders[message] = Decoders(message)
    return found


def decoder(message: type[M], version: int) -> Callable[[Buffer, int], tuple[M, int]]:
    """Answer the function that reads `message` from (buffer, position) and says where it ended."""
    return decoders(message)[version]


def encoder(message: type[M], version: int) -> Callable[[M, bytearray], None]:
    """Answer the function that appends `message` in `version` to a bytearray."""
    found = ENCODERS.get((message, version))
    if found is None:
        _check_version(message, version)
        from penstock.core.wire.encoding import encoder_source

        found = ENCODERS[message, version] = _compiled(encoder_source(message, version), "encode")
    return found


def gap_encoder(message: type[M], version: int) -> Callable[[M, bytearray], list[Piece]]:
    """Answer the function that answers `message` in pieces: bytes, records, bytes, records, bytes ...

    The first piece is the bytearray it is given, and records that are empty or null make no gap.
    """
    found = GAP_ENCODERS.get((message, version))
    if found is None:
        _check_version(message, version)
        from penstock.core.wire.encoding import gap_encoder_source

        found = GAP_ENCODERS[message, version] = _compiled(gap_encoder_source(message, version), "encode")
    return found


def decode_whole(message: type[M], buffer: Buffer, version: int, position: int = 0) -> M:
    """Read a message that must end where `buffer` ends."""
    read, end = decoder(message, version)(buffer, position)
    if end != len(buffer):
        # A peer that means more than we read would be misunderstood, so it is not guessed at.
        raise ProtocolError(f"{message.__name__} v{version}: {len(buffer) - end} bytes follow the message")
    return read


def _check_version(message: type[Part], version: int) -> None:
    if version not in message.__schema__.versions:
        raise ProtocolError(f"{message.__name__} has no version {version}", Fault.OURS)


def _compiled(text: str, name: str) -> Callable[..., Any]:
    namespace: dict[str, Any] = {}
    exec(compile(text, f"<generated {name}>", "exec"), namespace)
    return cast(Callable[..., Any], namespace[name])
