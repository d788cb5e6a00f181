"""What the echo promises: an answered request is on disk, once, as it was sent."""

from collections import Counter
from collections.abc import Mapping, Sequence


def check_echo(
    sent: Mapping[bytes, bytes], answered: Mapping[bytes, bytes], stored: Sequence[tuple[bytes, bytes]]
) -> list[str]:
    """Name the anomalies: `stored` is what the server's file holds after all crashes, in order."""
    anomalies: list[str] = []
    counts = Counter(request_id for request_id, _ in stored)
    lost = [request_id for request_id in answered if request_id not in counts]
    if lost:
        anomalies.append(f"lost: {len(lost)} answered requests are not on disk, the first is {lost[0].hex()}")
    twice = [request_id for request_id, count in counts.items() if count > 1]
    if twice:
        anomalies.append(f"duplicate: {len(twice)} requests are on disk twice, the first is {twice[0].hex()}")
    anomalies += _unexpected("answered", sent, list(answered.items()))
    anomalies += _unexpected("stored", sent, stored)
    return anomalies


def _unexpected(what: str, sent: Mapping[bytes, bytes], seen: Sequence[tuple[bytes, bytes]]) -> list[str]:
    strange = [request_id for request_id, payload in seen if sent.get(request_id) != payload]
    if not strange:
        return []
    return [
        f"unexpected: {len(strange)} requests were {what} but never sent so, the first is {strange[0].hex()}"
    ]
