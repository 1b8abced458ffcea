#!/usr/bin/env python3
"""Draws the rate against the number of tasks that share one connection: ours, redis-rs's and valkey-benchmark's.

usage: benches/peers/rate_by_tasks.py [--rdma ADDRESS] [--rounds N] [--requests N] PROGRAMS VALKEY OUT
       benches/peers/rate_by_tasks.py --redraw SAMPLES.json OUT

Starts the valkey-server of the folder VALKEY on a free port and runs `client-load` of the folder PROGRAMS: GET of 3 bytes,
every program once a round, in rotating order. Without --rdma, over TCP, ours and redis-rs on runtimes of 1 and 2 threads. With
--rdma, in the lab, over RDMA at this address: ours on 1 and 2 threads, valkey-benchmark with one connection for each task, and
ours and redis-rs over TCP to compare with. Writes OUT.json with every sample, and OUT.svg: lines are medians, bands reach from
the lowest round to the highest. `./dev bench` calls it on the host and in the lab. --redraw writes OUT.svg and OUT-dark.svg for
pages with a light and a dark background, from samples of the host.
"""
import argparse
import json
import math
import pathlib
import socket
import statistics
import subprocess
import sys
import tempfile
import time

# Library, transport, threads, colour: one line of the plot each.
HOST_LINES = [
    ("valkey-rdma", "TCP", 1, "#0072b2"),
    ("valkey-rdma", "TCP", 2, "#56b4e9"),
    ("redis-rs", "TCP", 1, "#d55e00"),
    ("redis-rs", "TCP", 2, "#e69f00"),
]
LAB_LINES = [
    ("valkey-rdma", "RDMA", 1, "#0072b2"),
    ("valkey-rdma", "RDMA", 2, "#56b4e9"),
    ("valkey-rdma", "TCP", 1, "#009e73"),
    ("redis-rs", "TCP", 1, "#d55e00"),
    ("valkey-benchmark", "RDMA", 1, "#cc79a7"),
]
# In the lab. Each connection of valkey-benchmark pins memory there, and redis-rs's requests time out with more tasks.
MOST_TASKS = {"valkey-benchmark": 64, "redis-rs": 64}
WIDTH, HEIGHT, LEFT, RIGHT, TOP, BOTTOM = 930, 480, 70, 250, 50, 50


def start_server(folder, rdma):
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    command = [folder / "valkey-server", "--port", str(port), "--save", "", "--protected-mode", "no"]
    if rdma:
        command += ["--loadmodule", folder / "valkey-rdma.so", "--rdma-bind", rdma, "--rdma-port", str(port)]
    log = tempfile.NamedTemporaryFile("w+")
    server = subprocess.Popen(command, stdout=log)
    ready = "Ready to accept connections " + ("rdma" if rdma else "tcp")
    end = time.monotonic() + 60
    # The clients crash over RDMA if nothing listens.
    while ready not in pathlib.Path(log.name).read_text():
        if server.poll() is not None or time.monotonic() > end:
            raise SystemExit(f"{folder}/valkey-server does not start: {pathlib.Path(log.name).read_text()}")
        time.sleep(0.05)
    return server, port


def rate(args, port, library, transport, threads, tasks):
    """Requests per second of one run."""
    host = args.rdma if transport == "RDMA" else "127.0.0.1"
    # A few tasks send few requests at a time: each run takes about as long as the others.
    count = args.requests * min(tasks, 16) // 16
    if library == "valkey-benchmark":
        command = [args.valkey / library, "--rdma", "-h", host, "-p", port, "-c", tasks, "-n", count, "-t", "get", "--csv"]
    else:
        scheme = {"redis-rs": "redis", "valkey-rdma": "rdma" if transport == "RDMA" else "valkey"}[library]
        command = [args.programs / "client-load", "--library", library, "--url", f"{scheme}://{host}:{port}",
                   "--tasks", tasks, "--threads", threads, "-n", count, "-t", "get"]
    run = subprocess.run([str(word) for word in command], capture_output=True, text=True)
    if run.returncode != 0:
        raise SystemExit(f"{command}: {run.stderr}")
    # Both print the CSV of valkey-benchmark.
    return float(run.stdout.splitlines()[1].split(",")[1].strip('"'))


