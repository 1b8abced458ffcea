#!/usr/bin/env python3
"""Rates and CPU: this package beside redis-py with hiredis and valkey-glide-sync, in interleaved rounds.

usage: rates.py URL [--rounds N] [--seconds S] [--clients NAME,...] [--sizes N,...] [--threads N,...] [--host-url URL]

URL is what `ours` connects to; the others connect to --host-url (TCP), by default the same server, and so does `ours-tcp`, our client there.
`direct` is `ours` with registered memory, which moves directly if the server offers that:
`rates.py rdma://HOST --clients ours,direct --sizes 1048576 --threads 1`.
`floor` is not a client: it makes one system call to send and one to receive, which is the least that any program on a blocking socket
can do; it has no batches. Each operation is done with single values, and with batches of 32 where they take at most 64 MiB. Prints the
median of MB/s with its range, and the median of CPU seconds of this process for each GB.
"""

import argparse
import mmap
import os
import socket
import statistics
import threading
import time
from urllib.parse import urlsplit

BATCH = 32
ARENA = 512 << 20


class Ours:
    def __init__(self, url):
        from valkey_rdma import Client

        self.client = Client(url, lanes=4)

    def set(self, key, value):
        self.client.set_from(key, value)

    def get(self, key, buffer):
        assert self.client.get_into(key, buffer) == len(buffer)

    def mset(self, keys, values):
        self.client.mset_from(keys, values)

    def mget(self, keys, buffers):
        self.client.mget_into(keys, buffers)


class Direct(Ours):
    """As ours, with buffers in registered memory. It prints why the last value did not go directly, if it did not."""

    def __init__(self, url):
        super().__init__(url)
        self.arena = memoryview(mmap.mmap(-1, ARENA))
        self.client.register(self.arena)

    def buffer(self, place, size):
        begin = place * size
        assert begin + size <= ARENA, "the arena is too small for these threads"
        return self.arena[begin : begin + size]

    def check(self):
        reason = self.client.stats()["not_direct"]
        if reason:
            print("not direct:", reason)


class RedisPy:
    """Its values arrive as new bytes: they are not copied into the buffer, which flatters it."""

    def __init__(self, url):
        import hiredis  # noqa: F401
        import redis

        self.client = redis.Redis(host=urlsplit(url).hostname, port=urlsplit(url).port)

    def set(self, key, value):
        self.client.set(key, bytes(value))

    def get(self, key, buffer):
        assert len(self.client.get(key)) == len(buffer)

    def mset(self, keys, values):
        pipeline = self.client.pipeline(transaction=False)
        for key, value in zip(keys, values):
            pipeline.set(key, bytes(value))
        pipeline.execute()

    def mget(self, keys, buffers):
        pipeline = self.client.pipeline(transaction=False)
        for key in keys:
            pipeline.get(key)
        assert all(len(value) == len(buffers[0]) for value in pipeline.execute())


class Glide:
    """As for redis-py, the values arrive as new bytes."""

    def __init__(self, url):
        from glide_sync import GlideClient, GlideClientConfiguration, NodeAddress

        address = NodeAddress(urlsplit(url).hostname, urlsplit(url).port)
        self.client = GlideClient.create(GlideClientConfiguration([address], request_timeout=30_000))

    def set(self, key, value):
        self.client.set(key, bytes(value))

    def get(self, key, buffer):
        assert len(self.client.get(key)) == len(buffer)

    def mset(self, keys, values):
        self.client.mset({key: bytes(value) for key, value in zip(keys, values)})

    def mget(self, keys, buffers):
        assert all(len(value) == len(buffers[0]) for value in self.client.mget(keys))


