#!/usr/bin/env python3
"""Load for as long as you like on a real server that is killed and started again: every reply is right, nothing hangs, no memory grows.

usage: soak.py PROGRAMS VALKEY [--rdma ADDRESS] [--gateway] [--seconds N] [--restarts N] [--connections N] [--tasks N]

PROGRAMS is the folder of our built programs, VALKEY that of valkey-server. Without --rdma, all goes over TCP. With --gateway, the load goes
through the gateway. The load tool checks every byte of every reply, and ends what hangs. The server keeps a log of writes, so that it knows
every acknowledged value when it comes back. Calls that are dropped half way are the matter of valkey-rdma-client/tests/soak.rs, clients of
other kinds that of valkey-rdma-gateway/tests/soak.rs, faults of the device that of tests/long_soak.rs.
"""
import argparse
import json
import pathlib
import subprocess
import sys
import tempfile
import time

from rows import start

PORT = "6390"
KEYS = "10000"
# What becomes of commands when a server is killed, while it reads its log, and meanwhile at the gateway.
ALLOWED = {"connection lost", "server error LOADING", "server error NOUPSTREAM"}
# How much more memory a process may have at the end than at the first restart, when all its tasks were at work.
GROWTH_KIB = 16 * 1024
PATIENCE = 600


def resident(process):
    status = pathlib.Path(f"/proc/{process.pid}/status").read_text()
    return int(next(line.split()[1] for line in status.splitlines() if line.startswith("VmRSS:")))


def soak(args, folder):
    """Runs it. Returns what went wrong."""
    server = [args.valkey / "valkey-server", "--port", PORT, "--save", "", "--dir", folder, "--appendonly", "yes"]
    url, sign = f"valkey://127.0.0.1:{PORT}", "Ready to accept connections"
    if args.rdma:
        server += ["--protected-mode", "no", "--loadmodule", args.valkey / "valkey-rdma.so", "--rdma-bind", args.rdma, "--rdma-port", PORT]
        url, sign = f"rdma://{args.rdma}:{PORT}", "Ready to accept connections rdma"
    running, watched = [start(server, folder / "server", [sign])], []
    try:
        target = ["--url", url]
        if args.gateway:
            words = [args.programs / "valkey-rdma-gateway", "--server", url, "--listen", f"unix:{folder}/socket"]
            watched.append(("gateway", start(words, folder / "gateway", ["ready unix"])))
            target = ["-s", folder / "socket"]
        words = [args.programs / "valkey-rdma-benchmark", *target, "--verify", "full", "--ratio", "1:1", "-r", KEYS]
        words += ["-d", "3:10,1024-65536:1", "-c", str(args.connections), "--tasks-per-connection", str(args.tasks)]
        words += ["--populate", "all", "--duration", str(args.seconds), "--json", folder / "report"]
        watched.append(("load tool", load := subprocess.Popen(words)))
        keys = [args.valkey / "valkey-cli", "-p", PORT, "DBSIZE"]
        while load.poll() is None and subprocess.check_output(keys).strip() != KEYS.encode():
            time.sleep(0.1)
        first = {}
        for restart in range(1, args.restarts + 2):
            time.sleep(args.seconds / (args.restarts + 1))
            if load.poll() is not None:
                break
            memory = {name: resident(process) for name, process in watched}
            first = first or memory
            print(f"{restart}: resident memory in KiB: {memory}", flush=True)
            if restart <= args.restarts:
                running[0].kill()
                running[0].wait()
                running[0] = start(server, folder / "server", [sign])
        load.wait(PATIENCE)
        wrong = [f"{name}: {first[name]} KiB became {memory[name]} KiB" for name in first if memory[name] > first[name] + GROWTH_KIB]
        return wrong + wrong_in(json.loads((folder / "report").read_text()), args)
    finally:
        for process in running + [process for _, process in watched]:
            process.kill()
            process.wait()


def wrong_in(report, args):
    """What the load tool's report has that the restarts do not explain."""
    wrong = []
    for test in report["tests"]:
        errors, lost = test["errors"], test["connections_lost"]
        if not set(errors) <= ALLOWED:
            wrong.append(f"{test['test']}: {errors}, as in {test['first_errors']}")
        if not test["replies"] or lost < args.restarts * args.connections:
            wrong.append(f"{test['test']}: {test['replies']} replies, {lost} connections lost in {args.restarts} restarts")
        print(f"{test['test']}: {test['replies']} right replies, {lost} connections lost, {errors}")
    return wrong


def main():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("programs", type=pathlib.Path, help="the folder of our built programs")
    parser.add_argument("valkey", type=pathlib.Path, help="the folder of valkey-server")
    parser.add_argument("--rdma", metavar="ADDRESS", help="the address of an RDMA device")
    parser.add_argument("--gateway", action="store_true", help="through the gateway")
    parser.add_argument("--seconds", type=int, default=60)
    parser.add_argument("--restarts", type=int, default=5)
    parser.add_argument("--connections", type=int, default=4)
    parser.add_argument("--tasks", type=int, default=100, help="tasks on each connection")
    with tempfile.TemporaryDirectory() as folder:
        wrong = soak(parser.parse_args(), pathlib.Path(folder))
    print(*(wrong or ["ok"]), sep="\n")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
