"""IP addresses as text. There are many ways to write one, and rules are compared with clients by text."""

from ipaddress import IPv6Address, ip_address


def canonical_address(text: str) -> str:
    """The address in the one way in which addresses are compared; what is no address stays as it is.

    An IPv4 client of a socket for both versions of IP shows as `::ffff:10.0.0.7`: it is 10.0.0.7.
    """
    if ":" not in text:
        return text
    try:
        address = ip_address(text)
    except ValueError:
        return text
    if isinstance(address, IPv6Address) and address.ipv4_mapped is not None:
        return str(address.ipv4_mapped)
    return str(address)
