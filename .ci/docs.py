#!/usr/bin/env python3
"""Checks what the README and docs/ promise.

usage: .ci/docs.py             rules below, quoted texts, counters, names, paths, lengths
       .ci/docs.py run DIR     also runs the `console` blocks, with the programs of DIR (target/debug)

Every block names its language. A comment line directly before it says how it is checked:
  console  no comment: it is run. `<!-- not run: REASON -->`, `<!-- run by FILE -->` (FILE contains the block's programs),
           `<!-- run as: COMMAND -->`: this is run instead of its one command, of which it is what matters.
           `<!-- exit N -->`: it is run, and its commands end with status N (`any`: it depends on the machine).
  python   `<!-- not run: REASON -->`, or no comment: `./dev python` runs it.
  rust     compiled by tests/scenarios; `<!-- given: CODE -->` is put before it.

In a console block, a line that begins with `$ ` (or `machine$ `) is a command; a `\\` at its end continues it, an `&` at its end leaves it
running until the page ends. The lines after it are its standard output, in which `...` stands for any text and a line `...`
for any lines. Ports and /run/ are replaced by free ones; 7000 to 7009 by ports in a row.
"""
import concurrent.futures
import contextlib
import pathlib
import re
import signal
import socket
import subprocess
import sys
import tempfile
import time

README_LINES = 120
CELL = 200  # characters that a reader sees in a cell of a table: longer ones are not read
CONTRIBUTORS = re.compile(r"spec/|CHANGELOG|ARCHITECTURE|CONTRIBUTING|RELEASING|SECURITY|\.github/")
LIMIT = 60  # seconds that a command, or the output of one that goes on, may take
PORT = re.compile(r"\b(6379|638\d|700\d|9121)\b")
COMMENT = re.compile(r"<!-- (not run|run as|given): (.*?) -->|<!-- (run by|exit) (.*?) -->", re.S)
CHECKED = {"console", "python", "rust"}
OTHERS = {"text", "toml", "yaml", "json", "ini", "conf", "mermaid", "dockerfile", "c", "go"}
# Where the counters are that docs/monitoring.md lists: in structs, or in the list that a macro makes one from.
COUNTERS = {
    "valkey-rdma-client/src/stats.rs": ["counters!", "ClusterCounters"],
    "valkey-rdma-client/src/cache.rs": ["CacheStats"],
    "valkey-rdma-proto/src/connection/counters.rs": ["Counters"],
    "valkey-rdma-transport/src/stats.rs": ["Stats", "DeviceCounters", "ListenerStats"],
    "valkey-rdma-server/src/monitor.rs": ["Refused"],
}


class Block:
    def __init__(self, page, line, language, comment, text):
        self.where, self.language, self.text = f"{page}:{line}", language, text
        found = COMMENT.fullmatch(comment.strip())
        self.kind, self.value = ((found[1] or found[3], found[2] or found[4]) if found else (None, ""))

    def commands(self):
        """Pairs of a command and the lines of output shown after it."""
        commands = []
        for line in self.text.replace("\\\n", "").splitlines():
            if prompt := re.match(r"[a-z]*\$ ", line):
                commands.append((line[prompt.end() :].split("  # ")[0].strip(), []))
            elif commands:
                commands[-1][1].append(line)
        return commands


def pages():
    return [pathlib.Path("README.md"), *sorted(pathlib.Path("docs").glob("*.md"))]


def blocks(page):
    found, lines = [], page.read_text().splitlines()
    number = 0
    while number < len(lines):
        if fence := re.fullmatch(r"```(\S*)", lines[number]):
            start, above = number, number - 1
            while lines[number := number + 1] != "```":
                pass
            comment = lines[above] if above >= 0 else ""
            while comment.endswith("-->") and "<!--" not in comment:
                comment = lines[above := above - 1] + "\n" + comment
            found.append(Block(page, start + 1, fence[1], comment, "\n".join(lines[start + 1 : number])))
        number += 1
    return found


