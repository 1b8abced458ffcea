#!/usr/bin/env python3
"""Writes generated.rs from Valkey's own descriptions of its commands (src/commands/*.json in its source archive).

usage: generate.py SRC_COMMANDS VERSION > generated.rs     for example: generate.py valkey-9.1.2/src/commands 9.1.2
"""
import json
import pathlib
import sys

# Key positions that the descriptions call unknown or variable. key_positions.rs has a function for each.
BY_FUNCTION = {"SORT": "Sort", "MIGRATE": "Migrate", "GEORADIUS": "Radius", "GEORADIUSBYMEMBER": "Radius"}
REQUESTS = {"ALL_NODES": "AllNodes", "ALL_SHARDS": "AllShards", "MULTI_SHARD": "MultiShard", "SPECIAL": "Special"}
RESPONSES = {
    "AGG_SUM": "Sum",
    "AGG_MIN": "Min",
    "AGG_MAX": "Max",
    "AGG_LOGICAL_AND": "And",
    "AGG_LOGICAL_OR": "Or",
    "ALL_SUCCEEDED": "AllSucceeded",
    "ONE_SUCCEEDED": "OneSucceeded",
    "SPECIAL": "Special",
}


def key_spec(spec):
    begin, find = spec["begin_search"], spec["find_keys"]
    if "unknown" in begin or "unknown" in find:
        return None
    if "index" in begin:
        at = f"Index({begin['index']['pos']})"
    else:
        keyword = begin["keyword"]
        if keyword["startfrom"] < 0:
            return None
        at = f"keyword(\"{keyword['keyword']}\", {keyword['startfrom']})"
    if "range" in find:
        keys = "Range {{ last: {lastkey}, step: {step}, limit: {limit} }}".format(**find["range"])
    else:
        keys = "Counted {{ count: {keynumidx}, first: {firstkey}, step: {step} }}".format(**find["keynum"])
    keys = {"Range { last: 0, step: 1, limit: 0 }": "ONE"}.get(keys, keys)
    return f"key({at}, {keys})"


def policy(tips, what, names):
    found = [tip.split(":")[1] for tip in tips if tip.startswith(what + ":")]
    return names[found[0]] if found else "Default"


def row(name, command, indent):
    flags = command.get("command_flags", [])
    access = "Read" if "READONLY" in flags else "Write" if "WRITE" in flags else "Neither"
    specs = [key_spec(spec) for spec in command.get("key_specs", [])]
    if name in BY_FUNCTION:
        keys = f"KeyRule::{BY_FUNCTION[name]}"
    else:
        known = ", ".join(spec for spec in specs if spec)
        keys = SHORT.get(known, f"keys(&[{known}])")
    tips = command.get("command_tips", [])
    request = policy(tips, "REQUEST_POLICY", REQUESTS)
    response = policy(tips, "RESPONSE_POLICY", RESPONSES)
    head = f'{indent}row("{name}", {access}, {keys}, Request::{request}, Response::{response}, '
    children = command["children"]
    if not children:
        return head + "&[]),"
    rows = [row(child, children[child], indent + "    ") for child in sorted(children)]
    return "\n".join([head + "&[", *rows, indent + "]),"])


SHORT = {
    "": "NO_KEYS",
    "key(Index(1), ONE)": "FIRST",
    "key(Index(2), ONE)": "SECOND",
    "key(Index(1), Range { last: -1, step: 1, limit: 0 })": "ALL",
}


def main():
    folder, version = pathlib.Path(sys.argv[1]), sys.argv[2]
    described = {}
    for file in sorted(folder.glob("*.json")):
        for name, command in json.loads(file.read_text()).items():
            container = command.get("container")
            described[(container, name) if container else (name,)] = dict(command, children={})
    for path, command in described.items():
        if len(path) == 2:
            described[path[:1]]["children"][path[1]] = command
    rows = [row(path[0], command, "    ") for path, command in sorted(described.items()) if len(path) == 1]
    print(f"//! The commands of Valkey {version}: {len(described)} with their subcommands. Written by generate.py; do not edit.")
    names = [path[0] for path in sorted(described) if len(path) == 1]
    print(HEAD.replace("COUNT", str(len(rows))) + "\n".join(rows) + "\n];\n")
    print("/// The names in the same order, for the index that is made while compiling.")
    print(f"pub(super) const NAMES: [&str; {len(names)}] = [")
    print("\n".join(f'    "{name}",' for name in names) + "\n];")


HEAD = """
use super::description::Access::{Neither, Read, Write};
use super::description::Begin::Index;
use super::description::Find::{Counted, Range};
use super::description::{Description, Find, KeyRule, Request, Response, key, keys, keyword, row};

const ONE: Find = Range { last: 0, step: 1, limit: 0 };
const NO_KEYS: KeyRule<'static> = keys(&[]);
const FIRST: KeyRule<'static> = KeyRule::First;
const SECOND: KeyRule<'static> = keys(&[key(Index(2), ONE)]);
const ALL: KeyRule<'static> = keys(&[key(Index(1), Range { last: -1, step: 1, limit: 0 })]);

#[rustfmt::skip]
pub(super) static COMMANDS: [Description<'static>; COUNT] = [
"""

main()
