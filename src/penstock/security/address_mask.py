"""Addresses as they may be shown: what somebody may have put there as a secret is left out."""

import re

MASK = "***"


def mask_address(address: str) -> str:
    """The address without its user, password and query; the path of a file as it is.

    What stands before the last @ is left out, whatever it is: a password may have a slash that nobody has
    escaped.
    """
    scheme, separator, rest = address.partition("://")
    if not separator:
        return address
    _, at, place = rest.rpartition("@")
    shown = re.split(r"[?#]", place, maxsplit=1)
    query = f"?{MASK}" if len(shown) > 1 else ""
    return f"{scheme}://{f'{MASK}@' if at else ''}{shown[0]}{query}"