def rules(block):
    """What is wrong with the marks of a block."""
    if block.language not in CHECKED | OTHERS:
        return f"a block without a known language ({block.language!r}): console, python, rust, or another of .ci/docs.py, such as text"
    if block.language == "rust" and block.kind not in (None, "given"):
        return "Rust blocks are compiled, always"
    if block.kind == "not run" and len(block.value) < 8:
        return "why is it not run?"
    if block.language == "console" and not block.commands():
        return "a console block without a command: use text"
    if block.kind == "run by":
        script = pathlib.Path(block.value)
        if not script.is_file():
            return f"{block.value} does not exist"
        programs = {re.match(r"[\w./-]*", command)[0].rsplit("/")[-1] for command, _ in block.commands()}
        if missing := [name for name in programs if name not in script.read_text()]:
            return f"{block.value} does not run {', '.join(missing)}"
    return None


def sources():
    """The sources' texts: literals that continue on the next line are joined."""
    listed = subprocess.check_output(["git", "ls-files", "valkey-rdma-*/src/*.rs"], text=True)
    texts = (pathlib.Path(name).read_text() for name in listed.split())
    return "\n".join(re.sub(r"\\\n\s*", "", text).replace('\\"', '"') for text in texts)


def quoted_texts(page):
    """The headings of docs/troubleshooting.md are texts of our programs."""
    return re.findall(r"^### `(.+)`$", page.read_text(), re.M)


def missing_texts():
    """Texts that no source contains. `...` stands for what a program puts in."""
    found, page = sources(), pathlib.Path("docs/troubleshooting.md")
    quoted = quoted_texts(page)
    if len(quoted) < 20:
        yield f"{page}: {len(quoted)} quoted texts; is their form another now?"
    for text in quoted:
        parts = [re.escape(part) for part in text.split("...") if part.strip()]
        if not re.search(r"[^\n]{0,80}?".join(parts), found):
            yield f'{page}: no source has "{text}"'


def missing_counters():
    page = pathlib.Path("docs/monitoring.md")
    text = page.read_text()
    for source, structs in COUNTERS.items():
        for struct in structs:
            code = pathlib.Path(source).read_text()
            head = struct if struct.endswith("!") else f"pub struct {struct}"
            body = re.search(rf"^{head} {{\n(.*?)^}}", code, re.S | re.M)
            fields = re.findall(r"^\s+(?:pub )?(\w+)(?:: |,$)", body[1], re.M) if body else []
            if not fields:
                yield f".ci/docs.py: {source} has no counters in {struct} any more"
            yield from (f"{page}: no {struct}.{field}" for field in fields if f"`{field}`" not in text)
    counters, latencies = pathlib.Path("valkey-rdma-gateway/src/observe/metrics.rs").read_text().split("const LATENCIES")
    name = re.compile(r'^\s+\("([a-z_]+)", "|^    \w+: "([a-z_]+)", "', re.M)
    metrics = [(one or other) + end for text, end in ((counters, "_total"), (latencies, "_seconds")) for one, other in name.findall(text)]
    plain = re.findall(r'metric\("([a-z_]+)"', pathlib.Path("valkey-rdma-gateway/src/observe/prometheus.rs").read_text())
    names = metrics + plain
    if len(names) < 21:
        yield f".ci/docs.py: only {len(names)} metrics of the gateway found"
    yield from (f"{page}: no metric {name}" for name in names if f"`{name}`" not in text)


def missing_bugs():
    """What the doctor says of versions of Valkey is in the page for operators, too."""
    page = pathlib.Path("docs/valkey-compatibility.md")
    bugs = re.findall(r'^        what: "(.*)",$', pathlib.Path("valkey-rdma-doctor/src/server/known_bugs.rs").read_text(), re.M)
    if len(bugs) < 10:
        yield f".ci/docs.py: only {len(bugs)} known bugs found"
    yield from (f'{page}: the doctor knows "{bug}"' for bug in bugs if bug not in page.read_text())


