"""A tour of the package: commands, pipelines, buffers, messages and asyncio.

usage: tour.py [URL]
"""

import asyncio
import sys

import valkey_rdma
from valkey_rdma import AsyncClient, Client

URL = sys.argv[1] if len(sys.argv) > 1 else "valkey://127.0.0.1:6379"

with Client(URL) as client:
    print("connected:", client.info())

    # Commands take str, numbers and bytes; strings come back as bytes.
    client.command("SET", "tour:greeting", "hello")
    print(client.command("GET", "tour:greeting"))

    # Pipelines leave together.
    print(client.pipeline().command("INCR", "tour:visits").command("TTL", "tour:visits").execute())

    # Large values go straight into and out of memory.
    weights = memoryview(bytearray(b"\x01" * (1 << 20)))
    client.set_from("tour:weights", weights, ttl=60)
    copy = bytearray(1 << 20)
    print(client.get_into("tour:weights", copy), "bytes, equal:", copy == weights)

    # An error says whether the command ran.
    try:
        client.command("INCR", "tour:greeting")
    except valkey_rdma.ServerError as error:
        print(error.code, error.fate, error)

    # Messages.
    with client.subscriber() as subscriber:
        subscriber.subscribe("tour:news")
        client.command("PUBLISH", "tour:news", "it works")
        print(subscriber.next(timeout=5))


async def tasks() -> None:
    """Many tasks share a client."""
    async with await AsyncClient.connect(URL) as client:
        counts = await asyncio.gather(*(client.command("INCR", "tour:visits") for _ in range(100)))
        print("the last of 100 counts:", max(counts))
        await client.delete_many(["tour:greeting", "tour:visits", "tour:weights"])


asyncio.run(tasks())
