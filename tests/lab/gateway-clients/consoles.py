#!/usr/bin/env python3
"""What consoles and exporters ask, through the gateway: compares the shapes of replies with those of a plain server, and runs programs.

usage: consoles.py ADDRESS:PORT FOLDER [PROGRAM...]

ADDRESS:PORT is the gateway's. FOLDER has valkey-server, which is started as the plain server, and valkey-cli. PROGRAMs: redis-cli,
prometheus-redis-exporter.
"""

import os
import re
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request

# What they ask first: RedisInsight, redis_exporter, valkey-cli, and monitoring agents.
QUESTIONS = """
INFO|INFO ALL|INFO server clients|INFO commandstats|INFO keyspace|CLIENT SETNAME redisinsight-browser|CLIENT LIST|CLIENT INFO
MODULE LIST|MODULE HELP|COMMAND COUNT|COMMAND INFO get nosuch|COMMAND DOCS get|COMMAND LIST FILTERBY ACLCAT connection|COMMAND GETKEYS GET a
CONFIG GET databases|CONFIG GET *|DBSIZE|ACL WHOAMI|ACL LIST|ACL CAT|ACL LOG|LASTSAVE|TIME|LOLWUT|MEMORY DOCTOR|MEMORY STATS
MEMORY MALLOC-STATS|MEMORY PURGE|MEMORY USAGE consoles:k|LATENCY LATEST|LATENCY HISTORY command|LATENCY HISTOGRAM|LATENCY DOCTOR
LATENCY RESET|SLOWLOG GET 1|SLOWLOG LEN|COMMANDLOG LEN slow|FUNCTION STATS|FUNCTION LIST|SCRIPT EXISTS a
PUBSUB CHANNELS|PUBSUB NUMSUB a b|PUBSUB NUMPAT|PUBSUB SHARDCHANNELS|PUBSUB SHARDNUMSUB a|RANDOMKEY|TYPE consoles:k|TTL consoles:k
OBJECT ENCODING consoles:k|SCAN 0 MATCH nosuch* COUNT 100000 TYPE string|SCAN 0 COUNT 0|SCAN 0 COUNT x|SCAN x|FT._LIST|JSON.GET k|READONLY
"""
# The members that differ in number: options, databases, commands that have run.
LISTS = {"array": "[{}]", "set": "~[{}]", "map": "{{{}}}"}


class Connection:
    def __init__(self, family, address, protocol):
        self.socket = socket.socket(family)
        self.socket.settimeout(60)
        self.socket.connect(address)
        self.file = self.socket.makefile("rb")
        if protocol == 3:
            self.ask("HELLO", "3")

    def ask(self, *words):
        command = [f"*{len(words)}\r\n"] + [f"${len(word)}\r\n{word}\r\n" for word in words]
        self.socket.sendall("".join(command).encode())
        return self.read()

    def read(self):
        """A reply as (type, value)."""
        line = self.file.readline()
        kind, rest = line[:1], line[1:-2]
        if kind in b"$=" and int(rest) >= 0:
            return ("text" if kind == b"$" else "verbatim"), self.file.read(int(rest) + 2)[:-2]
        if kind in b"*~" and int(rest) >= 0:
            return ("array" if kind == b"*" else "set"), [self.read() for _ in range(int(rest))]
        if kind == b"%":
            return "map", [member for _ in range(int(rest)) for member in (self.read(), self.read())]
        if kind in b"$*_":
            return "null", None
        names = {b"+": "status", b"-": "error", b":": "number", b",": "double", b"#": "truth"}
        return names[kind], rest


def shape(reply):
    """The types in a reply. Of lists, each type of member once. Of an error, its text."""
    kind, value = reply
    if kind == "error":
        return "error " + value.decode().rstrip()
    if kind in LISTS:
        return LISTS[kind].format(" ".join(sorted({shape(member) for member in value})))
    return kind


def is_like(one, other):
    """Whether two shapes may be those of the same command: one server may have nothing to list."""
    empty = re.compile(r"~?\[\]|\{\}")
    return one == other or any(empty.fullmatch(both) and both[0] == like[0] for both, like in ((one, other), (other, one)))


