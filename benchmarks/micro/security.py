"""Decisions: whether a user may, with 10,000 rules; what a change of the rules costs, and a limit."""

from benchmarks.micro.measure import time_us
from penstock.core.metadata import MetadataImage, replay
from penstock.core.metadata.access import (
    ANY_HOST,
    PRODUCER_BYTE_RATE,
    USER,
    AclBinding,
    AclOperation,
    AclPermission,
    PatternType,
    ResourceType,
)
from penstock.core.metadata.records import AclCreated, AclDeleted, QuotaSet
from penstock.core.model import Instant
from penstock.security import Principal, QuotaType, Resource, Session
from penstock.security.access_control import AccessControl
from penstock.security.acls import AclRules
from penstock.security.quotas import ClientQuotas

RULES = 10_000
TOPIC = Resource(ResourceType.TOPIC, "topic-7.orders")
SESSION = Session(Principal("User", "user-7"), "SASL_SSL", "bench", "10.0.0.7", "User:user-7")


def rule(number: int) -> AclBinding:
    """Half of them name a topic, the others a prefix."""
    pattern = PatternType.PREFIXED if number % 2 else PatternType.LITERAL
    return AclBinding(
        ResourceType.TOPIC,
        pattern,
        f"topic-{number}.",
        f"User:user-{number}",
        ANY_HOST,
        AclOperation.READ,
        AclPermission.ALLOW,
    )


def run() -> dict[str, float]:
    image = replay(MetadataImage(), [AclCreated(rule(number)) for number in range(RULES)])
    rules, quotas = AclRules(), ClientQuotas()
    control = AccessControl(rules, quotas, lambda: Instant(0))
    figures = {"rules": float(RULES), "first_image_us": time_us(lambda: AclRules().on_metadata(image))}
    control.on_metadata(image)
    assert control.authorize(SESSION, AclOperation.READ, TOPIC)
    figures["cached_us"] = time_us(lambda: control.authorize(SESSION, AclOperation.READ, TOPIC))

    def undecided() -> None:
        rules._remembered.clear()
        control.authorize(SESSION, AclOperation.READ, TOPIC)

    figures["undecided_us"] = time_us(undecided)
    more = replay(image, [AclCreated(rule(RULES))])
    less = replay(more, [AclDeleted(rule(RULES))])

    def change() -> None:
        rules.on_metadata(more)
        rules.on_metadata(less)

    figures["change_of_one_us"] = time_us(change) / 2
    figures["charge_without_quotas_us"] = time_us(lambda: control.charge(SESSION, QuotaType.BYTES_IN, 100))
    limited = replay(less, [QuotaSet(((USER, "user-7"),), PRODUCER_BYTE_RATE, 1e18)])
    control.on_metadata(limited)
    figures["charge_us"] = time_us(lambda: control.charge(SESSION, QuotaType.BYTES_IN, 100))
    return figures
