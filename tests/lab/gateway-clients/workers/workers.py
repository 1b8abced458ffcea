#!/usr/bin/env python3
"""Workers of job queues survive restarts of their server: directly, and through the gateway.

usage: workers.py SERVER GATEWAY CLIENTS PORT [WORKER...]
    SERVER    the program of Valkey or Redis
    GATEWAY   the gateway's program
    CLIENTS   the folder with the packages of Python and Node.js, as gateway-clients.sh fetches them
    PORT      this port and the next one are used

All workers run at the same time: Celery, RQ (with and without a process for each job), huey, Bull, BullMQ, and Sidekiq if it is
installed. Each gets jobs before, while and after the server is away. The server keeps its data. Required: every job is done, each
worker is still the process that was started, and no program that enqueues jobs sees an error that is not of its connection.
Exit status 1: something of this is not so.
"""

import contextlib
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
# Seconds. Only a failing run waits for so long.
PATIENCE = 60
# For how long the server is away: seconds.
AWAY = 2
# How often it is, each way.
RESTARTS = 2
# Jobs before, while and after it is away.
JOBS = 5
# The ways to the server: the gateway's flags, and the server's. By default commands wait for 10 s, longer than the server is away here.
# A server that reads its data takes 3 ms for each command of its file. It answers LOADING meanwhile. With a direct connection that ends
# programs that enqueue jobs of Bull and Sidekiq.
SLOW_LOADING = ["--key-load-delay", "3000", "--loading-process-events-interval-bytes", "1024"]
WAYS = {
    "directly": (None, []),
    "gateway": ([], []),
    "gateway, where commands wait for less time than the server is away": (["--offline-ms", "300"], []),
    "gateway, and the server reads its data for a while": ([], SLOW_LOADING),
}


def programs(clients):
    """By name: what runs the jobs, and what enqueues them."""
    python = f"{clients}/python/bin"
    jobs = [f"{python}/python3", "jobs.py"]
    both = {
        "celery": ([f"{python}/celery", "-A", "jobs:app", "worker", "--pool=solo", "--loglevel=info"], [*jobs, "celery"]),
        "rq": ([f"{python}/rq", "worker", "--url", "{url}"], [*jobs, "rq"]),
        "rq-simple": ([f"{python}/rq", "worker", "--url", "{url}", "--worker-class", "rq.worker.SimpleWorker"], [*jobs, "rq"]),
        "huey": ([f"{python}/huey_consumer", "jobs.consumer"], [*jobs, "huey"]),
        "bull": (["node", "jobs.js", "bull", "work"], ["node", "jobs.js", "bull", "enqueue"]),
        "bullmq": (["node", "jobs.js", "bullmq", "work"], ["node", "jobs.js", "bullmq", "enqueue"]),
    }
    if shutil.which("sidekiq"):
        both["sidekiq"] = (["sidekiq", "-r", "./jobs.rb", "-c", "1"], ["ruby", "jobs.rb"])
    return both


def until(condition, what):
    end = time.monotonic() + PATIENCE
    while not condition():
        if time.monotonic() >= end:
            raise TimeoutError(what)
        time.sleep(0.05)


def listens(port):
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


def stop(process):
    process.terminate()
    try:
        process.wait(20)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


class Server:
    """A server that keeps its data."""

    def __init__(self, program, port, folder, flags):
        self.command = [program, "--port", str(port), "--dir", folder, "--save", "", "--appendonly", "yes", "--appendfsync", "always", *flags]
        self.port, self.log = port, open(f"{folder}/server.log", "a")
        self.start()

    def start(self):
        self.process = subprocess.Popen(self.command, stdout=self.log, stderr=self.log)
        until(lambda: listens(self.port), "the server does not listen")

    def stop(self):
        stop(self.process)

    def blocked(self):
        """Clients that wait for a job."""
        with socket.create_connection(("127.0.0.1", self.port)) as client:
            client.sendall(b"INFO clients\r\nQUIT\r\n")
            text = b"".join(iter(lambda: client.recv(65536), b""))
        return int(text.split(b"blocked_clients:")[1].split()[0])


