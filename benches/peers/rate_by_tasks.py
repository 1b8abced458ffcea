#!/usr/bin/env python3
"""Draws the rate against the number of tasks that share one connection, ours and redis-rs's, on runtimes of 1 and 2 threads.

usage: benches/peers/rate_by_tasks.py [--rounds N] [--requests N] PROGRAMS VALKEY OUT

Starts the valkey-server of the folder VALKEY on a free port and runs `client-load` of the folder PROGRAMS: GET of 3 bytes over
TCP, every program once a round, in rotating order. Writes OUT.json with every sample, and OUT.svg: lines are medians, bands
reach from the lowest round to the highest. `./dev bench` calls it on the host.
"""
import argparse
import json
import math
import pathlib
import socket
import statistics
import subprocess
import time

TASKS = [2**n for n in range(10)]
# Library, threads, colour: one line of the plot each.
LINES = [
    ("valkey-rdma", 1, "#0072b2"),
    ("valkey-rdma", 2, "#56b4e9"),
    ("redis-rs", 1, "#d55e00"),
    ("redis-rs", 2, "#e69f00"),
]
WIDTH, HEIGHT, LEFT, RIGHT, TOP, BOTTOM = 900, 480, 70, 190, 50, 50


def start_server(folder):
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    command = [folder / "valkey-server", "--port", str(port), "--bind", "127.0.0.1", "--save", ""]
    server = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    end = time.monotonic() + 60
    while True:
        try:
            socket.create_connection(("127.0.0.1", port)).close()
            return server, port
        except OSError:
            if server.poll() is not None or time.monotonic() > end:
                raise SystemExit(f"{folder}/valkey-server does not start")


def rate(program, port, library, threads, tasks, requests):
    """Requests per second of one run."""
    scheme = "redis" if library == "redis-rs" else "valkey"
    # A few tasks send few requests at a time: each run takes about as long as the others.
    count = requests * min(tasks, 16) // 16
    command = [program, "--library", library, "--url", f"{scheme}://127.0.0.1:{port}", "--tasks", tasks,
               "--threads", threads, "-n", count, "-t", "get"]
    run = subprocess.run([str(word) for word in command], capture_output=True, text=True, check=True)
    return float(run.stdout.splitlines()[1].split(",")[1].strip('"'))


def draw(samples):
    highest = max(max(rates) for line in samples for rates in line["rates"].values())
    step = 100_000
    top = math.ceil(highest / step) * step
    x = lambda tasks: LEFT + math.log2(tasks) / math.log2(TASKS[-1]) * (WIDTH - LEFT - RIGHT)
    y = lambda value: HEIGHT - BOTTOM - value / top * (HEIGHT - TOP - BOTTOM)
    svg = [f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{HEIGHT}" font-family="sans-serif" font-size="13">',
           f'<rect width="{WIDTH}" height="{HEIGHT}" fill="white"/>',
           f'<text x="{LEFT}" y="28" font-size="16">GET of 3 bytes over TCP on one connection: requests per second by tasks</text>']
    for value in range(0, top + 1, step):
        svg.append(f'<path d="M{LEFT} {y(value):.1f}H{WIDTH - RIGHT}" stroke="#ddd"/>')
        svg.append(f'<text x="{LEFT - 8}" y="{y(value) + 4:.1f}" text-anchor="end">{value // 1000} k</text>')
    for tasks in TASKS:
        svg.append(f'<text x="{x(tasks):.1f}" y="{HEIGHT - BOTTOM + 20}" text-anchor="middle">{tasks}</text>')
    svg.append(f'<text x="{(LEFT + WIDTH - RIGHT) / 2}" y="{HEIGHT - 10}" text-anchor="middle">tasks</text>')
    for at, (line, (_, _, colour)) in enumerate(zip(samples, LINES)):
        rates = line["rates"]
        upper = [f"{x(tasks):.1f},{y(max(rates[tasks])):.1f}" for tasks in TASKS]
        lower = [f"{x(tasks):.1f},{y(min(rates[tasks])):.1f}" for tasks in reversed(TASKS)]
        median = [f"{x(tasks):.1f},{y(statistics.median(rates[tasks])):.1f}" for tasks in TASKS]
        svg.append(f'<polygon points="{" ".join(upper + lower)}" fill="{colour}" fill-opacity="0.15"/>')
        svg.append(f'<polyline points="{" ".join(median)}" fill="none" stroke="{colour}" stroke-width="2.5"/>')
        label = f'{line["library"]}, {line["threads"]} thread{"s" if line["threads"] > 1 else ""}'
        svg.append(f'<path d="M{WIDTH - RIGHT + 15} {TOP + 20 + 24 * at}h22" stroke="{colour}" stroke-width="4"/>')
        svg.append(f'<text x="{WIDTH - RIGHT + 44}" y="{TOP + 24 + 24 * at}">{label}</text>')
    return "\n".join([*svg, "</svg>", ""])


def main():
    parser = argparse.ArgumentParser(description="Draws the rate against the number of tasks that share one connection.")
    parser.add_argument("programs", type=pathlib.Path)
    parser.add_argument("valkey", type=pathlib.Path)
    parser.add_argument("out", type=pathlib.Path, help="without the ending")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--requests", type=int, default=100_000, help="of a run with 16 tasks or more")
    args = parser.parse_args()
    samples = [{"library": library, "threads": threads, "rates": {tasks: [] for tasks in TASKS}}
               for library, threads, _ in LINES]
    server, port = start_server(args.valkey)
    try:
        for round in range(args.rounds):
            for tasks in TASKS:
                for at in range(len(samples)):
                    line = samples[(at + round) % len(samples)]
                    measured = rate(args.programs / "client-load", port, line["library"], line["threads"], tasks, args.requests)
                    line["rates"][tasks].append(measured)
    finally:
        server.terminate()
        server.wait()
    args.out.with_suffix(".json").write_text(json.dumps(samples) + "\n")
    args.out.with_suffix(".svg").write_text(draw(samples))


if __name__ == "__main__":
    main()
