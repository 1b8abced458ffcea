#!/usr/bin/env python3
"""Checks that the relative links of all tracked documents lead to files that exist. Exit status 1 if one does not."""
import pathlib
import re
import subprocess
import sys

LINK = re.compile(r"\]\((?!https?:|mailto:)([^)#\s]+)(?:#[^)]*)?\)")
listed = subprocess.check_output(["git", "ls-files", "*.md"], text=True).split()
documents = [document for document in listed if not pathlib.Path(document).is_symlink()]
dead = [
    f"{document}: {link}"
    for document in documents
    for link in LINK.findall(pathlib.Path(document).read_text())
    if not (pathlib.Path(document).parent / link).exists()
]
print("\n".join(dead) or f"the links of {len(documents)} documents lead to files")
sys.exit(bool(dead))
