"""The type stubs name what is there."""

import ast
import inspect
import os
import pathlib
import subprocess
import sys

import pytest

import valkey_rdma
from valkey_rdma import _native

STUB = pathlib.Path(valkey_rdma.__file__).parent / "_native.pyi"
# What maturin says of the module that is installed.
RAW = os.environ.get("VALKEY_RDMA_STUB")


def members(kind):
    """What the class has, with what it shares with the other one of threads or asyncio."""
    shared = [base for base in kind.__bases__ if base.__name__.startswith("Base")]
    return {name: member for base in [*shared, kind] for name, member in vars(base).items()}


@pytest.mark.skipif(RAW is None, reason="`./dev python` asks maturin")
def test_the_stub_in_the_repository_is_what_the_code_says():
    stubs = pathlib.Path(__file__).parent.parent / "stubs.py"
    checked = subprocess.run([sys.executable, stubs, RAW, "--check"], capture_output=True, text=True)
    assert checked.returncode == 0, checked.stderr


def test_stubs_and_classes_agree_on_names_and_parameters():
    described = {}
    for node in ast.parse(STUB.read_text()).body:
        if isinstance(node, ast.ClassDef):
            described[node.name] = {item.name: item.args for item in node.body if isinstance(item, ast.FunctionDef)}
    classes = {name: kind for name, kind in vars(_native).items() if inspect.isclass(kind) and not name.startswith("Base")}
    assert {name for name in described if not name.startswith("_")} == classes.keys()
    for name, kind in classes.items():
        public = {method for method in members(kind) if not method.startswith("_")}
        assert public == {method for method in described[name] if not method.startswith("_")}, name
        for method in public:
            if inspect.isdatadescriptor(getattr(kind, method)):
                continue
            parameters = inspect.signature(getattr(kind, method)).parameters
            arguments = described[name][method]
            stub = [*arguments.posonlyargs, *arguments.args, arguments.vararg, *arguments.kwonlyargs]
            stub = [argument.arg for argument in stub if argument and argument.arg != "self"]
            assert stub == [parameter for parameter in parameters if parameter != "self"], f"{name}.{method}"


def test_every_class_and_method_has_a_docstring():
    for name in valkey_rdma.__all__:
        thing = getattr(valkey_rdma, name)
        if inspect.isclass(thing):
            assert thing.__doc__, name
            for method, function in members(thing).items():
                assert method.startswith("_") or not callable(function) or function.__doc__, f"{name}.{method}"
