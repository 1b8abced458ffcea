# redis-py or valkey-py with asyncio. Usage: redis_asyncio.py redis|valkey SOCKET 2|3
import asyncio, importlib, sys
library, path, protocol = importlib.import_module(sys.argv[1] + ".asyncio"), sys.argv[2], int(sys.argv[3])
name = "Valkey" if sys.argv[1] == "valkey" else "Redis"
async def main():
    client = getattr(library, name)(unix_socket_path=path, protocol=protocol, decode_responses=True, socket_timeout=None)
    async def one(number):
        for _ in range(20):
            assert await client.set(f"k{number}", number) and await client.get(f"k{number}") == str(number)
    await asyncio.gather(*(one(number) for number in range(50)))
    async with client.pipeline(transaction=True) as pipe:
        assert await pipe.set("a", 1).get("a").execute() == [True, "1"]
    async with client.pubsub() as pubsub:
        await pubsub.subscribe("c")
        assert (await pubsub.get_message(timeout=300))["type"] == "subscribe"
        await client.publish("c", "hi")
        assert (await pubsub.get_message(timeout=300))["data"] == "hi"
    blocked = asyncio.create_task(client.blpop("list2", timeout=300))
    await asyncio.sleep(0.1)
    await client.rpush("list2", "item")
    assert list(await blocked) == ["list2", "item"]
    await client.aclose()
asyncio.run(main())
