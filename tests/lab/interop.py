#!/usr/bin/env python3
"""Every client with every server, inside the lab: each reply is verified, and what cannot work is refused in one line.

usage: ./dev lab tests/lab/interop.py PROGRAMS [--brief] [--every] [--list] [--only TEXT]

PROGRAMS is the folder of our built programs. Exit status: 0 if every row passed, 1 if one failed, or if there was none.
"""
import argparse
import contextlib
import csv
import itertools
import math
import os
import pathlib
import shlex
import signal
import socket
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple

from certificates import Authority, Pair
from rows import LIMIT, Failed, Rows, kill, refused, run, start, tail

HOST, PORT = "10.0.0.1", "6379"

KIB, MIB = 1 << 10, 1 << 20
# Up to the default window of both sides, which is 1 MiB; and larger than it.
VALUES, LARGE = [3, 64 * KIB, MIB], 3 * MIB + MIB // 2
# Connections, tasks on each (0: without the client library), commands in a pipeline.
ONE, PIPELINE, CROWD, TASKS = (1, 1, 1), (1, 1, 16), (50, 1, 1), (1, 50, 1)
SHAPES = [ONE, PIPELINE, CROWD, (50, 1, 16), TASKS, (1, 50, 16)]
SOME, BARE = [PIPELINE, CROWD, TASKS], [(1, 0, 1), (50, 0, 16)]
OURS, BENCHMARK, CLI = "load tool", "valkey-benchmark", "valkey-cli"
VALKEYS, TLS = ["valkey-9.1", "valkey-8.1"], ["mock-tls", "gateway-tls"]
# Of our servers with TLS, made at the start.
CERTIFICATES = pathlib.Path("/tmp/interop-certificates")
CA, CERTIFICATE = CERTIFICATES / "issuer.crt", Pair(CERTIFICATES / "issuer-1.crt", CERTIFICATES / "issuer-1.key")

# Server, its window, client, transport, sizes of values (0: PING), shapes, and which of the rows are the brief ones. Rows of the same
# server stand together. An odd window is no multiple of a page, nor of four.
TABLE = [
    # The reference with itself: if these fail, the lab is to blame.
    ("valkey-9.1", None, CLI, "rdma", VALUES, [ONE], []),
    ("valkey-9.1", None, BENCHMARK, "rdma", VALUES, [PIPELINE, CROWD], []),
    ("valkey-9.1", None, OURS, "rdma", [0, *VALUES, LARGE], SHAPES, [(LARGE, TASKS)]),
    ("valkey-9.1", None, OURS, "rdma", [0, *VALUES], BARE, [(64 * KIB, (50, 0, 16))]),
    ("valkey-9.1", None, OURS, "tcp", [0, *VALUES], BARE, [(64 * KIB, (50, 0, 16))]),
    ("valkey-9.1", 64 * KIB, OURS, "rdma", [*VALUES, LARGE], SOME, []),
    ("valkey-9.1", 16 * MIB, OURS, "rdma", [*VALUES, LARGE], SOME, []),
    ("valkey-8.1", None, OURS, "rdma", [0, *VALUES, LARGE], SHAPES, []),
    ("valkey-8.1", None, OURS, "tcp", VALUES, BARE, []),
    ("valkey-8.1", 64 * KIB, OURS, "rdma", [*VALUES, LARGE], SOME, [(MIB, PIPELINE)]),
    ("valkey-8.1", 16 * MIB, OURS, "rdma", [*VALUES, LARGE], SOME, []),
    ("mock", None, CLI, "rdma", VALUES, [ONE, (8, 1, 1)], []),
    ("mock", None, BENCHMARK, "rdma", VALUES, [ONE, PIPELINE, CROWD, (50, 1, 16)], []),
    ("mock", None, BENCHMARK, "tcp", VALUES, [PIPELINE, CROWD], []),
    ("mock", None, OURS, "rdma", [0, 3, 64 * KIB], SHAPES, []),
    ("mock", None, OURS, "rdma", [MIB, LARGE], SOME, []),
    ("mock", None, OURS, "tcp", VALUES, BARE, []),
    ("mock", 100_001, CLI, "rdma", VALUES, [ONE, (8, 1, 1)], [(MIB, (8, 1, 1))]),
    ("mock", 100_001, BENCHMARK, "rdma", VALUES, [PIPELINE, CROWD], [(64 * KIB, CROWD)]),
    ("mock", 100_001, OURS, "rdma", [*VALUES, LARGE], SOME, [(LARGE, PIPELINE), (MIB, TASKS)]),
    ("mock-tls", None, OURS, "rdmas", [0, *VALUES, LARGE], [*SOME, *BARE], [(64 * KIB, TASKS)]),
    ("mock-tls", 100_001, OURS, "rdmas", [*VALUES, LARGE], SOME, [(MIB, PIPELINE)]),
    ("gateway-tls", None, OURS, "rdmas", [*VALUES, LARGE], SOME, [(64 * KIB, PIPELINE)]),
]
# Values in flight at once, unless --every is given: gigabytes take minutes here, and meet no other code.
MOST_IN_FLIGHT = 200 * MIB

