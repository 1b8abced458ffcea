"""Programs that tests run in processes of their own."""

import subprocess
import sys


def run(code, *arguments):
    return run_program("-c", code, *arguments)


def run_program(*arguments):
    command = [sys.executable, "-X", "dev", "-W", "ignore::DeprecationWarning", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    return done.stdout.splitlines()
