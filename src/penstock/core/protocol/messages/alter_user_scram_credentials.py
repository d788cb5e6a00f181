"""AlterUserScramCredentials: setting and removing SCRAM credentials."""

from penstock.core.protocol.codec import Message, message, part
from penstock.core.protocol.schema import Array, Bytes, Int8, Int16, Int32, NullableString, Part, String


@part
class AlterUserScramCredentialsRequestDeletion(Part):
    """A credential to remove."""

    name: String
    mechanism: Int8


@part
class AlterUserScramCredentialsRequestUpsertion(Part):
    """A credential to add or replace."""

    name: String
    mechanism: Int8
    iterations: Int32
    salt: Bytes
    salted_password: Bytes


@message(api_key=51, versions=range(1), flexible_from=0)
class AlterUserScramCredentialsRequest(Message):
    """Sent by an administrator; passwords arrive salted and hashed."""

    deletions: Array[AlterUserScramCredentialsRequestDeletion]
    upsertions: Array[AlterUserScramCredentialsRequestUpsertion]


@part
class AlterUserScramCredentialsResponseUser(Part):
    """The outcome for one user."""

    user: String
    error_code: Int16
    error_message: NullableString


@message(api_key=51, versions=range(1), flexible_from=0)
class AlterUserScramCredentialsResponse(Message):
    """Sent by the broker: the outcome for each user."""

    throttle_time_ms: Int32
    results: Array[AlterUserScramCredentialsResponseUser]
