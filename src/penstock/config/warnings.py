"""What is allowed, but should be said aloud."""

from penstock.config.address import Address
from penstock.config.settings import Config


def warnings_for(config: Config) -> list[str]:
    """What an operator should hear at start, each with what to do about it."""
    listening: dict[str, Address] = {
        "kafka": config.listen.kafka,
        "http": config.listen.http,
        "grpc": config.listen.grpc,
        "peer": config.listen.peer,
    }
    if config.metrics.enabled:
        listening["metrics"] = config.listen.metrics
    warnings = []
    open_doors = [
        f"listen.{name} ({address})" for name, address in listening.items() if not address.is_loopback
    ]
    if open_doors and config.security.authentication == "none":
        warnings.append(
            f"{', '.join(open_doors)}: reachable from other machines, and nobody is asked who they are; "
            "set security.authentication: scram (or bind to 127.0.0.1)"
        )
    if config.storage.fsync.mode == "none":
        warnings.append(
            "storage.fsync.mode is none: a power cut loses acknowledged records; set it to every to keep them"
        )
    return warnings