# What is refused, with what beside it, by which program, and what its one line of error says. The device is gone at the last two.
REFUSALS = [
    ("nothing listens", "nothing", "benchmark", "--url rdma://10.0.0.1:6399", "refused the connection"),
    ("no RDMA path", "nothing", "benchmark", "--url rdma://192.0.2.1", "can reach 192.0.2.1"),
    ("unknown name", "nothing", "benchmark", "--url rdma://no-such-host.invalid", "no-such-host.invalid"),
    ("address of no interface", "nothing", "mock", "--bind 192.0.2.1", "cannot listen on 192.0.2.1"),
    ("address in use", "a server", "mock", "--bind 10.0.0.1 --port 6379", "cannot listen on 10.0.0.1:6379"),
    ("other device", "a server", "benchmark", "--url rdma://10.0.0.1?device=mlx5_9", "not `mlx5_9`"),
    ("memlock too small", "a server", "benchmark", "--url rdma://10.0.0.1", "memlock limit: 65536 bytes"),
    ("no TLS over RDMA at Valkey", "a server", "benchmark", f"--url rdmas://10.0.0.1?ca={CA}", "gateway"),
    ("wrong password", "a server", "benchmark", "--url rdma://:guess@10.0.0.1", "WRONGPASS"),
    ("server at its client limit", "a server", "benchmark", "--url rdma://10.0.0.1", "client limit"),
    ("no device to connect with", "no device", "benchmark", "--url rdma://10.0.0.1", "no RDMA device"),
    ("no device to listen on", "no device", "mock", "--bind 10.0.0.1", "no RDMA device"),
]
SETTINGS = {"wrong password": ("requirepass", "secret", '""'), "server at its client limit": ("maxclients", "1", "10000")}
# A user whom the limit on locked memory applies to.
SMALL_MEMLOCK = shlex.split("setpriv --reuid=65534 --clear-groups prlimit --memlock=65536")
DEVICE = pathlib.Path("/sys/class/infiniband/rxe0")
ALL_BYTES = bytes(range(256)) * 2


class Row(NamedTuple):
    server: str
    window: int | None
    client: str
    transport: str
    size: int
    shape: tuple[int, int, int]

    @property
    def requests(self):
        """Enough to go around a window many times, in whole rounds, so that every pipeline is full."""
        enough = 1000 if self.size < KIB else 200 if self.size < MIB else 20
        in_flight = math.prod(max(part, 1) for part in self.shape)
        return self.shape[0] if self.client == CLI else math.ceil(enough / in_flight) * in_flight

    def limit(self):
        """An emulated processor moves about 50 MB/s, and shares the machine."""
        return LIMIT + 2 * self.size * self.requests // 8_000_000

    def __str__(self):
        window = f"rx={size(self.window)}" if self.window else "rx=default"
        test = f"set,get {size(self.size):>6}" if self.size else "ping"
        connections, tasks, pipeline = (f"{letter}{part}" for letter, part in zip("ctP", self.shape))
        cells = (self.server, window, self.client, self.transport, test, connections, tasks, pipeline, f"n{self.requests}")
        return "{:<11} {:<10} {:<16} {:<5} {:<14} {:<3} {:<3} {:<3} {:<5}".format(*cells).rstrip()


