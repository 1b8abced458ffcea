#!/usr/bin/env python3
"""Measures this project beside redis-rs and other client libraries, valkey-benchmark and perftest, in interleaved rounds.

usage: benches/peers/bench.py host|lab PROGRAMS VALKEY OUT [--rounds N] [--seconds S] [--only TEXT] [--list]

`host` measures over TCP on loopback, `lab` over RDMA at 10.0.0.1 inside the lab. PROGRAMS is the folder of the built programs, VALKEY
that of a valkey-server. Starts the server on a free port, prints a line for each row with its ratio, and writes OUT.json and OUT.svg.

Client libraries run in one process, through the load tool's --compare. Other programs take turns with ours, and their CSV is read.
A ratio compares ours with the other of the same round: the median of the rounds, the lowest and the highest.
"""
import argparse
import csv
import json
import math
import os
import pathlib
import resource
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections import namedtuple

sys.path.append(str(pathlib.Path(__file__).resolve().parents[2] / "tests/lab"))
from certificates import Authority
from rows import kill, start

# What each side is called is its flags. `ours`: a transport, and flags of the load tool. `other`: `library` and what differs with it
# (--compare-with), over TLS if ours is; or another transport; or `valkey-benchmark` with its flags; or `ib_write_bw` with a size and its
# flags: `-t 1` waits for each write before the next. `aim`: the ratio of rates that we want. `mock` is the mock over RDMA, `gateway` the
# gateway over RDMA in front of the server's TCP. --direct is on our side only.
Row = namedtuple("Row", "test ours other aim", defaults=[None])
TASKS = [1, 4, 16, 64, 256]
COLOURS = ["#0072b2", "#d55e00"]
GLIDE = "valkey-rdma-peer-glide"  # Built only if Rust is new enough for valkey-glide.


def rows(place):
    of = "tcp" if place == "host" else "rdma"
    reference = "valkey-benchmark" if place == "host" else "valkey-benchmark --rdma"
    for test in ["set", "get"]:
        shared = f"{of} -c 1 --tasks-per-connection"
        yield Row(test, f"{shared} 50", "library=redis-rs", 1.5)
        yield Row(test, f"{shared} 50 --runtime-threads 2", "library=redis-rs", 1.5 if place == "lab" else None)
        yield Row(test, f"{shared} 50", f"{reference} -c 50", 4 if place == "lab" else None)
        yield Row(test, f"{of} -c 50", f"{reference} -c 50", 1.3 if place == "lab" else None)
        if place == "host":
            yield Row(test, "tls -c 1 --tasks-per-connection 50", "library=redis-rs", 1.5)
            yield Row(test, "tls -c 1 --tasks-per-connection 1", "library=redis-rs")
            yield Row(test, "emulateds -c 1 --tasks-per-connection 50", "emulated", 0.6)
            yield Row(test, f"emulated --direct -c 1 -d {1 << 20}", "emulated")
            yield Row(test, f"{shared} 50", "library=fred")
            yield Row(test, f"{shared} 50", "library=glide")
            for threads in [1, 2, 8]:
                ours = "tcp --library valkey-rdma-blocking"
                yield Row(test, f"{ours} -c 1 --tasks-per-connection {threads}", f"library=redis-rs-blocking c={threads} tasks=1")
                if threads > 1:
                    yield Row(test, f"{ours} -c {threads} --tasks-per-connection 1", "library=redis-rs-blocking")
            continue
        yield Row(test, f"{shared} 50", "valkey-benchmark -c 50", 2)
        for tasks, pipeline, aim in [(1, 1, 1.1), (1, 16, 1.3), (50, 16, 1)]:
            yield Row(test, f"{shared} {tasks} -P {pipeline}", f"{reference} -c {tasks} -P {pipeline}", aim)
        yield Row(test, f"{shared} 1 --poll busy", f"{reference} -c 1")
        for tasks, size in [(1, 65536), (4, 65536), (1, 1 << 20), (1, 32 << 20)]:
            for pool in ["", " --pool"] if test == "set" else [""]:
                yield Row(test, f"{shared} {tasks} -d {size}{pool}", f"ib_write_bw {size}", 0.85)
        for size, aim in [(65536, 0.8), (1 << 20, 0.95), (32 << 20, 0.98)]:
            yield Row(test, f"mock --direct -c 1 -d {size}", f"ib_write_bw {size}", aim)
            yield Row(test, f"mock --direct -c 1 -d {size}", f"ib_write_bw {size} -t 1")
            for ring in ["mock", "rdma"]:
                yield Row(test, f"mock --direct -c 1 -d {size}", ring)
            yield Row(test, f"gateway --direct -c 1 -d {size}", "rdma", 1)
    for tasks in TASKS:
        yield Row("get", f"{of} -c 1 --tasks-per-connection {tasks} -d 3", "library=redis-rs")


