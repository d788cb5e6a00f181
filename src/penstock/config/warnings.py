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
    if config.storage.fsync.mode == "none":
        warnings.append(
            "storage.fsync.mode is none: a power cut loses acknowledged records; set it to every to keep them"
        )
    return warnings


def not_available(config: Config) -> list[str]:
    """Settings that ask for what does not exist yet: a node must refuse them rather than ignore them."""
    problems = []
    if config.security.enabled and config.rest.enabled:
        problems.append(
            "security.enabled: REST, WebSocket and gRPC do not ask who is calling so far; "
            "set rest.enabled: false"
        )
    return problems
