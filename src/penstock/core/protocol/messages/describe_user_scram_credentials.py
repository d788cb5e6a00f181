"""DescribeUserScramCredentials: who has SCRAM credentials."""

from penstock.core.protocol.codec import Message, message, part
from penstock.core.protocol.schema import (
    Array,
    Int8,
    Int16,
    Int32,
    NullableArray,
    NullableString,
    Part,
    String,
)


@part
class DescribeUserScramCredentialsRequestUser(Part):
    """A user that the request is about."""

    name: String


@message(api_key=50, versions=range(1), flexible_from=0)
class DescribeUserScramCredentialsRequest(Message):
    """Sent by a tool; null asks about every user."""

    users: NullableArray[DescribeUserScramCredentialsRequestUser]


@part
class DescribeUserScramCredentialsResponseCredential(Part):
    """A mechanism the user can log in with."""

    mechanism: Int8
    iterations: Int32


@part
class DescribeUserScramCredentialsResponseUser(Part):
    """The outcome for one user."""

    user: String
    error_code: Int16
    error_message: NullableString
    credential_infos: Array[DescribeUserScramCredentialsResponseCredential]


@message(api_key=50, versions=range(1), flexible_from=0)
class DescribeUserScramCredentialsResponse(Message):
    """Sent by the broker: mechanisms and iteration counts, never the secrets."""

    throttle_time_ms: Int32
    error_code: Int16
    error_message: NullableString
    results: Array[DescribeUserScramCredentialsResponseUser]