def broken_diagrams():
    """Mermaid takes `;` and `#` for the end of a line: GitHub then shows an error instead of the diagram."""
    listed = subprocess.check_output(["git", "ls-files", "*.md"], text=True).split()
    for page in map(pathlib.Path, listed):
        for diagram in re.findall(r"^```mermaid\n(.*?)^```", page.read_text(), re.S | re.M):
            yield from (f"{page}: Mermaid does not take: {line.strip()}" for line in diagram.splitlines() if re.search("[;#]", line))


def too_long():
    """The README, if it has more lines than a reader looks through, and cells of tables, in all pages but those for contributors."""
    readme = pathlib.Path("README.md").read_text().count("\n")
    if readme > README_LINES:
        yield f"README.md: {readme} lines, more than {README_LINES}"
    listed = subprocess.check_output(["git", "ls-files", "*.md"], text=True).split()
    for page in (pathlib.Path(name) for name in listed if not CONTRIBUTORS.match(name)):
        if page.is_symlink():
            continue
        for number, line in enumerate(page.read_text().splitlines(), 1):
            cells = re.split(r"(?<!\\)\|", re.sub(r"\]\([^)]*\)", "]", line)) if line.startswith("|") else []
            yield from (f"{page}:{number}: a cell of {len(cell.strip())} characters" for cell in cells if len(cell.strip()) > CELL)


def missing_functions():
    """Functions of ARCHITECTURE's table that are not defined in a file of their row."""
    for line in pathlib.Path("ARCHITECTURE.md").read_text().splitlines():
        row = line.split("|")
        files = re.findall(r"\]\(([^)]+\.rs)\)", line)
        if len(row) != 5 or not files:
            continue
        code = "\n".join(pathlib.Path(file).read_text() for file in files)
        for name in re.findall(r"`(?:\w+::)?(\w+)`", row[2]):
            if not re.search(rf"\bfn {name}\b", code):
                yield f"ARCHITECTURE.md: {', '.join(files)}: no function {name}"


def missing_paths():
    """Files and folders that CONTRIBUTING.md names: from the top, or from a folder around another path of the same paragraph."""
    page = pathlib.Path("CONTRIBUTING.md")
    for paragraph in page.read_text().split("\n\n"):
        names = re.findall(r"`((?:[\w-][\w.-]*/)+[\w.-]*|[\w-]+\.(?:rs|py|sh|md))`", paragraph)
        full = [path for path in map(pathlib.Path, names) if path.exists()]
        around = {pathlib.Path("."), *full, *(folder for path in full for folder in path.parents)}
        yield from (f"{page}: no {name}" for name in names if not any((folder / name).exists() for folder in around))


def missing_names():
    """`Type::name` in the pages, where Type has methods in a library, and no method, variant or field of that name."""
    listed = subprocess.check_output(["git", "ls-files", "valkey-rdma-*/src/*.rs"], text=True)
    items = {}
    for source in listed.split():
        for item in re.split(r"^(?=impl|pub struct|pub enum)", pathlib.Path(source).read_text(), flags=re.M)[1:]:
            head = re.match(r"pub \w+ (\w+)|impl(?:<[^{]*?>)? (?:[\w:<>]+ for )?(?:\w+::)*(\w+)", item)
            if head:
                items.setdefault(head[1] or head[2], []).append(item)
    for page in pages():
        for kind, name in re.findall(r"`(?:\w+::)*([A-Z]\w+)::(\w+)[`(]", page.read_text()):
            if kind in items and not any(re.search(rf"\bfn {name}\b|^\s+(?:pub )?{name}\b", item, re.M) for item in items[kind]):
                yield f"{page}: {kind} has no {name}"