class Worker:
    """A program that runs jobs, and one that enqueues them."""

    def __init__(self, name, commands, url, folder, modules):
        self.name, self.done, self.log = name, Path(folder, name + ".done"), Path(folder, name + ".log")
        self.done.touch()
        # A database of its own: RQ's two workers have the same names in theirs.
        url += {"rq-simple": "/1"}.get(name, "/0")
        python = {"PYTHONPATH": str(HERE), "PYTHONUNBUFFERED": "1", "PYTHONDONTWRITEBYTECODE": "1"}
        environment = os.environ | python | {"URL": url, "DONE": str(self.done), "MODULES": modules}
        run, enqueue = ([word.replace("{url}", url) for word in command] for command in commands)
        options = {"cwd": HERE, "env": environment, "stderr": subprocess.STDOUT}
        with open(self.log, "w") as log:
            # In a group of its own, with the processes that it starts for its jobs.
            self.process = subprocess.Popen(run, stdin=subprocess.DEVNULL, stdout=log, start_new_session=True, **options)
        with open(self.log.with_suffix(".enqueue"), "w") as log:
            self.enqueues = subprocess.Popen(enqueue, stdin=subprocess.PIPE, stdout=log, text=True, **options)
        self.enqueued = 0

    def enqueue(self, count):
        for _ in range(count):
            self.enqueued += 1
            # If it has ended, what is wrong shows later.
            with contextlib.suppress(BrokenPipeError):
                self.enqueues.stdin.write(f"{self.enqueued}\n")
                self.enqueues.stdin.flush()

    def missing(self):
        return set(range(1, self.enqueued + 1)) - {int(line) for line in self.done.read_text().split()}

    def ended(self):
        """Which of the two programs has ended, if one has."""
        for program, process in (("worker", self.process), ("program that enqueues", self.enqueues)):
            if process.poll() is not None:
                return f"the {program} has ended with {process.returncode}"
        return None

    def settled(self):
        return not self.missing() or self.ended()

    def end(self):
        with contextlib.suppress(BrokenPipeError):
            self.enqueues.stdin.close()
        stop(self.enqueues)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()


def settle(workers, when, wrong):
    """Waits until all jobs are done, or cannot be. Returns the workers that go on, and adds to `wrong` why the others do not."""
    with contextlib.suppress(TimeoutError):
        until(lambda: all(worker.settled() for worker in workers), "")
    for worker in workers:
        if worker.missing() or worker.ended():
            wrong[worker.name] = f"{worker.ended() or 'it stands still'} {when}"
    return [worker for worker in workers if worker.name not in wrong]


def restarts(server, workers):
    """What is wrong, by the name of the worker."""
    wrong = {}
    for number in range(1, RESTARTS + 1):
        for worker in workers:
            worker.enqueue(JOBS)
        workers = settle(workers, f"before restart {number}", wrong)
        # RQ writes more when a job is done, and does not survive the end of its server then, also with a direct connection.
        until(lambda: server.blocked() >= len(workers), "not all workers wait for jobs")
        server.stop()
        away = time.monotonic() + AWAY
        for worker in workers:
            worker.enqueue(JOBS)
        time.sleep(max(0, away - time.monotonic()))
        server.start()
        workers = settle(workers, f"after restart {number}", wrong)
    for worker in workers:
        worker.enqueue(JOBS)
    settle(workers, "at the end", wrong)
    return wrong


def main():
    server_program, gateway_program, clients, port, *names = sys.argv[1:]
    port, status, results = int(port), 0, []
    chosen = {name: commands for name, commands in programs(clients).items() if not names or name in names}
    for way, (flags, server_flags) in WAYS.items():
        with tempfile.TemporaryDirectory() as folder, contextlib.ExitStack() as ending:
            server = Server(server_program, port, folder, server_flags)
            ending.callback(server.stop)
            if flags is not None:
                listen, target = f"tcp:127.0.0.1:{port + 1}", f"valkey://127.0.0.1:{port}"
                with open(f"{folder}/gateway.log", "w") as log:
                    command = [gateway_program, "--listen", listen, "--server", target, *flags]
                    ending.callback(stop, subprocess.Popen(command, stdout=log, stderr=log))
                until(lambda: listens(port + 1), "the gateway does not listen")
            url = f"redis://127.0.0.1:{port + (flags is not None)}"
            workers = []
            for name, commands in chosen.items():
                workers.append(Worker(name, commands, url, folder, f"{clients}/node/node_modules"))
                ending.callback(workers[-1].end)
            wrong = restarts(server, workers)
            for worker in workers:
                results.append(f"{worker.name}, {way}: {wrong.get(worker.name, 'all jobs done')}")
                if worker.name in wrong:
                    for log in (worker.log, worker.log.with_suffix(".enqueue")):
                        print(f"{worker.name}, {log.suffix}:", *log.read_text().splitlines()[-20:], sep="\n    ")
            status = status or bool(wrong)
    print("\n".join(results))
    sys.exit(status)


main()
