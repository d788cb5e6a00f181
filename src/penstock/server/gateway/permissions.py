"""Which operation each route of each server needs, in one table.

The rights are asked for on the Kafka port, where the gateway acts as the caller; the node itself asks for
those of its pages. A route that is not listed here fails a test. `OPEN` needs nobody; `IDENTITY` needs
somebody, and what is shown is what they may see.
"""

from typing import Final, NamedTuple, TypeAlias

from penstock.core.metadata.access import AclOperation, ResourceType

_O, _R = AclOperation, ResourceType


class Right(NamedTuple):
    """An operation on a kind of resource."""

    operation: AclOperation
    kind: ResourceType

    def __str__(self) -> str:
        return f"{self.operation.name.capitalize()} on the {self.kind.name.lower().replace('_', ' ')}"


Needs: TypeAlias = tuple[Right, ...] | str
OPEN: Final = "open"
IDENTITY: Final = "identity"
_WRITE, _READ = Right(_O.WRITE, _R.TOPIC), Right(_O.READ, _R.TOPIC)
_SEE, _MEMBER = Right(_O.DESCRIBE, _R.TOPIC), Right(_O.READ, _R.GROUP)
_CLUSTER = Right(_O.DESCRIBE, _R.CLUSTER)

REST: Final[dict[tuple[str, str], Needs]] = {
    ("POST", "/v1/topics/{topic}/publish"): (_WRITE,),
    ("POST", "/v1/topics/{topic}/batch"): (_WRITE,),
    ("POST", "/produce"): (_WRITE,),
    ("GET", "/v1/delays"): IDENTITY,
    # To others a delay is as if it were not there.
    ("DELETE", "/v1/delays/{delay_id}"): (_WRITE,),
    ("POST", "/v1/topics"): (Right(_O.CREATE, _R.TOPIC),),
    ("GET", "/v1/topics"): IDENTITY,
    ("GET", "/v1/topics/{topic}"): (_SEE,),
    ("DELETE", "/v1/topics/{topic}"): (Right(_O.DELETE, _R.TOPIC),),
    ("GET", "/v1/topics/{topic}/partitions/{partition}/messages"): (_READ,),
    ("GET", "/v1/topics/{topic}/partitions/{partition}/messages/{offset}"): (_READ,),
    ("GET", "/v1/messages/{topic}/{partition}/{offset}"): (_READ,),
    ("GET", "/consume"): (_READ,),
    ("POST", "/subscribe"): (_READ, _MEMBER),
    ("POST", "/v1/groups/{group}/join"): (_READ, _MEMBER),
    ("POST", "/v1/groups/{group}/leave"): (_MEMBER, _SEE),
    ("POST", "/v1/groups/{group}/heartbeat"): (_MEMBER, _SEE),
    ("GET", "/v1/groups/{group}/poll"): (_READ, _MEMBER),
    ("POST", "/v1/groups/{group}/commit"): (_READ, _MEMBER),
    ("POST", "/v1/groups/{group}/ack"): (_READ, _MEMBER),
    ("POST", "/v1/groups/{group}/nack"): (_READ, _MEMBER),
    ("POST", "/v1/groups/{group}/renew"): (_READ, _MEMBER),
    ("GET", "/v1/groups"): IDENTITY,
    ("GET", "/v1/groups/{group}"): (Right(_O.DESCRIBE, _R.GROUP), _SEE),
    # Of the topic with the dead letters; the group is that of redrives, `penstock.redrive`.
    ("GET", "/v1/topics/{topic}/dlq"): (_READ, Right(_O.DESCRIBE, _R.GROUP)),
    # And to write where they go, which is where they came from unless the request says otherwise.
    ("POST", "/v1/topics/{topic}/dlq/redrive"): (_READ, _WRITE),
    ("GET", "/v1/admin/cluster"): IDENTITY,
    ("GET", "/health"): OPEN,
    ("GET", "/v1/admin/health"): OPEN,
    ("GET", "/ready"): OPEN,
    ("GET", "/metrics"): (_CLUSTER,),
    ("GET", "/v1/admin/metrics"): (_CLUSTER,),
    ("PUT", "/v1/batches/{batch:path}"): (Right(_O.WRITE, _R.TRANSACTIONAL_ID),),
    ("GET", "/openapi.json"): IDENTITY,
    ("GET", "/docs"): IDENTITY,
}
# The handshake of /v1/ws needs somebody; these are the operations of its frames.
WEBSOCKET: Final[dict[str, Needs]] = {
    "enqueue": (_WRITE,),
    "dequeue": (_READ, _MEMBER),
    "subscribe": (_READ, _MEMBER),
    "credit": IDENTITY,
    "unsubscribe": IDENTITY,
    "ack": (_READ, _MEMBER),
    "nack": (_READ, _MEMBER),
    "release": (_READ, _MEMBER),
    "renew": (_READ, _MEMBER),
    "ping": IDENTITY,
}
# Methods of penstock.v1.Penstock; reflection and Health/Watch need somebody, and Health/Check nobody.
GRPC: Final[dict[str, Needs]] = {
    "CreateTopic": (Right(_O.CREATE, _R.TOPIC),),
    "DeleteTopic": (Right(_O.DELETE, _R.TOPIC),),
    "ListTopics": IDENTITY,
    "Publish": (_WRITE,),
    "PublishBatch": (_WRITE,),
    "PublishStream": (_WRITE,),
    "CancelDelays": (_WRITE,),
    "Subscribe": (_READ, _MEMBER),
    "Poll": (_READ, _MEMBER),
    "GetMessage": (_READ,),
    "Ack": (_READ, _MEMBER),
    "Nack": (_READ, _MEMBER),
    "Renew": (_READ, _MEMBER),
    "Commit": (_READ, _MEMBER),
}
# Pages of the node itself, at listen.http and listen.metrics.
PAGES: Final[dict[str, Needs]] = {"/health": OPEN, "/ready": OPEN, "/metrics": (_CLUSTER,)}
