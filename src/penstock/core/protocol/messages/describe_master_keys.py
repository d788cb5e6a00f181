"""DescribeMasterKeys: which master keys nodes need. An API of Penstock, not of Kafka."""

from penstock.core.protocol.codec import Message, message, part
from penstock.core.protocol.schema import Array, Int16, Int32, Int64, NullableString, Part, String


@message(api_key=10_031, versions=range(1), flexible_from=0)
class DescribeMasterKeysRequest(Message):
    """Sent by a tool to any broker, about these nodes, or all of them."""

    node_ids: Array[Int32] = ()


@part
class DescribeMasterKeysResponseKey(Part):
    """A master key, and how many things on the node's disk are under it; of an old one, some of them."""

    name: String
    uses: Int32
    examples: Array[String] = ()


@part
class DescribeMasterKeysResponseNode(Part):
    """A node that encrypts, or that does not: then it has no service. Times are in ms, -1 if not known."""

    node_id: Int32
    error_code: Int16 = 0
    error_message: NullableString = None
    service: String = ""
    current: String = ""
    created_ms: Int64 = -1
    phase: String = ""
    rotated_ms: Int64 = -1
    logs_total: Int32 = 0
    logs_left: Int32 = 0
    keys: Array[DescribeMasterKeysResponseKey] = ()
    resealed_bytes: Int64 = 0
    reseal_logs_total: Int32 = 0
    reseal_logs_left: Int32 = 0
    left_out: Array[String] = ()
    resealed_ms: Int64 = -1
    problem: String = ""


@message(api_key=10_031, versions=range(1), flexible_from=0)
class DescribeMasterKeysResponse(Message):
    """Sent by that broker, once every node has answered or had time enough."""

    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    error_message: NullableString = None
    nodes: Array[DescribeMasterKeysResponseNode] = ()