class Session:
    """Runs the commands of one page."""

    def __init__(self, programs):
        self.folder = tempfile.TemporaryDirectory()
        self.path = f"{pathlib.Path(programs).resolve()}:/usr/local/bin:/usr/bin:/bin"
        self.ports, self.running = {}, []
        # Bound until the end, so that no other page or program takes a port before its server starts.
        self.reserved = contextlib.ExitStack()

    def port(self, shown):
        # A cluster listens on ports in a row: 7000 to 7009 stay one.
        row = [f"700{digit}" for digit in range(10)] if shown.startswith("700") else [shown]
        while shown not in self.ports:
            with contextlib.ExitStack() as all_free, contextlib.suppress(OSError, OverflowError):
                first = 0
                for number, name in enumerate(row):
                    free = all_free.enter_context(socket.socket())
                    free.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                    free.bind(("127.0.0.1", first and first + number))
                    first = first or free.getsockname()[1]
                self.ports |= {name: str(first + number) for number, name in enumerate(row)}
                self.reserved.push(all_free.pop_all())
        return self.ports[shown]

    def real(self, text):
        return PORT.sub(lambda found: self.port(found[1]), text).replace("/run/", f"{self.folder.name}/")

    def shown(self, text):
        for shown, port in self.ports.items():
            text = re.sub(rf"\b{port}\b", shown, text)
        return text.replace(f"{self.folder.name}/", "/run/")

    def run(self, block):
        """Runs a block; returns what went wrong."""
        status = block.value if block.kind == "exit" else "0"
        for command, output in block.commands():
            command = block.value if block.kind == "run as" else command
            stays = command.endswith("&")
            shell = ["bash", "-c", ("exec " if stays else "") + self.real(command.rstrip("& "))]
            log, errors = tempfile.TemporaryFile("w+"), tempfile.TemporaryFile("w+")
            environment = {"PATH": self.path, "HOME": self.folder.name, "LANG": "C.UTF-8"}
            process = subprocess.Popen(
                shell, cwd=self.folder.name, env=environment, stdin=subprocess.DEVNULL, stdout=log, stderr=errors
            )
            self.running.append(process)
            wanted, end = pattern(output), time.monotonic() + LIMIT
            while True:
                ended = process.poll() is not None
                seen = self.shown(read(log))
                if (stays or ended) and wanted.fullmatch(seen):
                    break
                if ended or time.monotonic() > end:
                    return f"{block.where}: `{command}` printed\n{seen}{read(errors)}"
                time.sleep(0.02)
            if not stays and status not in ("any", str(process.returncode)):
                return f"{block.where}: `{command}` ended with status {process.returncode}\n{seen}{read(errors)}"
        return None

    def end(self):
        for process in reversed(self.running):
            if process.poll() is None:
                process.send_signal(signal.SIGTERM)
        for process in self.running:
            process.wait()
        self.reserved.close()
        self.folder.cleanup()


def read(log):
    log.seek(0)
    return log.read()


def pattern(lines):
    """What the shown output allows. If none is shown, anything."""
    if not any(line.strip() for line in lines):
        return re.compile(r"(?s:.*)")
    allowed = ""
    for line in lines:
        if line.strip() == "...":
            allowed += r"(?:.*\n)*?"
        else:
            allowed += r"[^\n]*?".join(re.escape(part) for part in line.rstrip().split("...")) + r"[ \t]*\n"
    return re.compile(allowed)


def run_page(page_blocks, programs):
    """Runs the console blocks of a page; returns how many, and what went wrong."""
    runnable = [block for block in page_blocks if block.language == "console" and block.kind in (None, "exit", "run as")]
    session = Session(programs)
    try:
        return len(runnable), [reason for block in runnable if (reason := session.run(block))]
    finally:
        session.end()


def main():
    wrong, ran = [], 0
    every = {page: blocks(page) for page in pages()}
    for page in every:
        wrong += [f"{block.where}: {reason}" for block in every[page] if (reason := rules(block))]
    wrong += [*missing_texts(), *missing_counters(), *missing_bugs(), *missing_names(), *missing_functions(), *missing_paths()]
    wrong += [*broken_diagrams(), *too_long()]
    if sys.argv[1:2] == ["run"]:
        with concurrent.futures.ThreadPoolExecutor() as pool:
            for count, reasons in pool.map(lambda page: run_page(every[page], sys.argv[2]), every):
                ran += count
                wrong += reasons
        if ran < 8:
            wrong.append(f"only {ran} blocks were run")
    print("\n".join(wrong) or f"{len(every)} pages: all blocks marked, {ran} run, all quoted texts, counters, names and paths found")
    sys.exit(bool(wrong))


if __name__ == "__main__":
    main()
