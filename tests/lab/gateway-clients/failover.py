#!/usr/bin/env python3
"""Clients of the gateway count while the cluster behind it loses primaries: two hand over to their replicas, one is killed.

usage: failover.py SOCKET NODE     NODE is HOST:PORT of a node, over TCP

Every client knows what each reply must be: its counters are its own, and its texts say whose they are. A killed primary takes
acknowledged writes with it, because Valkey replicates late; nothing else may be lost. Needs redis-py. Exit status 1: a reply was wrong.
"""

import os
import random
import signal
import sys
import threading
import time

import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

CLIENTS = 8
KEYS = 9
# Seconds. Longer than a cluster takes to replace a primary, also on an emulated processor that others slow down.
PATIENCE = 300


class Counting(threading.Thread):
    """One client, with a connection of its own."""

    def __init__(self, number, path):
        super().__init__(name=f"client {number}")
        self.redis = redis.Redis(
            unix_socket_path=path, decode_responses=True, protocol=2 + number % 2, retry=Retry(NoBackoff(), 0), socket_timeout=PATIENCE
        )
        self.counted, self.doubts, self.written = [0] * KEYS, [0] * KEYS, [0] * KEYS
        self.commands = self.may_have_run = self.not_run = self.lost = self.rounds = self.tried = 0
        self.longest, self.last = 0.0, time.monotonic()
        self.wrong = []
        self.stop = self.may_lose = False

    def run(self):
        try:
            while not self.stop:
                # In a list, so that no key is left out.
                done = [self.step(key) for key in random.sample(range(KEYS), KEYS)]
                self.rounds += all(done)
        except Exception as error:
            self.wrong.append(f"{type(error).__name__}: {error}")

    def step(self, key):
        """Counts, writes and reads with one key. Returns whether all of it succeeded."""
        counter, text = (f"{kind}:{self.name}:{key}" for kind in ("count", "text"))
        value = self.ask("INCR", counter)
        if value is None:
            self.doubts[key] += 1
        else:
            more = value - self.counted[key] - 1
            if more < 0 and self.may_lose:
                self.lost += 1
            elif not 0 <= more <= self.doubts[key]:
                self.wrong.append(f"{counter} is {value} after {self.counted[key]}, with {self.doubts[key]} in doubt")
            self.counted[key], self.doubts[key] = value, self.doubts[key] - max(more, 0)
        self.tried += 1
        reply = self.ask("SET", text, f"{self.name}/{self.tried}")
        if reply:
            self.written[key] = self.tried
        elif reply is not None:
            self.wrong.append(f"SET replied {reply!r}")
        found = self.ask("GET", text)
        if found is not None:
            owner, _, number = found.partition("/")
            if owner != self.name or int(number) > self.tried:
                self.wrong.append(f"{text} is {found!r}")
            elif int(number) < self.written[key]:
                self.lost += 1
                if not self.may_lose:
                    self.wrong.append(f"{text} is {found!r}, {self.written[key]} was acknowledged")
            self.written[key] = int(number)
        return None not in (value, reply, found)

    def ask(self, *words):
        """`None`: it may have run, because the connection was closed, or the cluster says that it has not."""
        self.commands += 1
        try:
            reply = self.redis.execute_command(*words)
        except redis.ConnectionError:
            self.may_have_run += 1
            return None
        except redis.exceptions.ClusterDownError:
            self.not_run += 1
            return None
        now = time.monotonic()
        self.longest, self.last = max(self.longest, now - self.last), now
        return reply


def asked(host, port):
    """A node, asked over TCP. redis-py's default is five seconds for a reply."""
    return redis.Redis(host=host, port=port, socket_timeout=PATIENCE)


class Shard:
    """A primary and its replica, asked over TCP."""

    def __init__(self, primary, replica):
        self.primary, self.replica = (asked(host.decode(), port) for host, port, *_ in (primary, replica))

    def hand_over(self):
        self.replica.execute_command("CLUSTER FAILOVER")
        self.until_promoted()

    def kill(self):
        os.kill(self.primary.info("server")["process_id"], signal.SIGKILL)
        self.until_promoted()

    def until_promoted(self):
        end = time.monotonic() + PATIENCE
        while self.replica.info("replication")["role"] != "master":
            assert time.monotonic() < end, "the replica is not promoted"
            time.sleep(0.1)


def until_served(clients):
    """Waits until each client has gone through all its keys, twice and without an error."""
    end = time.monotonic() + PATIENCE
    goals = [client.rounds + 3 for client in clients]
    while any(client.rounds < goal for client, goal in zip(clients, goals)):
        if time.monotonic() >= end or not all(client.is_alive() for client in clients):
            return
        time.sleep(0.1)


def main():
    path, node = sys.argv[1], sys.argv[2].rsplit(":", 1)
    slots = asked(node[0], int(node[1])).execute_command("CLUSTER", "SLOTS")
    shards = [Shard(*nodes[:2]) for _, _, *nodes in slots]
    clients = [Counting(number, path) for number in range(CLIENTS)]
    for client in clients:
        client.start()
    events = [
        ("nothing", lambda: None),
        *((f"shard {number} hands over", shards[number].hand_over) for number in (1, 2)),
        ("a primary is killed", shards[0].kill),
    ]
    print(f"{'event':<22}{'longest without success [ms]':>30}")
    for event, happen in events:
        until_served(clients)
        for client in clients:
            client.longest, client.may_lose = 0.0, event == "a primary is killed"
        happen()
        until_served(clients)
        print(f"{event:<22}{1000 * max(client.longest for client in clients):>30.0f}")
    for client in clients:
        client.stop = True
    for client in clients:
        client.join()
        client.wrong += [] if client.rounds >= 2 * len(events) else [f"only {client.rounds} rounds: it stands still"]
    totals = {name: sum(getattr(client, name) for client in clients) for name in ("commands", "may_have_run", "not_run", "lost")}
    wrong = [f"{client.name}: {text}" for client in clients for text in client.wrong]
    print(", ".join(f"{name.replace('_', ' ')} {count}" for name, count in totals.items()) + f", wrong {len(wrong)}")
    print("\n".join(wrong[:20]))
    sys.exit(bool(wrong))


main()
