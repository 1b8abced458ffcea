#!/usr/bin/env python3
"""Prints the tests that run against the server or cluster that a variable names, as `MODULE::TEST`, one a line.

usage: real_tests.py FOLDER     FOLDER has the modules of a test binary of the client: valkey-rdma-client/tests/client

The mark is in the test: it calls `target()`, which returns the real server if there is one, or another function of its file that does.
Or it is ignored elsewhere, because it needs a real server, also one that it starts itself. All others bring mocks of their own.
./dev test runs these, and a real server beside them proves nothing.
"""
import pathlib
import re
import sys

FUNCTION = re.compile(r"^(?P<attributes>(?:#\[.*\]\n)*)(?:pub(?:\(crate\))? )?(?:async )?fn (?P<name>\w+)", re.MULTILINE)


def functions(text):
    """Name, attributes and text of each function of a file."""
    found = list(FUNCTION.finditer(text))
    for one, following in zip(found, found[1:] + [None]):
        yield one["name"], one["attributes"], text[one.end() : following.start() if following else len(text)]


def uses_target(text):
    """The functions that call `target()`, or one that does."""
    bodies = {name: body for name, _, body in functions(text)}
    users = {"target"}
    while True:
        more = {name for name, body in bodies.items() if any(re.search(rf"\b{user}\(", body) for user in users)} | {"target"}
        if more == users:
            return users
        users = more


def main():
    count = 0
    for file in sorted(pathlib.Path(sys.argv[1]).glob("*.rs")):
        text = file.read_text()
        users = uses_target(text) if file.name != "target.rs" else set()
        for name, attributes, _ in functions(text):
            if "test" in attributes and (name in users or "#[ignore" in attributes):
                print(f"{file.stem}::{name}")
                count += 1
    if count == 0:
        sys.exit(f"no test in {sys.argv[1]} calls target()")


main()
