"""A producer and a worker over WebSocket, which any browser or language has.

python examples/websocket_jobs.py            # a broker at ws://127.0.0.1:8080, or at PENSTOCK_WEBSOCKET

The worker leases jobs in the group `resizers`. The reader has no group: it reads the topic's log, and when it
connects again with the id that the server gave it, it goes on behind what it acknowledged.
"""

import asyncio
import os

from penstock.client.websocket import WebSocketClient

URL = os.environ.get("PENSTOCK_WEBSOCKET", "ws://127.0.0.1:8080")
TOPIC = "example-images"
IMAGES = [b"cat.png", b"dog.png", b"emu.png"]


async def main() -> None:
    async with await WebSocketClient.connect(URL) as producer:
        stored = await producer.enqueue(TOPIC, IMAGES)
        print(f"enqueued {len(stored)} jobs")

    async with await WebSocketClient.connect(URL) as worker:
        done = 0
        # Never more than ten jobs are on their way to this worker.
        async for job in worker.subscribe(TOPIC, group="resizers", credits=10):
            assert job.value is not None
            print(f"resized {job.value.decode()} at attempt {job.attempt}")
            await worker.ack([job])
            done += 1
            if done == len(IMAGES):
                break

    async with await WebSocketClient.connect(URL) as reader:
        (first,) = await reader.dequeue(TOPIC, wait_ms=5_000)
        await reader.ack([first])
        name = reader.consumer
    async with await WebSocketClient.connect(URL, consumer=name) as reader:
        (second,) = await reader.dequeue(TOPIC, wait_ms=5_000)
        print(f"read on from offset {first.offset} at offset {second.offset}")


if __name__ == "__main__":
    asyncio.run(main())
