#!/usr/bin/env python3
"""Runs the test binaries that cargo has built, several at once: libtest runs one after another, and many mostly wait.

usage: cargo test --no-run --message-format=json-render-diagnostics ... | run-tests.py [PACKAGE/TEST...] [-- OPTION...]

With PACKAGE/TEST, as in valkey-rdma-client/cluster, only those; each must be there. Each gets the options, such as --skip.
Prints one line for each, and all output of those that fail. Exit status 1 if one fails, if one is still running after
LIMIT seconds, or if there is none.
"""
import concurrent.futures
import json
import os
import pathlib
import subprocess
import sys
import time

LIMIT = 600
CHOSEN, OPTIONS = sys.argv[1:], []
if "--" in CHOSEN:
    CHOSEN, OPTIONS = CHOSEN[:CHOSEN.index("--")], CHOSEN[CHOSEN.index("--") + 1:]
ONLY = {name.replace("/", " ") for name in CHOSEN}


def built():
    """Name, path and package folder of each test binary."""
    for line in sys.stdin:
        if not line.startswith("{"):
            continue
        message = json.loads(line)
        if message["reason"] == "compiler-artifact" and message["profile"]["test"] and message["executable"]:
            folder = pathlib.Path(message["manifest_path"]).parent
            name = f"{folder.name} {message['target']['name']}"
            if not ONLY or name in ONLY:
                yield name, message["executable"], folder


def run(name, path, folder):
    begin = time.monotonic()
    test = subprocess.Popen(
        [path, *OPTIONS], cwd=folder, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    try:
        output, status = test.communicate(timeout=LIMIT)[0], test.returncode
    except subprocess.TimeoutExpired:
        test.kill()
        output, status = test.communicate()[0], f"none: killed after {LIMIT} s"
    return name, output, status, time.monotonic() - begin


failed = []
with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
    running = [pool.submit(run, *test) for test in built()]
    for done in concurrent.futures.as_completed(running):
        name, output, status, seconds = done.result()
        print(f"{seconds:6.1f} s  {'passed' if status == 0 else 'FAILED'}  {name}", flush=True)
        if status != 0:
            failed.append(name)
            print(f"{output}\n{name}: exit status {status}", flush=True)
print(f"{len(running) - len(failed)} of {len(running)} test binaries passed", *failed, sep="\n  ")
sys.exit(bool(failed) or len(running) < max(1, len(ONLY)))
