"""ApiVersions: which requests a broker understands."""

from penstock.core.protocol.codec import Message, message, part
from penstock.core.protocol.schema import Array, Bool, Int16, Int32, Int64, Part, String, since, tagged


@message(api_key=18, versions=range(5), flexible_from=3)
class ApiVersionsRequest(Message):
    """Sent by a client as its first request, to learn which versions it may use."""

    client_software_name: String = since(3, default="", ignorable=True)
    client_software_version: String = since(3, default="", ignorable=True)


@part
class ApiVersionsResponseApi(Part):
    """The versions of one API that the broker understands."""

    api_key: Int16
    min_version: Int16
    max_version: Int16


@part
class ApiVersionsResponseSupportedFeature(Part):
    """The levels of a feature that this broker can run at."""

    name: String
    min_version: Int16
    max_version: Int16


@part
class ApiVersionsResponseFinalizedFeature(Part):
    """The level of a feature that the whole cluster runs at."""

    name: String
    max_version_level: Int16
    min_version_level: Int16


@message(api_key=18, versions=range(5), flexible_from=3)
class ApiVersionsResponse(Message):
    """Sent by the broker: the version range of every API, and the cluster's feature levels.

    Its header is always version 0, because the client cannot know better yet.
    """

    error_code: Int16
    api_keys: Array[ApiVersionsResponseApi]
    throttle_time_ms: Int32 = since(1, default=0, ignorable=True)
    supported_features: Array[ApiVersionsResponseSupportedFeature] = tagged(
        0, since=3, default=(), ignorable=True
    )
    finalized_features_epoch: Int64 = tagged(1, since=3, default=-1, ignorable=True)
    finalized_features: Array[ApiVersionsResponseFinalizedFeature] = tagged(
        2, since=3, default=(), ignorable=True
    )
    zk_migration_ready: Bool = tagged(3, since=3, default=False, ignorable=True)
