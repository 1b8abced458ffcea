#!/usr/bin/env python3
"""Compares the size of each room of the house with its budget in sizes.txt beside this file.

usage: sizes.py [--write]     exit status 1 if a room is over its budget; --write sets all budgets to the present sizes, rounded up

A room is a folder with a Cargo.toml, or one of OTHERS. Counted are the lines of its source files in git: those of the program, and
those with tests. Generated files do not count. A room that needs more lines gets them by a change of sizes.txt, and the commit says why.
"""
import pathlib
import re
import subprocess
import sys

TOP = pathlib.Path(__file__).resolve().parent.parent
BUDGETS = TOP / ".ci/sizes.txt"
OTHERS = [".ci", "tests/lab", "release", "benches"]
SOURCES = {".rs", ".py", ".pyi", ".sh", ".c", ".h", ".go", ".rb", ".js", ".java", ".php"}
GENERATED = {"generated.rs", "bindings.rs", "_native.pyi"}
HEAD = """# The budget of each room in lines: of the program, and with tests. `.ci/sizes.py` checks it.
# To raise one: change the line here, and give the reason in the commit.
"""


def is_test(path):
    name = path.name
    return "tests" in path.parts[1:] or name == "tests.rs" or name.endswith("_tests.rs") or name.startswith("test_")


def lines(path):
    """Lines of the program, and of all."""
    text = path.read_text(errors="replace").splitlines()
    if is_test(path.relative_to(TOP)):
        return 0, len(text)
    program, inside = 0, None
    for number, line in enumerate(text):
        if inside is not None:
            inside = None if line == inside else inside
            continue
        beginning = re.match(r"( *)mod \w+ \{$", line)
        if beginning and text[number - 1].strip() == "#[cfg(test)]":
            inside = beginning[1] + "}"
        else:
            program += 1
    return program, len(text)


def sizes():
    files = subprocess.check_output(["git", "ls-files"], cwd=TOP, text=True).splitlines()
    rooms = {str(pathlib.Path(file).parent) for file in files if file.endswith("/Cargo.toml")} | set(OTHERS)
    found = {}
    for file in map(pathlib.Path, files):
        if file.suffix not in SOURCES or file.name in GENERATED or not (TOP / file).exists():
            continue
        room = next((str(parent) for parent in file.parents if str(parent) in rooms), None)
        if room:
            program, whole = lines(TOP / file)
            before = found.get(room, (0, 0))
            found[room] = before[0] + program, before[1] + whole
    return found


def main():
    found = sizes()
    if sys.argv[1:] == ["--write"]:
        # Rounded up, so that not each line needs another budget.
        rows = [f"{room:<26} {-(-program // 50) * 50:>6} {-(-whole // 50) * 50:>6}\n" for room, (program, whole) in sorted(found.items())]
        BUDGETS.write_text(HEAD + "".join(rows))
        return 0
    rows = [line.split() for line in BUDGETS.read_text().splitlines() if line and not line.startswith("#")]
    budgets = {room: (int(program), int(whole)) for room, program, whole in rows}
    wrong = [f"{room}: not in {BUDGETS.name}" for room in found.keys() - budgets.keys()]
    wrong += [f"{room}: in {BUDGETS.name}, and no room" for room in budgets.keys() - found.keys()]
    for room, has in found.items():
        for what, size, budget in zip(("of the program", "with tests"), has, budgets.get(room, has)):
            if size > budget:
                wrong.append(f"{room}: {size} lines {what}, {budget} are allowed: shorten it, or raise its budget with the reason")
    print("\n".join(sorted(wrong)) or f"{len(found)} rooms, {sum(whole for _, whole in found.values())} lines: none is over its budget")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
