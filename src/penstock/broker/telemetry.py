"""Client telemetry (KIP-714): clients ask what they shall push, and push it.

    GetTelemetrySubscriptions ──► subscription id, metrics, interval      remembered per client instance
    PushTelemetry ── right id, not too early, not too large, unpacks ──► counted by client software

Any broker takes a push: the id of a subscription is computed from the metadata, not kept.

Left out: what the metrics say. They are checked, counted and dropped.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple, TypeAlias
from uuid import UUID

from penstock.broker.cluster import Controller
from penstock.core.metadata.client_metrics import (
    ClientSubscription,
    MetricsClient,
    MetricsSubscription,
    subscription_of,
    subscriptions,
)
from penstock.core.model import MILLISECOND, ApiError, ErrorKind, PenstockError
from penstock.core.records import CompressionType, RecordsTooLarge
from penstock.core.records.compression import decompress
from penstock.observability import Metrics
from penstock.runtime import ExecutorKind, Runtime

TELEMETRY_BYTES_MAX = 1 << 20
# What a push may unpack to.
UNPACKED_BYTES_MAX = 16 << 20
# Larger pushes are unpacked in a worker, and so are small ones that unpack to more than they seem to.
ON_LOOP_BYTES_MAX = 16 << 10
ON_LOOP_UNPACKED_BYTES_MAX = 256 << 10
INSTANCES_MAX = 16_384
# In the order in which clients should prefer them.
COMPRESSION_TYPES = (
    CompressionType.ZSTD,
    CompressionType.LZ4,
    CompressionType.GZIP,
    CompressionType.SNAPPY,
)
NO_INSTANCE = UUID(int=0)
# Kafka's own use of ids; no client has one of them.
RESERVED_INSTANCES = (UUID(int=1),)
Pushed: TypeAlias = Callable[[ApiError | None], None]


class TelemetryMetrics(Metrics):
    """What clients pushed, by the software that they say they are."""

    def __init__(self) -> None:
        super().__init__()
        self.pushes = self.counter(
            "penstock_client_telemetry_pushes_total",
            "Pushes of client metrics that were taken.",
            ("software",),
        )
        self.bytes = self.counter(
            "penstock_client_telemetry_bytes_total", "Bytes of these pushes, unpacked.", ("software",)
        )
        self.refused = self.counter(
            "penstock_client_telemetry_errors_total",
            "Telemetry requests that were refused, by reason.",
            ("error",),
        )


class TelemetryPush(NamedTuple):
    """What a client sends."""

    subscription_id: int
    is_terminating: bool
    compression_type: int
    payload: bytes


@dataclass(slots=True)
class ClientInstance:
    """When a client last asked and pushed."""

    asked_ns: int | None = None
    pushed_ns: int | None = None
    is_terminating: bool = False
    # Whether the last push was refused in a way that makes the client ask again at once.
    must_ask: bool = False


class TelemetryService:
    """Serves clients that push their metrics; remembers as many as `INSTANCES_MAX`."""

    def __init__(self, runtime: Runtime, controller: Controller, metrics: TelemetryMetrics) -> None:
        self._runtime = runtime
        self._controller = controller
        self._metrics = metrics
        self._instances: dict[UUID, ClientInstance] = {}
        self._configs: object = None
        self._subscriptions: tuple[MetricsSubscription, ...] = ()

    @property
    def has_subscriptions(self) -> bool:
        """Whether any client is asked for metrics; otherwise clients need not know of all this."""
        self._look_up()
        return bool(self._subscriptions)

    def new_instance_id(self) -> UUID:
        return UUID(bytes=self._runtime.entropy.bytes(16), version=4)

    def subscribe(self, client: MetricsClient) -> ClientSubscription | ApiError:
        """What a client shall push, unless it asks too often."""
        if client.instance_id in RESERVED_INSTANCES:
            return self._refuse(ErrorKind.INVALID_REQUEST, "the client instance id is reserved")
        instance, wanted = self._instance(client.instance_id), self._wanted(client)
        now_ns = self._runtime.clock.now()
        if not instance.must_ask and _is_early(
            now_ns,
            max(instance.asked_ns or 0, instance.pushed_ns or 0),
            wanted.interval_ms,
            instance.asked_ns,
        ):
            return self._refuse(ErrorKind.THROTTLED, f"ask again after {wanted.interval_ms} ms")
        instance.asked_ns = now_ns
        instance.must_ask = False
        return wanted

    def push(self, client: MetricsClient, push: TelemetryPush, done: Pushed) -> None:
        """Take what a client pushes; `done` may be called before this returns."""
        error = self._problem(client, push)
        if error is not None:
            done(self._refuse(error.kind, error.detail))
            return
        payload = push.payload
        if not payload or push.compression_type == CompressionType.NONE:
            self._count(client, len(payload))
            done(None)
            return

        def unpacked(size_bytes: int) -> None:
            self._count(client, size_bytes)
            done(None)

        def failed(error: Exception) -> None:
            # A worker that is busy or gone is no fault of the client's, but what it sent is lost either way.
            done(self._refuse(ErrorKind.INVALID_RECORD, str(error)))

        try:
            size_bytes = _small_size(push)
        except PenstockError as broken:
            failed(broken)
            return
        if size_bytes is not None:
            unpacked(size_bytes)
            return
        work = partial(unpacked_size, push.compression_type, payload, UNPACKED_BYTES_MAX)
        self._runtime.spawn.spawn(work, unpacked, failed, ExecutorKind.WORKER)

    def _problem(self, client: MetricsClient, push: TelemetryPush) -> ApiError | None:
        if client.instance_id == NO_INSTANCE or client.instance_id in RESERVED_INSTANCES:
            return ApiError(ErrorKind.INVALID_REQUEST, "a push needs the client's instance id")
        instance, wanted = self._instance(client.instance_id), self._wanted(client)
        if instance.is_terminating:
            return ApiError(ErrorKind.INVALID_REQUEST, "the client has pushed for the last time already")
        now_ns = self._runtime.clock.now()
        # The first push after a question may come at any time, and so may the last one.
        just_asked = (instance.asked_ns or 0) > (instance.pushed_ns or 0)
        is_early = not just_asked and _is_early(
            now_ns, instance.pushed_ns or 0, wanted.interval_ms, instance.pushed_ns
        )
        if is_early and not push.is_terminating:
            return ApiError(ErrorKind.THROTTLED, f"push again after {wanted.interval_ms} ms")
        instance.pushed_ns = now_ns
        instance.is_terminating = push.is_terminating
        instance.must_ask = True
        if push.subscription_id != wanted.subscription_id:
            return ApiError(ErrorKind.UNKNOWN_SUBSCRIPTION, "ask for the subscription again")
        if push.compression_type not in (CompressionType.NONE, *COMPRESSION_TYPES):
            return ApiError(
                ErrorKind.UNSUPPORTED_COMPRESSION, f"there is no compression type {push.compression_type}"
            )
        instance.must_ask = False
        if len(push.payload) > TELEMETRY_BYTES_MAX:
            return ApiError(ErrorKind.TELEMETRY_TOO_LARGE, f"a push has at most {TELEMETRY_BYTES_MAX} bytes")
        return None

    def _instance(self, instance_id: UUID) -> ClientInstance:
        # The one that was used last comes last.
        instance = self._instances.pop(instance_id, None) or ClientInstance()
        self._instances[instance_id] = instance
        if len(self._instances) > INSTANCES_MAX:
            del self._instances[next(iter(self._instances))]
        return instance

    def _look_up(self) -> None:
        image = self._controller.image
        if self._configs is not image.configs:
            self._configs, self._subscriptions = image.configs, subscriptions(image)

    def _wanted(self, client: MetricsClient) -> ClientSubscription:
        self._look_up()
        return subscription_of(client, self._subscriptions)

    def _count(self, client: MetricsClient, size_bytes: int) -> None:
        software = client.software_name or "unknown"
        self._metrics.pushes.of(software).count += 1
        self._metrics.bytes.of(software).count += size_bytes

    def _refuse(self, kind: ErrorKind, detail: str) -> ApiError:
        self._metrics.refused.of(kind.name.lower()).count += 1
        return ApiError(kind, detail)


def unpacked_size(compression_type: int, payload: bytes, limit_bytes: int) -> int:
    """The size of what a client packed; raises what the codec raises."""
    return len(decompress(CompressionType(compression_type), memoryview(payload), limit_bytes))


def _small_size(push: TelemetryPush) -> int | None:
    """The size of a push that is unpacked at once; None where that would take too long."""
    if len(push.payload) > ON_LOOP_BYTES_MAX:
        return None
    try:
        return unpacked_size(push.compression_type, push.payload, ON_LOOP_UNPACKED_BYTES_MAX)
    except RecordsTooLarge:
        return None


def _is_early(now_ns: int, last_ns: int, interval_ms: int, ever: int | None) -> bool:
    return ever is not None and now_ns - last_ns < interval_ms * MILLISECOND
