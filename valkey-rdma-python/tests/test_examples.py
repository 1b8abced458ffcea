"""The examples run."""

import json
import pathlib
import subprocess
import sys

import pytest

import valkey_rdma

EXAMPLES = pathlib.Path(__file__).parent.parent / "examples"


@pytest.mark.parametrize("arguments", [["tour.py"], ["kv_cache.py", "2"]], ids=["tour", "kv_cache"])
def test_examples_run(url, arguments):
    command = [sys.executable, EXAMPLES / arguments[0], url, *arguments[1:]]
    done = subprocess.run(command, capture_output=True, text=True, timeout=100)
    assert done.returncode == 0, done.stderr
    assert "equal: True" in done.stdout or "loaded 2/2 chunks" in done.stdout


def test_the_configuration_for_lmcache_names_a_class_that_takes_its_parameters():
    config = json.loads((EXAMPLES / "lmcache.json").read_text())
    assert config["module_path"] == valkey_rdma.__name__
    parameters = config["adapter_params"] | {"url": "valkey://127.0.0.1:1"}
    with pytest.raises(valkey_rdma.ConnectError):
        getattr(valkey_rdma, config["class_name"])(**parameters)
