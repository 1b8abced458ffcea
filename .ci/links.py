#!/usr/bin/env python3
"""Checks that the relative links of all tracked documents lead to files and headings that exist. Exit status 1 if one does not."""
import pathlib
import re
import subprocess
import sys

LINK = re.compile(r"\]\((?!https?:|mailto:)([^)#\s]*)(?:#([^)\s]+))?\)")


def headings(document):
    """The anchors that GitHub gives to a document's headings."""
    text = re.sub(r"^```.*?^```", "", document.read_text(), flags=re.S | re.M)
    found = re.findall(r"^#+ (.*)$", text, re.M)
    return {re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in found}


def is_dead(document, link, anchor):
    target = document.parent / link if link else document
    return not target.exists() or (anchor and target.suffix == ".md" and anchor not in headings(target))


listed = subprocess.check_output(["git", "ls-files", "*.md"], text=True).split()
documents = [pathlib.Path(document) for document in listed if not pathlib.Path(document).is_symlink()]
dead = [
    f"{document}: {link}#{anchor}"
    for document in documents
    for link, anchor in LINK.findall(document.read_text())
    if (link or anchor) and is_dead(document, link, anchor)
]
print("\n".join(dead) or f"the links of {len(documents)} documents lead to files and headings")
sys.exit(bool(dead))
