#!/usr/bin/env python3
"""Counts the functions and files of this workspace that run for one GET of the client.

usage: tests/kit/walk.py [--root CHECKOUT] [--server-root CHECKOUT] [--target DIR] [--list] [emulated|tcp]

Builds an unoptimised program that connects to the mock and sends GETs one after the other, and runs it twice under
callgrind, once with COUNT and once with twice as many. A function belongs to the walk if the second run calls it at
least COUNT times more than the first. Start and end of the program do not count this way, and neither does what happens
only now and then, such as the renewal of a window. Closures and the bodies of async functions count as part of the
function they stand in; instances of one generic function count once. Allocations are calls of malloc, calloc and realloc.

Works on any commit: `--root` names its checkout. `--server-root` takes the mock from another one. Needs valgrind.
"""
import argparse
import collections
import os
import pathlib
import re
import subprocess
import sys
import tempfile

COUNT = 1000

PROGRAM = """
use valkey_rdma_client::Client;

#[tokio::main(flavor = "current_thread")]
async fn main() {
    let mut args = std::env::args().skip(1);
    let (url, count) = (args.next().unwrap(), args.next().unwrap().parse::<u64>().unwrap());
    let client = Client::connect(&*url).await.expect("connects");
    client.command(["SET", "walk", "value"]).await.expect("sets");
    for _ in 0..count {
        client.command(["GET", "walk"]).await.expect("answers");
    }
}
"""

MANIFEST = """
[package]
name = "walk"
version = "0.0.0"
edition = "2024"

[dependencies]
tokio = {{ version = "1", features = ["rt", "macros"] }}
valkey-rdma-client = {{ path = "{root}/valkey-rdma-client", default-features = false, features = [{features}] }}

[profile.dev]
opt-level = 0
debug = "line-tables-only"

[workspace]
"""


def run(*command, **options):
    # Without line tables, callgrind cannot tell which file a function stands in.
    env = os.environ | {"CARGO_PROFILE_DEV_DEBUG": "line-tables-only"}
    return subprocess.run([str(word) for word in command], check=True, env=env, **options)


def build_program(root, target):
    folder = target / "program"
    (folder / "src").mkdir(parents=True, exist_ok=True)
    has_feature = re.search(r"^emulated *=", (root / "valkey-rdma-client/Cargo.toml").read_text(), re.M)
    features = '"emulated"' if has_feature else ""
    (folder / "Cargo.toml").write_text(MANIFEST.format(root=root, features=features))
    (folder / "src/main.rs").write_text(PROGRAM)
    # The same versions of all dependencies as the workspace.
    (folder / "Cargo.lock").write_text((root / "Cargo.lock").read_text())
    run("cargo", "build", "--quiet", "--manifest-path", folder / "Cargo.toml", "--target-dir", target / "build")
    return target / "build/debug/walk"


def build_mock(root, target):
    package = "valkey-rdma-mock" if (root / "valkey-rdma-mock").exists() else "valkey-rdma-server"
    run("cargo", "build", "--quiet", "--manifest-path", root / "Cargo.toml", "--target-dir", target / "build",
        "--package", package, "--bin", "valkey-rdma-mock", "--no-default-features")
    return target / "build/debug/valkey-rdma-mock"


def calls(file):
    """Calls by function: {(source file, name): count}. The format is described in valgrind's manual, cl-format."""
    names, files = {}, {}
    source_of, count_of = {}, collections.Counter()
    source = callee = None
    def resolve(table, text):
        number, _, name = text.partition(" ")
        if name:
            table[number] = name
        return table.get(number, number)
    for line in file.read_text(errors="replace").splitlines():
        key, _, value = line.partition("=")
        if key == "fl":
            source = resolve(files, value)
        elif key in ("fi", "fe", "cfi", "cfl"):
            resolve(files, value)
        elif key == "fn":
            source_of.setdefault(resolve(names, value), source)
        elif key == "cfn":
            callee = resolve(names, value)
        elif key == "calls":
            count_of[callee] += int(value.split()[0])
    return collections.Counter({(source_of.get(name, "?"), name): count for name, count in count_of.items()})


def profile(program, url, count, folder):
    out = folder / f"callgrind.{count}"
    run("valgrind", "--quiet", "--tool=callgrind", "--dump-instr=no", f"--callgrind-out-file={out}", program, url, count)
    return calls(out)


def plain(name):
    """Without the hash, recursion level, closures and generic arguments."""
    name = re.sub(r"::h[0-9a-f]{16}|'\d+$", "", name)
    name = re.sub(r"::\{+closure[^}]*\}+(\[\w+\])?|::\{async[^}]*\}", "", name)
    before = None
    while before != name:
        before = name
        name = re.sub(r"::<[^<>]*>", "", name)
        name = re.sub(r"(?<=\w)<[^<>]*>", "", name)
    return re.sub(r"\[[0-9a-f]{16}\]", "", name)


def main():
    here = pathlib.Path(__file__).resolve().parents[2]
    parser = argparse.ArgumentParser(description="Counts the functions and files of the workspace that run for one GET.")
    parser.add_argument("link", nargs="?", choices=["emulated", "tcp"], default="emulated")
    parser.add_argument("--root", type=pathlib.Path, default=here)
    parser.add_argument("--server-root", type=pathlib.Path)
    parser.add_argument("--target", type=pathlib.Path, help="where to build; default: target/walk of the checkout")
    parser.add_argument("--list", action="store_true", help="print every function")
    args = parser.parse_args()
    root = args.root.resolve()
    target = (args.target or root / "target/walk").resolve()
    program, mock = build_program(root, target), build_mock((args.server_root or root).resolve(), target)
    port = ["--tcp-port", "0"] if args.link == "tcp" else ["--device", "emulated", "--port", "0"]
    server = subprocess.Popen([mock, *port], stdout=subprocess.PIPE, text=True)
    try:
        url = server.stdout.readline().removeprefix("ready ").strip()
        with tempfile.TemporaryDirectory() as folder:
            once, twice = (profile(program, url, count, pathlib.Path(folder)) for count in (COUNT, 2 * COUNT))
    finally:
        server.kill()
        server.wait()
    per_get = collections.Counter({name: (twice[name] - once[name]) / COUNT for name in twice})
    walk = {}
    for (source, name), count in per_get.items():
        crate = re.search(r"(valkey-rdma-\w+)/src/", source or "")
        if crate and count >= 1:
            short = source[crate.start():]
            walk.setdefault((short, plain(name)), 0)
            walk[short, plain(name)] += count
    allocations = sum(count for (_, name), count in per_get.items() if re.fullmatch(r"malloc|calloc|realloc", name))
    crates = collections.defaultdict(lambda: [set(), 0])
    for source, _ in walk:
        # The software device is not part of what a user of RDMA runs.
        crate = "the emulated device" if "/emulated" in source else source.split("/")[0]
        crates[crate][0].add(source)
        crates[crate][1] += 1
    if args.list:
        for (source, name), count in sorted(walk.items()):
            print(f"{count:6.1f}  {source}  {name}")
    for crate, (files, functions) in sorted(crates.items()):
        print(f"{crate:26} {len(files):3} files {functions:4} functions")
    device = crates.get("the emulated device", (set(), 0))
    files = {source for source, _ in walk}
    print(f"{'without the device':26} {len(files - device[0]):3} files {len(walk) - device[1]:4} functions")
    print(f"{'allocations per GET':26} {allocations:.1f}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
