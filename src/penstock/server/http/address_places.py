"""How many places of a server each address has taken, of requests or of WebSocket connections.

An address has as large a part of them as it may have of the connections (`RestOptions.address_share`):
whoever waits in all of its own leaves the others to others.
"""

from collections.abc import MutableMapping
from typing import Any

# In the state of a connection, and so in the scope of its requests: what counts as its address.
NETWORK = "network"


class AddressPlaces:
    """Those of one kind; used inside one event loop."""

    def __init__(self, places_max: int) -> None:
        self.places_max = places_max
        self._taken: dict[str, int] = {}

    def has_room(self, network: str) -> bool:
        return self._taken.get(network, 0) < self.places_max

    def take(self, network: str) -> None:
        self._taken[network] = self._taken.get(network, 0) + 1

    def give_back(self, network: str) -> None:
        left = self._taken[network] - 1
        if left:
            self._taken[network] = left
        else:
            del self._taken[network]


def network_in(state: MutableMapping[str, Any]) -> str:
    """The address of a connection; a server that does not say it has one for all."""
    network: str = state.get(NETWORK, "")
    return network
