"""AlterClientQuotas: setting and removing quotas."""

from penstock.core.protocol.codec import Message, message, part
from penstock.core.protocol.schema import Array, Bool, Float64, Int16, Int32, NullableString, Part, String


@part
class AlterClientQuotasRequestEntityPart(Part):
    """One half of an entity: a user, client id or address; null is the default."""

    entity_type: String
    entity_name: NullableString


@part
class AlterClientQuotasRequestOperation(Part):
    """A quota to set or remove."""

    key: String
    value: Float64
    remove: Bool


@part
class AlterClientQuotasRequestEntry(Part):
    """An entity and the changes to its quotas."""

    entity: Array[AlterClientQuotasRequestEntityPart]
    ops: Array[AlterClientQuotasRequestOperation]


@message(api_key=49, versions=range(2), flexible_from=1)
class AlterClientQuotasRequest(Message):
    """Sent by an administrator."""

    entries: Array[AlterClientQuotasRequestEntry]
    validate_only: Bool


@part
class AlterClientQuotasResponseEntityPart(Part):
    """One half of an entity: a user, client id or address; null is the default."""

    entity_type: String
    entity_name: NullableString


@part
class AlterClientQuotasResponseEntry(Part):
    """An entity and its quotas."""

    error_code: Int16
    error_message: NullableString
    entity: Array[AlterClientQuotasResponseEntityPart]


@message(api_key=49, versions=range(2), flexible_from=1)
class AlterClientQuotasResponse(Message):
    """Sent by the broker: whether each entity's quotas were changed."""

    throttle_time_ms: Int32
    entries: Array[AlterClientQuotasResponseEntry]
