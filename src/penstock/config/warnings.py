"""What is allowed, but worth a warning; and what this version cannot do yet."""

from penstock.config.addresses import ListenAddress
from penstock.config.settings import Config


def warnings_for(config: Config) -> list[str]:
    """What an operator should know at start, each with what to do about it."""
    listening: dict[str, ListenAddress] = {
        "kafka": config.listen.kafka,
        **{f"listeners {listener.name}": listener.bind for listener in config.listen.listeners},
        "http": config.listen.http,
        **({"grpc": config.listen.grpc} if config.rest.enabled else {}),
    }
    if config.peer is not None:
        listening["peer"] = config.peer
    if config.metrics.enabled:
        listening["metrics"] = config.listen.metrics
    warnings = []
    open_doors = [
        f"listen.{name} ({address})" for name, address in listening.items() if not address.is_loopback
    ]
    if open_doors and not config.security.enabled:
        warnings.append(
            f"{', '.join(open_doors)}: reachable from other machines, and everyone may read and write "
            "everything; security.enabled: true lets access rules decide (docs/operations/security.md), "
            "or bind to 127.0.0.1"
        )
    if config.security.enabled and config.peer is not None and not _peers_are_proven(config):
        warnings.append(
            f"listen.peer ({config.peer}): nodes are believed to be whom they say they are; "
            "security.peers: tls makes them prove it (docs/operations/security.md)"
        )
    asking = _listeners_with_logins(config)
    if asking and not config.security.enabled:
        warnings.append(
            f"{', '.join(asking)}: whoever has logged in may do everything, as may everyone on listeners "
            "that ask for no login; security.enabled: true lets access rules decide "
            "(docs/operations/security.md)"
        )
    if config.storage.fsync.mode == "none":
        warnings.append(
            "storage.fsync.mode is none: a power cut loses acknowledged records; set it to every to keep them"
        )
    return warnings


def _listeners_with_logins(config: Config) -> list[str]:
    """Kafka listeners that ask for a login, by the settings that say so."""
    main = config.listen.protocol
    found = [f"listen.protocol {main}"] if main.startswith("SASL") else []
    others = [one for one in config.listen.listeners if one.protocol.startswith("SASL")]
    return found + [f"listen.listeners {one.name} ({one.protocol})" for one in others]


def not_available(config: Config) -> list[str]:
    """Settings that ask for what does not exist yet: a node must refuse them rather than ignore them."""
    problems = []
    asking = _listeners_with_logins(config)
    if asking and config.rest.enabled and not config.security.enabled:
        problems.append(
            f"{', '.join(asking)}: REST, WebSocket and gRPC ask who is calling with "
            "security.enabled: true, or not at all; set that, or rest.enabled: false"
        )
    if (
        config.security.enabled
        and config.security.peers == "auto"
        and config.peer is not None
        and not config.peer.is_loopback
        and not _peers_are_proven(config)
    ):
        problems.append(
            f"security.enabled: listen.peer ({config.peer}) is reachable from other machines, and "
            "whoever reaches it is believed to be a node; set security.tls.certificate, key and "
            "authority, or security.peers: plain if the network keeps strangers away"
        )
    return problems


def _peers_are_proven(config: Config) -> bool:
    security = config.security
    if security.peers == "auto":
        return bool(security.enabled and security.tls.certificate and security.tls.authority)
    return security.peers == "tls"