class Floor:
    """A connection for each thread. It knows the length of every reply, and receives it into a buffer that exists already."""

    def __init__(self, url):
        self.address = (urlsplit(url).hostname, urlsplit(url).port)
        self.of_thread = threading.local()

    def ask(self, parts, length):
        mine = self.of_thread
        if not hasattr(mine, "socket"):
            mine.socket = socket.create_connection(self.address)
            mine.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if len(getattr(mine, "reply", b"")) != length:
            mine.reply = bytearray(length)
        sent, whole = mine.socket.sendmsg(parts), sum(map(len, parts))
        if sent < whole:
            mine.socket.sendall(b"".join(parts)[sent:])
        assert mine.socket.recv_into(mine.reply, length, socket.MSG_WAITALL) == length
        return mine.reply

    def set(self, key, value):
        begin = f"*3\r\n$3\r\nSET\r\n${len(key)}\r\n{key}\r\n${len(value)}\r\n".encode()
        assert self.ask((begin, value, b"\r\n"), 5) == b"+OK\r\n"

    def get(self, key, buffer):
        begin = f"${len(buffer)}\r\n".encode()
        command = f"*2\r\n$3\r\nGET\r\n${len(key)}\r\n{key}\r\n".encode()
        assert self.ask((command,), len(begin) + len(buffer) + 2).startswith(begin)


def run(client, operation, size, threads, seconds):
    """MB/s, and CPU seconds per GB."""
    count = BATCH if operation.startswith("m") else 1
    move, buffer = getattr(client, operation), getattr(client, "buffer", lambda _, size: bytearray(size))
    moved = [0] * threads
    begin = threading.Barrier(threads + 1)
    end = []

    def work(number):
        keys = [f"rates:{number}:{size}:{index}" for index in range(count)]
        buffers = [buffer(number * count + index, size) for index in range(count)]
        for each in buffers:
            each[:] = os.urandom(1) * size
        arguments = (keys, buffers) if count > 1 else (keys[0], buffers[0])
        move(*arguments)
        begin.wait()
        begin.wait()
        # At least once, however busy the machine is.
        while moved[number] == 0 or time.perf_counter() < end[0]:
            move(*arguments)
            moved[number] += count * size

    workers = [threading.Thread(target=work, args=(number,)) for number in range(threads)]
    for worker in workers:
        worker.start()
    begin.wait()
    cpu, start = time.process_time(), time.perf_counter()
    end.append(start + seconds)
    begin.wait()
    for worker in workers:
        worker.join()
    took, cpu = time.perf_counter() - start, time.process_time() - cpu
    return sum(moved) / took / 1e6, cpu / (sum(moved) / 1e9)


CLIENTS = {"ours": Ours, "direct": Direct, "ours-tcp": Ours, "redis-py": RedisPy, "glide": Glide, "floor": Floor}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("url")
    parser.add_argument("--host-url")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=0.5)
    parser.add_argument("--clients", default="ours,redis-py,glide")
    parser.add_argument("--sizes", default="65536,1048576,33554432")
    parser.add_argument("--threads", default="1,4")
    options = parser.parse_args()
    tcp = options.host_url or options.url
    clients = {name: CLIENTS[name](options.url if name in ("ours", "direct") else tcp) for name in options.clients.split(",")}
    for size in map(int, options.sizes.split(",")):
        operations = ["set", "get"] + (["mset", "mget"] if size * BATCH <= 64 << 20 else [])
        for threads, operation in ((int(count), operation) for count in options.threads.split(",") for operation in operations):
            samples = {name: [] for name, client in clients.items() if hasattr(client, operation)}
            for number in range(options.rounds):
                # Each round begins with another client.
                for name in [*samples][number % len(samples) :] + [*samples][: number % len(samples)]:
                    samples[name].append(run(clients[name], operation, size, threads, options.seconds))
            for name, of_client in samples.items():
                rates, cpus = zip(*of_client)
                rate = f"{statistics.median(rates):.0f} ({min(rates):.0f}-{max(rates):.0f}) MB/s"
                print(f"{operation:5}{size:>9} B {threads} thr  {name:9}{rate:>26} {statistics.median(cpus):6.2f} CPU s/GB", flush=True)
    for client in clients.values():
        getattr(client, "check", lambda: None)()


main()