def compare(gateway, plain):
    differences = []
    for protocol in (2, 3):
        one, other = gateway(protocol), plain(protocol)
        for connection in (one, other):
            connection.ask("SET", "consoles:k", "v")
        for question in re.split(r"[|\n]", QUESTIONS.strip()):
            shapes = [shape(connection.ask(*question.split(" "))) for connection in (one, other)]
            if not is_like(*shapes):
                differences.append(f"RESP{protocol} {question}\n  gateway {shapes[0][:300]}\n  server  {shapes[1][:300]}")
    return differences


def output(*command, limit=60):
    """What a program prints. It may run until it is stopped."""
    process = subprocess.Popen(["stdbuf", "-oL", *command], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    try:
        return process.communicate(timeout=limit)[0]
    except subprocess.TimeoutExpired:
        process.kill()
        return process.communicate()[0]


def expect(what, text, *patterns):
    for pattern in patterns:
        if not re.search(pattern, text):
            sys.exit(f"{what}: no {pattern!r} in\n{text[-2000:]}")
    print("fine:", what)


def consoles(cli, host, port, keys):
    at = (cli, "-h", host, "-p", port)
    name = os.path.basename(cli)
    expect(f"{name} --bigkeys", output(*at, "--bigkeys"), rf"Sampled {keys} keys", r"Biggest\s+list", r"Biggest\s+hash")
    expect(f"{name} --memkeys", output(*at, "--memkeys"), rf"Sampled {keys} keys", r"Biggest\s+list")
    # The nodes keep no frequencies: their policy is not LFU, as that of a plain server.
    expect(f"{name} --hotkeys", output(*at, "--hotkeys"), "An LFU maxmemory policy is not selected")
    found = output(*at, "--scan", "--pattern", "consoles:*").split()
    expect(f"{name} --scan", f"{len(found)} {len(set(found))}", rf"^{keys} {keys}$")
    expect(f"{name} --stat", output(*at, "--stat", limit=3), rf"keys +mem(?s:.*)\n{keys} ")


def exporter(program, host, port):
    with socket.create_server((host, 0)) as free:
        listen = f"{host}:{free.getsockname()[1]}"
    process = subprocess.Popen([program, "-redis.addr", f"redis://{host}:{port}", "-web.listen-address", listen])
    try:
        end = time.monotonic() + 60
        while True:
            try:
                with urllib.request.urlopen(f"http://{listen}/metrics") as reply:
                    text = reply.read().decode()
                break
            except OSError:
                if time.monotonic() > end:
                    raise
                time.sleep(0.1)
    finally:
        process.terminate()
        process.wait()
    expect(os.path.basename(program), text, r"(?m)^redis_up 1$", r'last_scrape_error\{err=""\} 0', r'spike_last\{event_name="command"\}')


def main():
    address, folder, *programs = sys.argv[1:]
    host, port = address.rsplit(":", 1)
    with tempfile.TemporaryDirectory() as work:
        path = os.path.join(work, "socket")
        server = subprocess.Popen([f"{folder}/valkey-server", "--port", "0", "--unixsocket", path, "--dir", work, "--save", ""], stdout=subprocess.DEVNULL)
        try:
            while not os.path.exists(path):
                time.sleep(0.05)
            gateway = lambda protocol: Connection(socket.AF_INET, (host, int(port)), protocol)
            plain = lambda protocol: Connection(socket.AF_UNIX, path, protocol)
            differences = compare(gateway, plain)
        finally:
            server.terminate()
            server.wait()
    if differences:
        sys.exit("\n".join(["replies of another shape:", *differences]))
    print("fine: the shapes of replies")
    connection = gateway(2)
    connection.ask("FLUSHALL")
    for number in range(20):
        connection.ask("SET", f"consoles:s{number}", "v")
        connection.ask("RPUSH", f"consoles:l{number}", "a", "b")
        connection.ask("HSET", f"consoles:h{number}", "f", "v")
    for cli in [f"{folder}/valkey-cli"] + [program for program in programs if program.endswith("cli")]:
        consoles(cli, host, port, 60)
    # A command that takes long enough to be a spike, in at least one node.
    connection.ask("CONFIG", "SET", "latency-monitor-threshold", "1")
    connection.ask("EVAL", "local n = 0 for i = 1, 3000000 do n = n + i end return n", "0")
    for program in programs:
        if not program.endswith("cli"):
            exporter(program, host, port)
    connection.ask("CONFIG", "SET", "latency-monitor-threshold", "0")


main()
