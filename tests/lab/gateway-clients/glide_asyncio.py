# valkey-glide with asyncio. Usage: glide_asyncio.py SOCKET|HOST:PORT 2|3
import asyncio
import os
import sys

from glide import (
    Batch,
    GlideClient,
    GlideClientConfiguration,
    NodeAddress,
    ProtocolVersion,
    Script,
    StreamAddOptions,
    StreamGroupOptions,
)

address, is_resp3 = sys.argv[1], sys.argv[2] == "3"
host, _, port = address.rpartition(":")
node = NodeAddress(unix_socket_path=address) if address.startswith("/") else NodeAddress(host, int(port))
protocol = ProtocolVersion.RESP3 if is_resp3 else ProtocolVersion.RESP2
# Its default is 250 ms for a reply.
PATIENCE = 300_000


async def connect():
    settings = GlideClientConfiguration([node], request_timeout=PATIENCE, protocol=protocol, client_name="suite")
    return await GlideClient.create(settings)


async def check_values(client):
    assert await client.client_getname() == b"suite"
    big = os.urandom(1 << 20)
    assert await client.set("{t}big", big) == "OK" and await client.get("{t}big") == big
    batch = Batch(is_atomic=False)
    for number in range(200):
        batch.set(f"p{number}", str(number)).get(f"p{number}")
    assert (await client.exec(batch, True))[1::2] == [str(number).encode() for number in range(200)]
    script = Script("return {KEYS[1], ARGV[1]}")
    assert await client.invoke_script(script, keys=["{t}k"], args=["x"]) == [b"{t}k", b"x"]


async def check_transactions(client, other):
    assert await client.exec(Batch(is_atomic=True).set("{t}n", "1").incr("{t}n"), True) == ["OK", 2]
    async with await client.scoped_connection() as scope:
        await scope.watch("{t}n")
        await other.set("{t}n", "9")
        await scope.multi()
        await scope.set("{t}n", "5")
        assert await scope.exec() is None and await client.get("{t}n") == b"9"


async def check_blocking(client, other):
    await client.delete(["{t}l"])
    blocked = asyncio.create_task(client.blpop(["{t}l"], 300))
    await asyncio.sleep(0.2)
    await other.rpush("{t}l", ["item"])
    assert await blocked == [b"{t}l", b"item"]


async def check_streams(client):
    await client.delete(["{t}s"])
    assert await client.xgroup_create("{t}s", "g", "0", StreamGroupOptions(make_stream=True)) == "OK"
    assert await client.xadd("{t}s", [("a", "1")], StreamAddOptions(id="1-1")) == b"1-1"
    assert await client.xreadgroup({"{t}s": ">"}, "g", "me") == {b"{t}s": {b"1-1": [[b"a", b"1"]]}}
    assert await client.xack("{t}s", "g", ["1-1"]) == 1


async def check_messages(client, other):
    await client.subscribe({"c"}, PATIENCE)
    await client.psubscribe({"p*"}, PATIENCE)
    await other.publish("hi", "c")
    await other.publish("ho", "px")
    got = [await client.get_pubsub_message() for _ in range(2)]
    assert sorted((message.message, message.channel) for message in got) == [(b"hi", b"c"), (b"ho", b"px")], got
    await client.unsubscribe({"c"}, PATIENCE)
    await client.punsubscribe({"p*"}, PATIENCE)


async def check_callers(client):
    async def caller(number):
        for turn in range(20):
            value = f"{number}:{turn}." * (number + 1)
            await client.set(f"c{number}", value)
            assert await client.get(f"c{number}") == value.encode()

    await asyncio.gather(*(caller(number) for number in range(50)))


async def main():
    client, other = await connect(), await connect()
    await check_values(client)
    await check_transactions(client, other)
    await check_blocking(client, other)
    await check_streams(client)
    # GLIDE subscribes in RESP3 only.
    if is_resp3:
        await check_messages(client, other)
    await check_callers(client)
    await client.close()
    await other.close()


asyncio.run(main())