RESERVED = []


def free_port():
    """A port that nothing else gets: bound, and free for the server that asks for it by number."""
    RESERVED.append(socket.socket())
    RESERVED[-1].setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    RESERVED[-1].bind(("127.0.0.1", 0))
    return RESERVED[-1].getsockname()[1]


def run(command):
    """What a program prints, and the seconds of processor time that it took."""
    command = [str(word) for word in command]
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True)
    if done.returncode != 0:
        raise SystemExit(f"{command} failed with {done.returncode}: {done.stdout}{done.stderr}")
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return done.stdout, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


class Bench:
    def __init__(self, args):
        self.args = args
        self.address = "10.0.0.1" if args.place == "lab" else "127.0.0.1"
        self.port, self.folder, self.servers = free_port(), tempfile.TemporaryDirectory(), []
        self.urls = {"tcp": f"valkey://{self.address}:{self.port}?", "rdma": f"rdma://{self.address}:{self.port}?"}
        self.mock = self.args.programs / "valkey-rdma-mock"

    def __enter__(self):
        command = [self.args.valkey / "valkey-server", "--port", str(self.port), "--save", "", "--protected-mode", "no"]
        if self.args.place == "lab":
            command += ["--loadmodule", self.args.valkey / "valkey-rdma.so",
                        "--rdma-bind", self.address, "--rdma-port", str(self.port)]
            self.start(command, "Ready to accept connections rdma")
            mock, gateway = [str(free_port()) for _ in range(2)]
            self.urls["mock"] = f"rdma://{self.address}:{mock}?"
            self.start([self.mock, "--bind", self.address, "--port", mock], "ready rdma://")
            self.urls["gateway"] = f"rdma://{self.address}:{gateway}?"
            self.start([self.args.programs / "valkey-rdma-gateway", "--listen", f"rdma:{self.address}:{gateway}",
                        "--server", f"valkey://{self.address}:{self.port}"], "ready rdma:")
            return self
        issuer, port = Authority(pathlib.Path(self.folder.name), "issuer"), str(free_port())
        pair = issuer.issue(self.address)
        self.urls["tls"] = f"valkeys://{self.address}:{port}?ca={issuer.ca}&"
        self.start([*command, "--tls-port", port, "--tls-auth-clients", "no", "--tls-cert-file", pair.cert, "--tls-key-file", pair.key,
                    "--tls-ca-cert-file", issuer.ca], "Ready to accept connections tls")
        ports = [str(free_port()), str(free_port())]
        self.urls["emulated"] = f"emulated://{self.address}:{ports[0]}?"
        self.urls["emulateds"] = f"emulateds://{self.address}:{ports[1]}?ca={issuer.ca}&"
        self.start([self.mock, "--device", "emulated", "--port", ports[0], "--tls-rdma-port", ports[1],
                    "--tls-cert", pair.cert, "--tls-key", pair.key], "ready emulateds://")
        return self

    def start(self, command, sign):
        """The real clients crash over RDMA if nothing listens yet."""
        self.servers.append(start(command, pathlib.Path(self.folder.name) / f"{len(self.servers)}.log", [sign], self.folder.name))

    def __exit__(self, *_):
        for server in self.servers:
            kill(server)

    def url(self, transport):
        return f"{self.urls[transport]}protocol=resp2"

    def ours(self, row):
        transport, *flags = row.ours.split()
        program = GLIDE if row.other == "library=glide" else "valkey-rdma-peers"
        return [self.args.programs / program, "-u", self.url(transport), *flags, "-t", row.test, "--populate", "all"]

    def samples(self, row):
        """The rounds of ours and of the other."""
        if row.other in self.urls or row.other.startswith("library="):
            return self.compared(row)
        # Values of 1 GiB in all, if they are large.
        first = max(20, min(20_000, (1 << 30) // size_of(row)))
        counts, sides = [first, first], [[], []]
        # The first round finds out how many requests take long enough, and does not count.
        for number in range(self.args.rounds + 1):
            for side in [number % 2, 1 - number % 2]:
                sample = (self.other if side else self.our_run)(row, counts[side])
                if number == 0:
                    counts[side] = max(first // 20, int(sample["rate"] * self.args.seconds))
                else:
                    sides[side].append(sample)
        return sides

    def compared(self, row):
        if row.other in self.urls:
            other = [self.url(row.other), *(["--compare-with", "tasks=1"] if is_direct(row) else [])]
        else:
            other = [self.url("tls" if row.ours.startswith("tls ") else "tcp"), "--compare-with", row.other]
        with tempfile.NamedTemporaryFile(suffix=".json") as out:
            run([*self.ours(row), "--compare", *other, "--rounds", self.args.rounds,
                 "--duration", self.args.rounds * self.args.seconds, "--json", out.name])
            [comparison] = json.load(open(out.name))["comparisons"]
        return [[{"rate": turn["requests_per_second"], "p50_ms": turn["p50_ms"], "p99_ms": turn["p99_ms"],
                  "cpu_us": turn["client_cpu_us_per_request"], "server_cpu_us": turn["server_cpu_us_per_request"] or 0}
                 for turn in side["rounds"]] for side in comparison["sides"]]

    def our_run(self, row, count):
        # Before a direct transfer, memory is registered once. The other side does that before it measures, too.
        warmup = ["--warmup", "0.1"] if is_direct(row) else []
        return from_csv(count, *run([*self.ours(row), *warmup, "-n", count, "--csv"]))

    def other(self, row, count):
        name, *flags = row.other.split()
        if name == "ib_write_bw":
            return self.write_bandwidth(*flags, count=count)
        return from_csv(count, *run([self.args.valkey / name, "-h", self.address, "-p", self.port, *flags, "-n", count,
                                     "-t", row.test, "-d", size_of(row), "--csv"]))

    def write_bandwidth(self, size, *flags, count):
        call = ["ib_write_bw", "-F", "-s", size, "-n", str(max(count, 5)), "-m", "1024", *flags]
        with subprocess.Popen(call, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL):
            for _ in range(100):
                done = subprocess.run([*call, self.address], capture_output=True, text=True)
                if done.returncode == 0:
                    break
                time.sleep(0.1)  # Its server does not say when it listens.
            else:
                raise SystemExit(f"{call} failed: {done.stderr}")
        [cells] = [cells for line in done.stdout.splitlines() if (cells := line.split()) and cells[0] == size]
        return {"rate": float(cells[3]) * (1 << 20) / int(size)}


def size_of(row):
    """The length of its values."""
    return int((row.ours.partition(" -d ")[2].split() or ["3"])[0])


def is_direct(row):
    return "--direct" in row.ours


def from_csv(count, printed, cpu):
    """The sample in valkey-benchmark's CSV, which ours begins with."""
    [line] = csv.DictReader(line for line in printed.splitlines() if line.startswith('"'))
    return {"rate": float(line["rps"]), "p50_ms": float(line["p50_latency_ms"]), "p99_ms": float(line["p99_latency_ms"]),
            "cpu_us": cpu / count * 1e6}


def middle(values):
    """Median, lowest, highest."""
    values = list(values)
    return [statistics.median(values), min(values), max(values)]


def result(row, sides):
    figures = ["rate", "p50_ms", "p99_ms", "cpu_us", "server_cpu_us"]
    figures = [name for name in figures if all(name in side[0] for side in sides)]
    return {"test": row.test, "ours": row.ours, "other": row.other, "aim": row.aim, "rounds": len(sides[0]),
            "rates": [middle(sample["rate"] for sample in side) for side in sides],
            "cpu": {name: [middle(sample[name] for sample in side) for side in sides] for name in figures if name.endswith("cpu_us")},
            "ratios": {name: middle(one[name] / other[name] for one, other in zip(*sides) if other[name]) for name in figures
                       if any(other[name] for other in sides[1])}}


def draw(results, title):
    """Left: rates by tasks on one connection. Right: the ratio of rates of each row, with its range."""
    by_tasks = [row for row in results if row["ours"].endswith("-d 3")]
    others = [row for row in results if row not in by_tasks]
    height = max(420, 90 + 22 * len(others))
    svg = [f'<svg xmlns="http://www.w3.org/2000/svg" width="1320" height="{height}" font-family="sans-serif" font-size="13">',
           f'<rect width="1320" height="{height}" fill="white"/>', f'<text x="60" y="28" font-size="16">{title}</text>']
    if len(by_tasks) > 1:
        top = max(rates[2] for row in by_tasks for rates in row["rates"])
        step = 10 ** math.floor(math.log10(top))
        x = lambda at: 60 + at / (len(by_tasks) - 1) * 340
        y = lambda rate: 380 - rate / top * 310
        for value in range(0, int(top) + 1, step):
            svg.append(f'<path d="M60 {y(value):.0f}H400" stroke="#ddd"/><text x="54" y="{y(value) + 4:.0f}" text-anchor="end">{value / 1000:g} k</text>')
        for at, row in enumerate(by_tasks):
            svg.append(f'<text x="{x(at):.0f}" y="398" text-anchor="middle">{row["ours"].split()[4]}</text>')
        for side, (colour, name) in enumerate(zip(COLOURS, ["ours", "redis-rs, TCP"])):
            points = [row["rates"][side] for row in by_tasks]
            band = [f"{x(at):.0f},{y(point[2]):.0f}" for at, point in enumerate(points)]
            band += [f"{x(at):.0f},{y(point[1]):.0f}" for at, point in reversed(list(enumerate(points)))]
            line = " ".join(f"{x(at):.0f},{y(point[0]):.0f}" for at, point in enumerate(points))
            svg.append(f'<polygon points="{" ".join(band)}" fill="{colour}" fill-opacity="0.2"/>')
            svg.append(f'<polyline points="{line}" fill="none" stroke="{colour}" stroke-width="2.5"/>')
            svg.append(f'<text x="70" y="{80 + 18 * side}" fill="{colour}">{name}</text>')
        svg.append('<text x="230" y="414" text-anchor="middle">GET requests/s by tasks on one connection</text>')
    if others:
        most = max(row["ratios"]["rate"][2] for row in others)
        x = lambda ratio: 1000 + math.log2(max(ratio, 0.25) / 0.25) / math.log2(most / 0.25) * 290
        svg.append(f'<path d="M{x(1):.0f} 45V{height - 30}" stroke="#999"/><text x="{x(1):.0f}" y="{height - 12}" text-anchor="middle">as fast</text>')
        for at, row in enumerate(others):
            ratio, lowest, highest = row["ratios"]["rate"]
            y = 62 + 22 * at
            svg.append(f'<text x="990" y="{y + 4}" text-anchor="end" font-size="11">{row["test"]}: {row["ours"]} / {row["other"]}</text>')
            svg.append(f'<path d="M{x(lowest):.0f} {y}H{x(highest):.0f}" stroke="{COLOURS[0]}" stroke-width="3" stroke-opacity="0.4"/>')
            svg.append(f'<circle cx="{x(ratio):.0f}" cy="{y}" r="4" fill="{COLOURS[0]}"><title>{ratio:.2f}</title></circle>')
    return "\n".join([*svg, "</svg>", ""])


def write(args, results):
    about = {"date": time.strftime("%Y-%m-%d"), "place": args.place, "kernel": os.uname().release, "processors": os.cpu_count()}
    lines = ",\n".join(json.dumps(row) for row in results)
    args.out.with_suffix(".json").write_text(f'{{"about": {json.dumps(about)}, "rows": [\n{lines}\n]}}\n')
    where = "TCP on loopback" if args.place == "host" else "soft-RoCE, emulated processors"
    args.out.with_suffix(".svg").write_text(draw(results, f"{where}: rates of ours / of the other, median and range of rounds"))


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("place", choices=["host", "lab"])
    parser.add_argument("programs", type=pathlib.Path)
    parser.add_argument("valkey", type=pathlib.Path)
    parser.add_argument("out", type=pathlib.Path, help="without the ending")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=1.0, help="of a turn")
    parser.add_argument("--only", default="", help="rows whose text contains this")
    parser.add_argument("--list", action="store_true", help="print the rows and end")
    args = parser.parse_args()
    chosen = [row for row in rows(args.place) if args.only in f"{row.test}: {row.ours} / {row.other}"]
    if args.list:
        return print(*(f"{row.test}: {row.ours} / {row.other}" for row in chosen), sep="\n")
    chosen = [row for row in chosen if row.other != "library=glide" or (args.programs / GLIDE).exists()]
    results = []
    with Bench(args) as bench:
        for row in chosen:
            results.append(result(row, bench.samples(row)))
            ratio, lowest, highest = results[-1]["ratios"]["rate"]
            aim = f", aim {row.aim}" if row.aim else ""
            cpu = ""
            for side, name in [("client", "cpu_us"), ("server", "server_cpu_us")] if is_direct(row) else []:
                if name in results[-1]["ratios"]:
                    cpu += ", {} CPU {:.3f} ({:.3f} to {:.3f})".format(side, *results[-1]["ratios"][name])
            print(f"{row.test}: {row.ours} / {row.other}: {ratio:.2f} ({lowest:.2f} to {highest:.2f}){aim}{cpu}", flush=True)
            # After each row: a run that is cut keeps what it has.
            write(args, results)


if __name__ == "__main__":
    main()
