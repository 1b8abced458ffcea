"""A KV cache: stores and loads chunks of 32 MiB, and prints the rates.

usage: kv_cache.py [URL [CHUNKS]]
"""

import sys
import time

from valkey_rdma import Client

CHUNK = 32 << 20
BATCH = 4


def main(url: str = "valkey://127.0.0.1:6379", chunks: str = "8") -> None:
    count = int(chunks)
    keys = [f"example:kv:{number}" for number in range(count)]
    # One arena, as inference engines have: its parts are used where they lie.
    arena = memoryview(bytearray(BATCH * CHUNK))
    parts = [arena[number * CHUNK : (number + 1) * CHUNK] for number in range(BATCH)]
    # The server's adapter moves the bytes, if the server offers that.
    with Client(url, lanes=BATCH) as client, client.register(arena):
        print(client.info())
        for name, move in (("stored", client.mset_from), ("loaded", client.mget_into)):
            begin = time.perf_counter()
            for first in range(0, count, BATCH):
                batch = keys[first : first + BATCH]
                move(batch, parts[: len(batch)])
                done = first + len(batch)
                rate = done * CHUNK / (time.perf_counter() - begin) / 1e9
                print(f"\r{name} {done}/{count} chunks, {rate:.2f} GB/s", end="", flush=True)
            print()
        client.delete_many(keys)


main(*sys.argv[1:])