def draw(samples, lines, points, title, ink="black", paper="white", grid="#ddd"):
    highest = max(max(rates) for line in samples for rates in line["rates"].values())
    step = 10 ** math.floor(math.log10(highest))
    step = step if highest / step >= 3 else step // 4
    top = math.ceil(highest / step) * step
    x = lambda tasks: LEFT + math.log2(tasks) / math.log2(points[-1]) * (WIDTH - LEFT - RIGHT)
    y = lambda value: HEIGHT - BOTTOM - value / top * (HEIGHT - TOP - BOTTOM)
    svg = [f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{HEIGHT}" font-family="sans-serif" font-size="13" fill="{ink}">',
           f'<rect width="{WIDTH}" height="{HEIGHT}" fill="{paper}"/>',
           f'<text x="{LEFT}" y="28" font-size="16">{title}</text>']
    for value in range(0, top + 1, step):
        svg.append(f'<path d="M{LEFT} {y(value):.1f}H{WIDTH - RIGHT}" stroke="{grid}"/>')
        svg.append(f'<text x="{LEFT - 8}" y="{y(value) + 4:.1f}" text-anchor="end">{value / 1000:g} k</text>')
    for tasks in points:
        svg.append(f'<text x="{x(tasks):.1f}" y="{HEIGHT - BOTTOM + 20}" text-anchor="middle">{tasks}</text>')
    svg.append(f'<text x="{(LEFT + WIDTH - RIGHT) / 2}" y="{HEIGHT - 10}" text-anchor="middle">tasks</text>')
    lines_over_bands = []
    for at, (line, (*_, colour)) in enumerate(zip(samples, lines)):
        rates = line["rates"]
        upper = [f"{x(tasks):.1f},{y(max(rates[tasks])):.1f}" for tasks in rates]
        lower = [f"{x(tasks):.1f},{y(min(rates[tasks])):.1f}" for tasks in reversed(rates)]
        median = [f"{x(tasks):.1f},{y(statistics.median(rates[tasks])):.1f}" for tasks in rates]
        svg.append(f'<polygon points="{" ".join(upper + lower)}" fill="{colour}" fill-opacity="0.2"/>')
        lines_over_bands.append(f'<polyline points="{" ".join(median)}" fill="none" stroke="{colour}" stroke-width="2.5"/>')
        threads = f'{line["threads"]} thread{"s" if line["threads"] > 1 else ""}'
        label = f'{line["library"]}, {line["transport"]}'
        label += "" if line["library"] == "valkey-benchmark" else f", {threads}"
        svg.append(f'<path d="M{WIDTH - RIGHT + 10} {TOP + 20 + 24 * at}h18" stroke="{colour}" stroke-width="4"/>')
        svg.append(f'<text x="{WIDTH - RIGHT + 34}" y="{TOP + 24 + 24 * at}">{label}</text>')
    return "\n".join([*svg, *lines_over_bands, "</svg>", ""])


def redraw(samples_file, out):
    """The plot of kept samples, once for light pages and once for dark ones (GitHub's background)."""
    samples = json.loads(pathlib.Path(samples_file).read_text())
    for line in samples:
        line["transport"] = "TCP"
        line["rates"] = {int(tasks): rates for tasks, rates in line["rates"].items()}
    title = "Requests per second by tasks that share one connection: GET of 3 bytes, TCP on loopback, no RDMA"
    points = list(samples[0]["rates"])
    pathlib.Path(f"{out}.svg").write_text(draw(samples, HOST_LINES, points, title))
    pathlib.Path(f"{out}-dark.svg").write_text(draw(samples, HOST_LINES, points, title, "#e6edf3", "#0d1117", "#30363d"))


def main():
    if sys.argv[1:2] == ["--redraw"]:
        return redraw(*sys.argv[2:])
    parser = argparse.ArgumentParser(description="Draws the rate against the number of tasks that share one connection.")
    parser.add_argument("programs", type=pathlib.Path)
    parser.add_argument("valkey", type=pathlib.Path)
    parser.add_argument("out", type=pathlib.Path, help="without the ending")
    parser.add_argument("--rdma", metavar="ADDRESS", help="of the RDMA device; default: TCP only")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--requests", type=int, help="of a run with 16 tasks or more; default 100000, over RDMA 10000")
    args = parser.parse_args()
    args.requests = args.requests or (10_000 if args.rdma else 100_000)
    lines = LAB_LINES if args.rdma else HOST_LINES
    points = [2**n for n in range(0, 10, 2 if args.rdma else 1)]
    samples = [{"library": library, "transport": transport, "threads": threads, "rates": {}}
               for library, transport, threads, _ in lines]
    server, port = start_server(args.valkey, args.rdma)
    try:
        for round in range(args.rounds):
            for tasks in points:
                for at in range(len(samples)):
                    line = samples[(at + round) % len(samples)]
                    if args.rdma and tasks > MOST_TASKS.get(line["library"], tasks):
                        continue
                    measured = rate(args, port, line["library"], line["transport"], line["threads"], tasks)
                    line["rates"].setdefault(tasks, []).append(measured)
    finally:
        server.terminate()
        server.wait()
    place = "soft-RoCE, emulated processors" if args.rdma else "TCP on loopback"
    args.out.with_suffix(".json").write_text(json.dumps(samples) + "\n")
    title = f"GET of 3 bytes on one connection, {place}: requests per second by tasks"
    args.out.with_suffix(".svg").write_text(draw(samples, lines, points, title))


if __name__ == "__main__":
    main()
