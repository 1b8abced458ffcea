#!/usr/bin/env python3
"""Imports between the files of a crate, tests apart: prints files, rooms (top-level modules), floors and circles.

usage: circles.py [-v] SRC...     exit status 1 if a crate has a circle; -v names the files of each circle and the floors

Reads the text only. A child module may use its parent, and a parent its children: neither counts as a circle.
"""
import pathlib
import re
import sys

NOT_MODULES = {"tests", "bin", "main"}
# An item for tests, as rustfmt writes it: to the first line that is as far to the right as the item, and ends it.
TEST = re.compile(r"^( *)#\[cfg\((?:all\()?test[,)].*\n(?:.*\n)*?\1(?! ).*[;,}]$", re.M)


def modules(src):
    """Module path -> file, for every file of the crate but its tests and programs."""
    found = {}
    for file in src.rglob("*.rs"):
        path = file.relative_to(src).with_suffix("").parts
        if NOT_MODULES & set(path) or path == ("lib",):
            continue
        found[path[:-1] if path[-1] == "mod" else path] = file
    return found


def expand(use):
    """a::{b, c::{d, e}} -> a::b, a::c::d, a::c::e."""
    nested = re.match(r"([\w:]*)\{(.*)\}$", use, re.S)
    if not nested:
        return [use.split(" as ")[0].strip()]
    parts, depth, part = [], 0, ""
    for char in nested[2]:
        depth += (char == "{") - (char == "}")
        if char == "," and depth == 0:
            parts.append(part)
            part = ""
        else:
            part += char
    parts.append(part)
    return [path for part in parts if part.strip() for path in expand(nested[1] + part.strip())]


def paths(text):
    """Every path of the crate that the text names."""
    text = TEST.sub("", re.sub(r" *//.*", "", text))
    for use in re.findall(r"\buse\s+((?:crate|super|self)[^;]*);", text):
        yield from expand(re.sub(r"\s+", " ", use).replace(" ", "") if "{" in use else use)
    yield from re.findall(r"\b((?:crate|super)(?:::\w+)+)", text)


def resolve(module, path):
    """The absolute path, from the crate's root."""
    base, parts = module, path.split("::")
    if parts[0] == "crate":
        base, parts = (), parts[1:]
    while parts and parts[0] in ("super", "self"):
        if parts[0] == "super":
            base = base[:-1]
        parts = parts[1:]
    return tuple(base) + tuple(parts)


def imports(found):
    graph = {module: set() for module in found}
    for module, file in found.items():
        for path in paths(file.read_text()):
            full = resolve(module, path)
            target = next((full[:n] for n in range(len(full), 0, -1) if full[:n] in found), None)
            if target and target != module and module[: len(target)] != target:
                graph[module].add(target)
    return graph


def components(graph):
    """Strongly connected components, callees first (Tarjan)."""
    index, low, stack, on_stack, result = {}, {}, [], set(), []

    def visit(node):
        index[node] = low[node] = len(index)
        stack.append(node)
        on_stack.add(node)
        for target in graph[node]:
            if target not in index:
                visit(target)
                low[node] = min(low[node], low[target])
            elif target in on_stack:
                low[node] = min(low[node], index[target])
        if low[node] == index[node]:
            at = stack.index(node)
            result.append(stack[at:])
            on_stack.difference_update(stack[at:])
            del stack[at:]

    for node in graph:
        if node not in index:
            visit(node)
    return result


def floors(graph):
    """Room -> floor: 1 imports nothing, the others stand one above the highest that they import."""
    rooms = {}
    for module, targets in graph.items():
        rooms.setdefault(module[0], set()).update(target[0] for target in targets if target[0] != module[0])
    rooms = {room: targets & set(rooms) for room, targets in rooms.items()}
    floor = {}
    for component in components(rooms):
        below = {target for room in component for target in rooms[room]} - set(component)
        for room in component:
            floor[room] = 1 + max((floor[target] for target in below), default=0)
    return floor


def main(arguments):
    verbose = "-v" in arguments
    sys.setrecursionlimit(10_000)
    total = 0
    for src in (argument for argument in arguments if argument != "-v"):
        graph = imports(modules(pathlib.Path(src)))
        floor = floors(graph)
        circles = [component for component in components(graph) if len(component) > 1]
        total += len(circles)
        print(f"{src}: {len(graph)} files, {len(floor)} rooms, {max(floor.values(), default=0)} floors, {len(circles)} circles")
        for circle in circles:
            print("    circle:", ", ".join("::".join(module) for module in circle))
        if verbose:
            for n in sorted(set(floor.values())):
                print(f"    floor {n}:", ", ".join(sorted(room for room in floor if floor[room] == n)))
    return total > 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
