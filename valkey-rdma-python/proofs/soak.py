#!/usr/bin/env python3
"""Threads and asyncio tasks on one server, with restarts and cancellations, each with values that only it can expect.

usage: soak.py SERVER PORT SECONDS [THREADS TASKS RESTARTS]    SERVER is a valkey-server program, or `mock`: VALKEY_RDMA_MOCK

Fails if a value is wrong, a call waits past its limit, an error is not one of the package's, the last calls fail, a kind of work has never
succeeded, or if references, descriptors or memory have grown at the end.
"""

import asyncio
import collections
import contextlib
import gc
import os
import pathlib
import random
import select
import sys
import threading
import time

from server import Server

import valkey_rdma
from valkey_rdma import AsyncClient, Client, LMCacheClient

LIMIT = 40.0
done = collections.Counter()
wrong = []
# What ends a thread would otherwise only be printed.
threading.excepthook = lambda ended: wrong.append(f"{ended.thread.name} has ended: {ended.exc_value!r}")


def value(owner, turn, size):
    return (b"%s:%d;" % (owner.encode(), turn) * (size // 4 + 1))[:size]


def check(condition, text):
    if not condition:
        wrong.append(text)


@contextlib.contextmanager
def turn_of(kind, owner):
    """One turn of a thread or a task: it may fail with an error of the package's, and must end."""
    begin = time.monotonic()
    try:
        yield
        done[kind] += 1
    except asyncio.CancelledError:
        done["cancelled"] += 1
    except valkey_rdma.Error:
        done["lost"] += 1
    except Exception as error:
        wrong.append(f"{owner}: {error!r}")
    check(time.monotonic() - begin < LIMIT, f"{owner}: waited {time.monotonic() - begin:.0f} s")


def thread(client, owner, stop):
    chance, buffer, turn = random.Random(owner), bytearray(400_000), 0
    while not stop.wait(0.001):
        turn += 1
        sent = value(owner, turn, chance.choice([10, 5_000, 70_000, 400_000]))
        with turn_of("turns of threads", owner):
            client.set_from(owner, sent)
            length = client.get_into(owner, buffer)
            # A restart between the two calls empties the server.
            check(length is None or buffer[:length] == sent, f"{owner}: another value")


async def task(client, owner, stop):
    chance, turn = random.Random(owner), 0
    while not stop.is_set():
        turn += 1
        # Another one each time: a cancelled call may still use the last.
        buffer, sent = bytearray(2_000), value(owner, turn, chance.randrange(2_000))
        with turn_of("turns of tasks", owner):
            await client.set_from(owner, sent)
            call = client.command("GET", owner) if turn % 2 else client.get_into(owner, buffer)
            if chance.random() < 0.1:
                await asyncio.sleep(chance.choice([0, 0, chance.random() * 0.01]))
                call.cancel()
            got = await call
            check(got is None or (got if turn % 2 else buffer[:got]) == sent, f"{owner}: another value")
        await asyncio.sleep(chance.random() * 0.2)


async def tasks(url, count, stop):
    async with await AsyncClient.connect(url, timeout=10, offline_timeout=5) as client:
        await asyncio.gather(*(task(client, f"soak:a{number}", stop) for number in range(count)))


def connector(url, stop):
    """Batches, as LMCache submits them."""
    connector = LMCacheClient(url, key_prefix="soak:l", timeout=10)
    keys = [str(number) for number in range(8)]
    full, empty = ([bytearray(value(key, turn, 300_000)) for key in keys] for turn in (0, 1))
    while not stop.wait(0.02):
        for submit, buffers in ((connector.submit_batch_set, full), (connector.submit_batch_get, empty)):
            number = submit(keys, buffers)
            check(select.select([connector.event_fd()], [], [], LIMIT)[0], "a batch never ended")
            ((finished, _, _, succeeded),) = connector.drain_completions()
            check(finished == number, "another batch")
            pairs = zip(succeeded, buffers, full)
            check(all(got == sent for ok, got, sent in pairs if ok), "a batch: another value")
            done["batches"] += 1
    connector.close()


def soak(server, seconds, thread_count, task_count, restarts):
    stop = threading.Event()
    with Client(server.url, timeout=10, offline_timeout=5) as client:
        work = [lambda owner=f"soak:t{number}": thread(client, owner, stop) for number in range(thread_count)]
        work += [lambda: connector(server.url, stop), lambda: asyncio.run(tasks(server.url, task_count, stop))]
        threads = [threading.Thread(target=target) for target in work]
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


def descriptors():
    return len(list(pathlib.Path("/proc/self/fd").iterdir()))


def used():
    """Descriptors, objects of Python's, and megabytes of resident memory."""
    pages = int(pathlib.Path("/proc/self/statm").read_text().split()[1])
    return descriptors(), len(gc.get_objects()), pages * os.sysconf("SC_PAGESIZE") // 1_000_000


def main(program, port, seconds, thread_count=8, task_count=1000, restarts=5):
    server = Server(program, port)
    # What is kept for reuse is there after a short round.
    soak(server, 3, int(thread_count), int(task_count), 1)
    before = used()
    soak(server, float(seconds), int(thread_count), int(task_count), int(restarts))
    end = time.monotonic() + 30
    while descriptors() > before[0] and time.monotonic() < end:
        time.sleep(0.1)
    after = used()
    server.stop()
    print(f"{dict(done)}; descriptors, objects, MB resident: {before} before, {after} after")
    most = (before[0], before[1] + 500, before[2] * 1.3 + 20)
    check(all(now <= limit for now, limit in zip(after, most)), "something grew")
    for kind in ("turns of threads", "turns of tasks", "batches"):
        check(done[kind] > 0, f"no {kind}")
    for text in wrong[:20]:
        print("WRONG:", text)
    sys.exit(bool(wrong))


main(*sys.argv[1:])