def size(count):
    return f"{count / MIB:g}MiB" if count >= MIB else f"{count // KIB}KiB" if count % KIB == 0 else f"{count}B"


def rows(brief, every):
    for server, window, client, transport, sizes, shapes, brief_ones in TABLE:
        for value, shape in brief_ones if brief else itertools.product(sizes, shapes):
            if every or value * math.prod(max(part, 1) for part in shape) <= MOST_IN_FLIGHT:
                yield Row(server, window, client, transport, value, shape)


class Server:
    """A running server, whose log is watched. A gateway is one, and has a real one behind it."""

    def __init__(self, lab, programs, kind, window):
        self.kind, self.behind = kind, None
        self.log = pathlib.Path(tempfile.mkstemp()[1])
        certificate = ["--tls-cert", CERTIFICATE.cert, "--tls-key", CERTIFICATE.key] if kind in TLS else []
        if kind in ["mock", "mock-tls"]:
            words = [programs / "valkey-rdma-mock", "--bind", HOST, "--device", "verbs", *certificate]
            words += ["--rx-size", str(window)] if window else []
            words += ["--tls-rdma-port", PORT] if kind in TLS else ["--port", PORT, "--tcp-port", PORT]
            signs = ["ready rdmas://"] if kind in TLS else ["ready rdma://", "ready valkey://"]
        elif kind == "gateway-tls":
            words = [lab / "valkey/9.1/valkey-server", "--port", PORT, "--bind", "127.0.0.1", "--save", ""]
            self.behind = start(words, self.log.with_suffix(".behind"), ["Ready to accept connections"])
            words = [programs / "valkey-rdma-gateway", "--listen", f"rdmas:{HOST}:{PORT}", *certificate]
            words += ["--server", f"valkey://127.0.0.1:{PORT}"]
            signs = ["ready rdmas:"]
        else:
            folder = lab / "valkey" / kind.removeprefix("valkey-")
            words = [folder / "valkey-server", "--protected-mode", "no", "--save", "", "--port", PORT, "--loglevel", "verbose"]
            words += ["--loadmodule", folder / "valkey-rdma.so", "--rdma-bind", HOST, "--rdma-port", PORT]
            words += ["--rdma-rx-size", str(window)] if window else []
            # Its line about TCP comes earlier, and the real clients crash while nothing listens on RDMA.
            signs = ["Ready to accept connections rdma"]
        self.process = start(words, self.log, signs)

    def check(self):
        """Fails if the server has ended, or has complained of RDMA or of itself. Warnings about the machine's settings are not ours."""
        if self.process.poll() is not None:
            raise Failed(f"the server ended with {self.process.returncode}")
        self.check_log()

    def check_log(self):
        ours = not self.kind.startswith("valkey-")
        marks = [" WARN ", " ERROR "] if ours else []
        marks += ["ASSERTION FAILED", "BUG REPORT", "panicked at", "crashed by signal"]
        for line in self.log.read_text(errors="replace").splitlines():
            if any(mark in line for mark in marks) or not ours and " # " in line and "RDMA" in line:
                raise Failed(f"the server complained: {line}")

    def abandon(self, failure):
        for process in filter(None, [self.process, self.behind]):
            kill(process)
        raise Failed(f"{failure}\n  {self.kind} printed last:\n{tail(self.log.read_bytes())}")

    def stop(self):
        """What the last clients left behind may show only when the server ends."""
        self.check()
        self.process.send_signal(signal.SIGTERM)
        if self.process.wait(LIMIT) != 0:
            self.abandon(f"the server ended with {self.process.returncode}")
        if self.behind:
            kill(self.behind)
        self.check_log()
        self.log.unlink()


