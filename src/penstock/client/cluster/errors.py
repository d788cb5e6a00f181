"""What went wrong with a request to a cluster: a Kafka error code, a sentence, and whether to try again."""

from penstock.client.endpoint import ClientError
from penstock.core.protocol import ErrorCode

# Kafka has no code of its own for "nobody listens there", which is over when a broker is back.
_RETRIABLE_HERE = frozenset({ErrorCode.BROKER_NOT_AVAILABLE})


# Brokers do not believe for whom we act: to ask again changes nothing.
NOT_BELIEVED = frozenset({
    ErrorCode.SASL_AUTHENTICATION_FAILED,
    ErrorCode.UNSUPPORTED_SASL_MECHANISM,
    ErrorCode.ILLEGAL_SASL_STATE,
    ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
})  # fmt: skip


class ClusterError(ClientError):
    """A broker returned an error, or none could be asked in time."""

    def __init__(self, code: ErrorCode | int, detail: str | None = None) -> None:
        self.code = known_code(code)
        self.detail = detail or self.code.name.lower().replace("_", " ")
        super().__init__(self.detail)

    @property
    def is_retriable(self) -> bool:
        """Whether the same call may succeed a moment later."""
        return self.code.retriable or self.code in _RETRIABLE_HERE

    @property
    def retriable(self) -> bool:  # type: ignore[override]  # here it depends on the code
        return self.is_retriable

    def __repr__(self) -> str:
        return f"ClusterError({self.code.name}, {self.detail!r})"


class QuotaExceeded(ClusterError):
    """The caller has to wait: it has used more than its quota allows."""

    def __init__(self, seconds: int) -> None:
        super().__init__(ErrorCode.THROTTLING_QUOTA_EXCEEDED, f"over the quota; wait {seconds} s")
        self.seconds = seconds


class ConnectionLost(ClusterError):
    """The connection ended after the request was sent: whether it was carried out is not known."""

    def __init__(self, detail: str) -> None:
        super().__init__(ErrorCode.NETWORK_EXCEPTION, detail)


def known_code(code: int) -> ErrorCode:
    """Newer brokers have more codes than we know."""
    return ErrorCode(code) if code in ErrorCode._value2member_map_ else ErrorCode.UNKNOWN_SERVER_ERROR


def expect(code: int, message: str | None = None) -> None:
    """Raise the error of a response."""
    if code != ErrorCode.NONE:
        raise ClusterError(code, message)
