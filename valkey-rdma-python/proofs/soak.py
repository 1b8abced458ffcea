#!/usr/bin/env python3
"""Threads and asyncio tasks on one server, with restarts and cancellations, each with values that only it can expect.

usage: soak.py SERVER PORT SECONDS [THREADS TASKS RESTARTS]    SERVER is a valkey-server program, or `mock`: VALKEY_RDMA_MOCK

Fails if a value is wrong, a call waits past its limit, an error is not one of the package's, the last calls fail, or if references,
descriptors or memory have grown at the end.
"""

import asyncio
import gc
import os
import pathlib
import random
import subprocess
import sys
import threading
import time

import valkey_rdma
from valkey_rdma import AsyncClient, Client, LMCacheClient

SIZES = [10, 5_000, 70_000, 400_000]
LIMIT = 40.0
done = {"calls": 0, "lost": 0, "cancelled": 0}
wrong = []


class Server:
    def __init__(self, program, port):
        self.port, self.url = port, f"valkey://127.0.0.1:{port}"
        if program == "mock":
            self.command = [os.environ["VALKEY_RDMA_MOCK"], "--tcp-port", port]
        else:
            self.command = [program, "--port", port, "--save", "", "--protected-mode", "no"]

    def start(self):
        self.process = subprocess.Popen(self.command, stdout=subprocess.DEVNULL)
        end = time.monotonic() + 30
        while time.monotonic() < end:
            try:
                return Client(self.url).close()
            except ConnectionError:
                time.sleep(0.02)
        raise RuntimeError("the server does not start")

    def stop(self):
        self.process.kill()
        self.process.wait()


def value(owner, turn, size):
    return (b"%d:%d;" % (owner, turn) * (size // 4 + 1))[:size]


def check(condition, text):
    if not condition:
        wrong.append(text)


def thread(client, owner, stop):
    random_ = random.Random(owner)
    buffer = bytearray(max(SIZES))
    turn = 0
    while not stop.is_set():
        turn += 1
        size = random_.choice(SIZES)
        key, sent = f"soak:t{owner}", value(owner, turn, size)
        begin = time.monotonic()
        try:
            client.set_from(key, sent)
            length = client.get_into(key, buffer)
            # A restart between the two calls empties the server.
            check(length is None or (length == size and buffer[:size] == sent), f"thread {owner}: another value")
            done["calls"] += 2
        except valkey_rdma.Error:
            done["lost"] += 1
            stop.wait(0.05)
        except Exception as error:
            wrong.append(repr(error))
        check(time.monotonic() - begin < LIMIT, f"thread {owner}: waited {time.monotonic() - begin:.0f} s")


async def task(client, owner, stop):
    random_ = random.Random(owner)
    buffer = bytearray(2_000)
    turn = 0
    while not stop.is_set():
        turn += 1
        size = random_.randrange(2_000)
        key, sent = f"soak:a{owner}", value(owner, turn, size)
        begin = time.monotonic()
        try:
            await client.set_from(key, sent)
            call = client.command("GET", key) if turn % 2 else client.get_into(key, buffer)
            if random_.random() < 0.1:
                await asyncio.sleep(random_.choice([0, 0, random_.random() * 0.01]))
                call.cancel()
            got = await call
            if turn % 2:
                check(got is None or got == sent, f"task {owner}: another value")
            else:
                check(got is None or (got == size and buffer[:size] == sent), f"task {owner}: another value")
            done["calls"] += 2
        except asyncio.CancelledError:
            done["cancelled"] += 1
            # The cancelled call may still use it.
            buffer = bytearray(2_000)
        except valkey_rdma.Error:
            done["lost"] += 1
            await asyncio.sleep(0.1)
        except Exception as error:
            wrong.append(repr(error))
        check(time.monotonic() - begin < LIMIT, f"task {owner}: waited {time.monotonic() - begin:.0f} s")
        await asyncio.sleep(random_.random() * 0.2)


async def tasks(url, count, stop):
    async with await AsyncClient.connect(url, timeout=10, offline_timeout=5) as client:
        await asyncio.gather(*(task(client, owner, stop) for owner in range(count)))


def connector(url, stop):
    """Batches, as LMCache submits them."""
    import select

    connector = LMCacheClient(url, key_prefix="soak:l", timeout=10)
    buffers = [bytearray(value(number, 0, 300_000)) for number in range(8)]
    empty = [bytearray(300_000) for _ in range(8)]
    keys = [str(number) for number in range(8)]
    while not stop.is_set():
        for submit, target in ((connector.submit_batch_set, buffers), (connector.submit_batch_get, empty)):
            number = submit(keys, target)
            check(select.select([connector.event_fd()], [], [], LIMIT)[0], "a batch never ended")
            ((finished, _, _, succeeded),) = connector.drain_completions()
            check(finished == number, "another batch")
            done["calls"] += 8
            if submit == connector.submit_batch_get:
                pairs = zip(succeeded, empty, buffers)
                check(all(got == sent for ok, got, sent in pairs if ok), "a batch: another value")
        time.sleep(0.02)
    connector.close()


def descriptors():
    return len(list(pathlib.Path("/proc/self/fd").iterdir()))


def resident():
    return int(pathlib.Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGESIZE") // 1_000_000


def soak(server, seconds, thread_count, task_count, restarts):
    stop = threading.Event()
    with Client(server.url, timeout=10, offline_timeout=5) as client:
        threads = [threading.Thread(target=thread, args=(client, owner, stop)) for owner in range(thread_count)]
        threads.append(threading.Thread(target=connector, args=(server.url, stop)))
        threads.append(threading.Thread(target=lambda: asyncio.run(tasks(server.url, task_count, stop))))
        for started in threads:
            started.start()
        for _ in range(restarts):
            time.sleep(seconds / (restarts + 1))
            server.stop()
            time.sleep(0.3)
            server.start()
        time.sleep(seconds / (restarts + 1))
        stop.set()
        for started in threads:
            started.join(2 * LIMIT)
            check(not started.is_alive(), "a thread never ended")
        client.set_from("soak:end", b"end")
        check(client.get_into("soak:end", bytearray(3)) == 3, "the end")
    gc.collect()


def main(program, port, seconds, thread_count=8, task_count=1000, restarts=5):
    server = Server(program, port)
    server.start()
    # What is kept for reuse is there after a short round.
    soak(server, 3, int(thread_count), int(task_count), 1)
    before = (descriptors(), len(gc.get_objects()), resident())
    soak(server, float(seconds), int(thread_count), int(task_count), int(restarts))
    end = time.monotonic() + 30
    while descriptors() > before[0] and time.monotonic() < end:
        time.sleep(0.1)
    after = (descriptors(), len(gc.get_objects()), resident())
    server.stop()
    print(done)
    for name, first, last in zip(("descriptors", "objects of Python's", "MB resident"), before, after):
        print(f"{name}: {first} before, {last} after")
    check(after[0] <= before[0] and after[1] <= before[1] + 500 and after[2] <= before[2] * 1.3 + 20, "something grew")
    check(done["calls"] > 0, "nothing ran")
    for text in wrong[:20]:
        print("WRONG:", text)
    sys.exit(bool(wrong))


main(*sys.argv[1:])