class Suite(Rows):
    def __init__(self, programs):
        super().__init__(["./dev", "lab", sys.argv[0], sys.argv[1], "--every", "--only"])
        self.programs = programs
        self.lab = pathlib.Path(os.environ.get("VALKEY_RDMA_LAB_DIR", ".lab"))

    def run_rows(self, all_rows):
        """Rows of the same server share one; after a failure the next row gets a fresh one."""
        for (kind, window), group in itertools.groupby(all_rows, lambda row: (row.server, row.window)):
            server = None

            def row_on_server(row):
                nonlocal server
                running = server or Server(self.lab, self.programs, kind, window)
                server = None
                try:
                    said = {OURS: self.ours, BENCHMARK: self.benchmark, CLI: self.cli}[row.client](row)
                    running.check()
                except Failed as failure:
                    running.abandon(failure)
                server = running
                return said

            for row in group:
                self.report(str(row), lambda row=row: row_on_server(row))
            if server and kind in VALKEYS:
                self.report(f"{kind} goes on after what clients ask and choose", self.question)
            if server:
                self.report(f"{kind} ends in order", server.stop)

    def question(self):
        """A released server notices nothing of clauses F-5 to F-9: it answers 0 bits, and commands go on."""
        run([self.programs / "valkey-rdma-conformance", "server", f"rdma://{HOST}:{PORT}", "--only", "own-"])

    def ours(self, row):
        """The load tool checks every byte itself; its report is compared with the request."""
        scheme, ca = "valkey" if row.transport == "tcp" else row.transport, f"&ca={CA}" if row.transport == "rdmas" else ""
        connections, tasks, pipeline = map(str, row.shape)
        words = [self.programs / "valkey-rdma-benchmark", "--csv", "--verify", "full", "--url", f"{scheme}://{HOST}:{PORT}?timeout=60s{ca}"]
        words += ["-n", str(row.requests), "-c", connections, "-P", pipeline]
        words += ["--tasks-per-connection", tasks] if tasks != "0" else []
        words += ["-t", "set,get", "-d", str(row.size)] if row.size else ["-t", "ping"]
        report = list(csv.DictReader(run(words, row.limit()).decode().splitlines()))
        # The client library has no inline commands.
        pings = ["PING_MBULK"] if tasks != "0" else ["PING_INLINE", "PING_MBULK"]
        tests = ["SET", "GET"] if row.size else pings
        wanted = [(test, str(row.requests), "0", "rdma+tls" if row.transport == "rdmas" else row.transport) for test in tests]
        got = [tuple(line[name] for name in ("test", "replies", "errors", "transport")) for line in report]
        if got != wanted:
            raise Failed(f"it reports {got}, not {wanted}: {shlex.join(map(str, words))}")
        return " ".join(f"{float(line['rps']):.0f}/s" for line in report)

    def benchmark(self, row):
        """valkey-benchmark counts replies but does not read them, so the value is read back at the end: letters from '0' to 'o'."""
        connections, _, pipeline = map(str, row.shape)
        words = [*self.valkey("valkey-benchmark", row), "-t", "set,get", "-d", str(row.size)]
        words += ["-n", str(row.requests), "-c", connections, "-P", pipeline]
        said = run(words, row.limit()).decode(errors="replace")
        complete = f"{row.requests} requests completed in"
        completed = sum(line.strip().startswith(complete) for line in said.replace("\r", "\n").split("\n"))
        if completed != 2 or "Error" in said:
            raise Failed(f"valkey-benchmark completed {completed} of 2 tests\n{tail(said.encode())}")
        value = self.get("key:__rand_int__", row)
        if len(value) != row.size or not set(value) <= set(range(ord("0"), ord("o") + 1)):
            raise Failed(f"the value read back is not the one it set ({len(value)} bytes)")
        rates = [line.split()[2] for line in said.splitlines() if line.strip().startswith("throughput summary:")]
        return " ".join(f"{float(rate):.0f}/s" for rate in rates)

    def cli(self, row):
        """One valkey-cli for each connection, all at once: sets a value with all bytes there are, and reads it back."""
        def set_and_get(number):
            key = f"cli:{number}"
            # No two keys have the same value, and no two pages of a value are alike.
            starts = ((252 * page + 31 * number) % 256 for page in range(row.size // 251 + 1))
            wanted = b"".join(ALL_BYTES[start : start + 251] for start in starts)[: row.size]
            reply = run([*self.valkey("valkey-cli", row), "-e", "-x", "SET", key], row.limit(), wanted)
            if reply != b"OK\n":
                raise Failed(f"SET {key}: the reply is {reply[:200]}")
            got = self.get(key, row)
            if got != wanted:
                at = next((at for at, pair in enumerate(zip(got, wanted)) if pair[0] != pair[1]), "the end")
                raise Failed(f"GET {key}: {len(got)} bytes for {row.size}, and they differ from {at} on")

        with ThreadPoolExecutor(row.shape[0]) as clients:
            list(clients.map(set_and_get, range(row.shape[0])))

    def get(self, key, row):
        printed = run([*self.valkey("valkey-cli", row), "-e", "GET", key], row.limit())
        if not printed.endswith(b"\n"):
            raise Failed(f"GET {key}: valkey-cli printed no whole line")
        return printed[:-1]

    def valkey(self, program, row):
        """A real client; only 9.1's speak RDMA."""
        return [self.lab / "valkey/9.1" / program, *(["--rdma"] if row.transport == "rdma" else []), "-h", HOST, "-p", PORT]

    def run_refusals(self, chosen):
        """They end with the device taken away, so they come last."""
        server = None
        for name, around, program, words, says in chosen:
            if around == "a server" and server is None:
                server = Server(self.lab, self.programs, "valkey-9.1", None)
            if around == "no device" and DEVICE.exists():
                if server:
                    self.report("the server outlives refusals", server.stop)
                    server = None
                run(["rdma", "link", "delete", DEVICE.name])
            command = [self.programs / f"valkey-rdma-{program}", *words.split()]
            if name == "memlock too small":
                command = [*SMALL_MEMLOCK, *command]
            self.report(f"refused    {name}", lambda: refused_with(name, command, says))
        if server:
            self.report("the server outlives refusals", server.stop)


def refused_with(name, command, says):
    with setting(*SETTINGS[name]) if name in SETTINGS else contextlib.nullcontext():
        refused(command, says)


@contextlib.contextmanager
def setting(name, value, usual):
    """The server's setting, changed. The connection stays open meanwhile: where only one client is allowed, it is that one."""
    with socket.create_connection((HOST, int(PORT)), LIMIT) as connection:
        def change(text):
            connection.sendall(f"CONFIG SET {name} {text}\r\n".encode())
            if (answer := connection.recv(200)) != b"+OK\r\n":
                raise Failed(f"CONFIG SET {name} was answered with {answer}")

        change(value)
        try:
            yield
        finally:
            change(usual)


def main():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("programs", type=pathlib.Path, help="the folder of our built programs")
    parser.add_argument("--brief", action="store_true", help="a few rows with each server")
    parser.add_argument("--every", action="store_true", help="rows with gigabytes in flight too")
    parser.add_argument("--list", action="store_true", help="print the rows, run nothing")
    parser.add_argument("--only", default="", help="only rows whose line contains this text")
    args = parser.parse_args()
    chosen = [row for row in rows(args.brief, args.every) if args.only in str(row)]
    refusals = [refusal for refusal in REFUSALS if args.only in f"refused    {refusal[0]}"]
    if args.list:
        print(*chosen, *(f"refused    {refusal[0]}" for refusal in refusals), sep="\n")
        return 0
    print(f"RDMA device rxe0 (software), active MTU {os.environ.get('VALKEY_RDMA_LAB_ACTIVE_MTU', 'unknown')}", flush=True)
    CERTIFICATES.mkdir(exist_ok=True)
    Authority(CERTIFICATES, "issuer").issue(HOST)
    suite = Suite(args.programs)
    suite.run_rows(chosen)
    suite.run_refusals(refusals)
    return suite.end()


sys.exit(main())
