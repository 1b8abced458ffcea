"""Rows of a suite: each one runs, and prints whether it passed. What several suites of the lab do with programs is here."""
import shlex
import subprocess
import time

# In seconds. Only a hang exceeds it.
LIMIT = 300


class Failed(Exception):
    """Why a row failed."""


class Rows:
    """Runs rows. `again` is the command that runs one row again, whose name follows."""

    def __init__(self, again):
        self.again, self.passed, self.failed, self.begun = again, 0, [], time.monotonic()

    def report(self, name, action):
        """Runs one row and prints its verdict."""
        begun = time.monotonic()
        try:
            said, failure = action(), None
        except (Failed, OSError, subprocess.TimeoutExpired) as error:
            said, failure = "", error
        seconds = time.monotonic() - begun
        print(f"{'FAILED' if failure else 'passed'}  {name:<84} {seconds:6.1f} s  {said or ''}".rstrip(), flush=True)
        if failure is None:
            self.passed += 1
            return
        self.failed.append(name)
        print(f"  {failure}\n  again: {shlex.join([*map(str, self.again), name])}", flush=True)

    def end(self):
        """Prints what failed. Returns the exit status: no row at all is a failure, too."""
        print(f"{self.passed} passed, {len(self.failed)} failed in {time.monotonic() - self.begun:.0f} s")
        for name in self.failed:
            print(f"FAILED  {name}")
        return 1 if self.failed or not self.passed else 0


def run(words, limit=LIMIT, given=b""):
    """Runs a program to its end, and returns what it printed. A program that fails or hangs has failed with its last words."""
    command = shlex.join(map(str, words))
    try:
        done = subprocess.run(words, input=given, capture_output=True, timeout=limit, check=False)
    except subprocess.TimeoutExpired:
        raise Failed(f"killed after {limit} s: {command}") from None
    if done.returncode != 0:
        raise Failed(f"exit status {done.returncode}: {command}\n{tail(done.stdout + done.stderr)}")
    return done.stdout


def refused(command, says, status=1):
    """Runs a program of ours that must fail: with this exit status, and one line of error that says what failed."""
    done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, timeout=LIMIT, check=False)
    said = done.stderr.decode(errors="replace")
    errors = sum(line.startswith("error:") for line in said.splitlines())
    if done.returncode != status or errors != 1 or "panicked" in said or "stack backtrace" in said or says not in said:
        raise Failed(f"exit status {done.returncode}, not {status} with one line that says {says!r}\n{tail(done.stderr)}")


def tail(printed):
    lines = [line for line in printed.decode(errors="replace").replace("\r", "\n").split("\n") if line.strip()]
    return "\n".join(f"    {line[:200]}" for line in lines[-12:])


def start(words, log, signs, folder=None):
    """Starts a server, and waits until its log has these signs."""
    with log.open("wb") as file:
        process = subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=file, stderr=file, cwd=folder)
    end = time.monotonic() + LIMIT
    while not all(sign in log.read_text(errors="replace") for sign in signs):
        if process.poll() is not None or time.monotonic() > end:
            kill(process)
            raise Failed(f"{words[0]} is not ready\n{tail(log.read_bytes())}")
        time.sleep(0.05)
    return process


def kill(process):
    process.kill()
    process.wait()
