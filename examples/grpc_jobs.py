"""A work queue over gRPC: make a topic, send jobs, and do them, one of them at the second attempt.

python examples/grpc_jobs.py [HOST:PORT]    # by default that of `penstock up`, 127.0.0.1:9000
"""

import os
import sys

import grpc

from penstock.v1.penstock_pb2 import (
    AckRequest,
    CreateTopicRequest,
    NackRequest,
    OutgoingMessage,
    PublishRequest,
    SubscribeRequest,
)
from penstock.v1.penstock_pb2_grpc import PenstockStub

TOPIC = "example-jobs"
JOBS = (b"resize cat.png", b"resize broken.png", b"resize dog.png")


def main(address: str) -> None:
    with grpc.insecure_channel(address) as channel:
        penstock = PenstockStub(channel)  # type: ignore[no-untyped-call]
        try:
            penstock.CreateTopic(CreateTopicRequest(name=TOPIC, partitions=1), timeout=10)
        except grpc.RpcError as error:
            if error.code() == grpc.StatusCode.UNAVAILABLE:
                raise SystemExit(f"no gRPC server at {address}: start one with `penstock up`") from None
            if error.code() != grpc.StatusCode.ALREADY_EXISTS:
                raise

        # Requests with many messages are the fast ones; every message has its own result.
        requests = [PublishRequest(topic=TOPIC, messages=[OutgoingMessage(value=job) for job in JOBS])]
        for response in penstock.PublishStream(iter(requests)):
            failed = [result.error.message for result in response.results if result.HasField("error")]
            print(f"sent {len(response.results) - len(failed)} jobs")

        left = len(JOBS)
        stream = penstock.Subscribe(
            SubscribeRequest(topics=[TOPIC], group="example-workers", max_in_flight=2)
        )
        for message in stream:
            job = message.value.decode()
            if "broken" in job and message.attempt == 1:
                print(f"failed {job}")
                penstock.Nack(NackRequest(group="example-workers", receipts=[message.receipt], delay_ms=0))
                continue
            print(f"did {job}")
            penstock.Ack(AckRequest(group="example-workers", receipts=[message.receipt]))
            left -= 1
            if not left:
                stream.cancel()
                break


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else os.environ.get("PENSTOCK_GRPC_ADDR", "127.0.0.1:9000"))
