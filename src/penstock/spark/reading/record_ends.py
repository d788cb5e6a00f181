"""Where each record ends: the one loop over records, compiled by `make native`.

The bytes are not checked here; `read_fields` does that for all records together.
"""


def walk(arena: bytes, starts: list[int], counts: list[int]) -> list[int]:
    """The ends of the records of all batches; none where a batch does not end where it should.

    `starts` has one more element than there are batches: where the last one ends. Raises
    `IndexError` where the bytes end early.
    """
    ends: list[int] = []
    for batch in range(len(counts)):
        if _walk_batch(arena, starts[batch], counts[batch], ends) != starts[batch + 1]:
            return []
    return ends


def _walk_batch(arena: bytes, start: int, count: int, ends: list[int]) -> int:
    """Append the ends of `count` records, and return the last; -1 for a length above 2**27."""
    position = start
    for _ in range(count):
        # The length is a zig-zag varint: the low bit is its sign and the top bit of each byte says
        # that more follow. Shifts drop the sign; the number at the end takes the top bits off, and
        # adds the bytes of the varint itself.
        first = arena[position]
        if first < 0x80:
            position += (first >> 1) + 1
        else:
            second = arena[position + 1]
            if second < 0x80:
                position += (first >> 1) + (second << 6) - 62
            else:
                third = arena[position + 2]
                if third < 0x80:
                    position += (first >> 1) + (second << 6) + (third << 13) - 8253
                else:
                    fourth = arena[position + 3]
                    if fourth >= 0x80:
                        return -1
                    position += (first >> 1) + (second << 6) + (third << 13) + (fourth << 20) - 1056828
        ends.append(position)
    return position
