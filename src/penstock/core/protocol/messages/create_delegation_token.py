"""CreateDelegationToken: making a token that stands in for a principal."""

from penstock.core.protocol.codec import Message, message, part
from penstock.core.protocol.schema import (
    Array,
    Bytes,
    Int16,
    Int32,
    Int64,
    NullableString,
    Part,
    String,
    since,
)


@part
class CreateDelegationTokenRequestRenewer(Part):
    """A principal that may renew the token."""

    principal_type: String
    principal_name: String


@message(api_key=38, versions=range(4), flexible_from=2)
class CreateDelegationTokenRequest(Message):
    """Sent by an authenticated client, for itself or (version 3) for another owner."""

    owner_principal_type: NullableString = since(3, default="")
    owner_principal_name: NullableString = since(3, default="")
    renewers: Array[CreateDelegationTokenRequestRenewer]
    max_lifetime_ms: Int64


@message(api_key=38, versions=range(4), flexible_from=2)
class CreateDelegationTokenResponse(Message):
    """Sent by the broker: the token, its secret and its lifetime."""

    error_code: Int16
    principal_type: String
    principal_name: String
    token_requester_principal_type: String = since(3, default="")
    token_requester_principal_name: String = since(3, default="")
    issue_timestamp_ms: Int64
    expiry_timestamp_ms: Int64
    max_timestamp_ms: Int64
    token_id: String
    hmac: Bytes
    throttle_time_ms: Int32
