#!/usr/bin/env python3
"""Writes python/valkey_rdma/_native.pyi: the types of the methods, which the Rust code states once, in `signature = (...)`.

usage: stubs.py RAW [--check]     --check writes nothing, and fails if the file is another

RAW is what `maturin generate-stubs` makes of the module that is installed: its types are quoted, and classes for threads and those for
asyncio share a base class, whose `Result[T]` is T in the former and `Future[T]` in the latter. Here each of both has all its methods.
"""

import ast
import copy
import inspect
import pathlib
import re
import sys

from valkey_rdma import _native

STUB = pathlib.Path(__file__).parent / "python/valkey_rdma/_native.pyi"
HEAD = '''\
"""The native part of `valkey_rdma`: its classes are exported by the package. Written by stubs.py: change the Rust code instead."""

from asyncio import Future
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import Any, Literal, Protocol, TypeAlias, final

from typing_extensions import Buffer, Self

Argument: TypeAlias = str | int | float | Buffer
Key: TypeAlias = str | Buffer
Kind: TypeAlias = Literal["channel", "pattern", "shard"]
Urls: TypeAlias = str | Iterable[str]
Supplied: TypeAlias = str | tuple[str] | tuple[str | None, str]

class _CredentialProvider(Protocol):
    """As redis-py and valkey-py have it."""

    def get_credentials(self) -> Supplied: ...

Provider: TypeAlias = Callable[[], Supplied] | _CredentialProvider

class _Array(Protocol):
    """An array of numpy's, whose stubs declare the buffer from Python 3.12 on only."""

    @property
    def __array_interface__(self) -> Any: ...

class _Tensor(Protocol):
    """A tensor of torch's, in this machine's memory."""

    def untyped_storage(self) -> Any: ...

Memory: TypeAlias = Buffer | _Array | _Tensor

__version__: str

'''
#: Of methods whose signature cannot be stated.
RESULTS = {"__iter__": "Self", "__next__": "dict[str, Any]", "__aiter__": "Self", "__anext__": "Awaitable[dict[str, Any]]"}
#: `__init__` has the arguments; `__repr__` is that of every object.
LEFT_OUT = {"__new__", "__repr__"}


class Types(ast.NodeTransformer):
    """Types without quotes, as a class for threads or one for asyncio has them."""

    def __init__(self, for_asyncio):
        self.for_asyncio = for_asyncio

    def visit_Subscript(self, node):
        self.generic_visit(node)
        if getattr(node.value, "id", None) != "Result":
            return node
        return ast.Subscript(ast.Name("Future"), node.slice) if self.for_asyncio else node.slice

    def visit_Name(self, node):
        made = node.id in ("Pipeline", "Subscriber") and self.for_asyncio
        return ast.Name(f"Async{node.id}") if made else node

    def of(self, annotation):
        quoted = isinstance(annotation, ast.Constant) and isinstance(annotation.value, str)
        return annotation and self.visit(ast.parse(annotation.value, mode="eval").body if quoted else annotation)


def method(function, of, types):
    function = copy.deepcopy(function)
    arguments = function.args
    for argument in [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs, arguments.vararg]:
        if argument:
            argument.annotation = types.of(argument.annotation)
    stated = RESULTS.get(function.name)
    function.returns = ast.parse(stated, mode="eval").body if stated else types.of(function.returns)
    # `self` is positional only, as in every method: unsaid, it is easier to read.
    arguments.args = arguments.posonlyargs + arguments.args
    arguments.posonlyargs = []
    # Defaults that Rust cannot write as Python does.
    for argument, default in zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True):
        if isinstance(default, ast.Constant) and default.value is ...:
            there = inspect.signature(of if function.name == "__init__" else getattr(of, function.name))
            default.value = there.parameters[argument.arg].default
    return function


def class_(node, bases):
    """The class, with the methods of its hidden base."""
    types = Types(node.name.startswith("Async"))
    hidden = bases.get(node.bases[0].id) if node.bases else None
    of = getattr(_native, node.name)
    inherited = hidden.body[1:] if hidden else []
    members = [item for item in inherited + node.body[1:] if isinstance(item, ast.FunctionDef) and item.name not in LEFT_OUT]
    members.sort(key=lambda item: (item.name not in ("__init__", "connect"), item.name))
    decorators = [decorator for decorator in node.decorator_list if decorator.id != "disjoint_base"]
    shown = [] if hidden else node.bases
    return ast.ClassDef(node.name, shown, [], [node.body[0], *(method(item, of, types) for item in members)], decorators, type_params=[])


def written(node):
    """As `ast.unparse` writes it, with docstrings and empty bodies in fewer lines."""
    text = ast.unparse(ast.fix_missing_locations(node))
    text = re.sub(r'"""\n\s+(.*?)\n\s+"""', r'"""\1"""', text, flags=re.S)
    text = re.sub(r":\n\s+\.\.\.$", ": ...", text, flags=re.M)
    # The clients of clusters are made of several URLs.
    return re.sub(r"(def connect\(urls: .*:)$", r"\1  # type: ignore[override]", text, flags=re.M)


def finished(raw):
    body = ast.parse(raw).body
    classes = [node for node in body if isinstance(node, ast.ClassDef)]
    bases = {node.name: node for node in classes if node.name.startswith("Base")}
    functions = [node for node in body if isinstance(node, ast.FunctionDef) and node.name != "__getattr__"]
    items = [method(function, _native, Types(False)) for function in functions]
    items += [class_(node, bases) for node in classes if node.name not in bases]
    return HEAD + "\n\n".join(written(item) for item in items) + "\n"


def main(raw, *options):
    text = finished(pathlib.Path(raw).read_text())
    if options != ("--check",):
        STUB.write_text(text)
    elif text != STUB.read_text():
        sys.exit(f"{STUB.name} is not what the Rust code says: run {__file__} {raw}")


if __name__ == "__main__":
    main(*sys.argv[1:])
