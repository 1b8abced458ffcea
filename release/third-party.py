#!/usr/bin/env python3
"""third-party.py PACKAGE...: prints the licence texts of all crates that are linked into these packages' programs."""

import json
import subprocess
import sys
from pathlib import Path


def cargo(*arguments):
    return subprocess.run(["cargo", *arguments], check=True, capture_output=True, text=True).stdout


def main():
    packages = [option for package in sys.argv[1:] for option in ("--package", package)]
    tree = cargo("tree", "--locked", "--edges", "normal,no-proc-macro", "--prefix", "none", "--format", "{p}", *packages)
    linked = {tuple(line.split()[:2]) for line in tree.splitlines() if line}
    metadata = json.loads(cargo("metadata", "--locked", "--format-version", "1"))
    for crate in sorted(metadata["packages"], key=lambda crate: (crate["name"], crate["version"])):
        if crate["source"] is None or (crate["name"], "v" + crate["version"]) not in linked:
            continue
        folder = Path(crate["manifest_path"]).parent
        texts = sorted(
            path for path in folder.iterdir()
            if path.is_file() and path.name.upper().startswith(("LICENSE", "LICENCE", "COPYING", "NOTICE", "UNLICENSE"))
        )
        print(f"{'=' * 100}\n{crate['name']} {crate['version']}: {crate['license']}\n{crate['repository'] or ''}\n")
        if not texts:
            print("Its package has no licence file.\n")
        for path in texts:
            print(path.read_text(encoding="utf-8", errors="replace").strip(), "\n")


main()
