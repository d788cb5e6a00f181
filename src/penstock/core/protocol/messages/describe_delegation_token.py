"""DescribeDelegationToken: which tokens exist."""

from penstock.core.protocol.codec import Message, message, part
from penstock.core.protocol.schema import (
    Array,
    Bytes,
    Int16,
    Int32,
    Int64,
    NullableArray,
    Part,
    String,
    since,
)


@part
class DescribeDelegationTokenRequestOwner(Part):
    """A principal whose tokens are wanted."""

    principal_type: String
    principal_name: String


@message(api_key=41, versions=range(4), flexible_from=2)
class DescribeDelegationTokenRequest(Message):
    """Sent by a client that wants to see the tokens it may see."""

    owners: NullableArray[DescribeDelegationTokenRequestOwner]


@part
class DescribeDelegationTokenResponseRenewer(Part):
    """A principal that may renew the token."""

    principal_type: String
    principal_name: String


@part
class DescribeDelegationTokenResponseToken(Part):
    """A token, without its password form."""

    principal_type: String
    principal_name: String
    token_requester_principal_type: String = since(3, default="")
    token_requester_principal_name: String = since(3, default="")
    issue_timestamp: Int64
    expiry_timestamp: Int64
    max_timestamp: Int64
    token_id: String
    hmac: Bytes
    renewers: Array[DescribeDelegationTokenResponseRenewer]


@message(api_key=41, versions=range(4), flexible_from=2)
class DescribeDelegationTokenResponse(Message):
    """Sent by the broker: the tokens, without those the caller may not describe."""

    error_code: Int16
    tokens: Array[DescribeDelegationTokenResponseToken]
    throttle_time_ms: Int32
