"""The Python code in the README and in docs/ runs."""

import pathlib
import re

import pytest

ROOT = pathlib.Path(__file__).parent.parent.parent
BLOCK = re.compile(r"^(<!-- not run: .*-->\n)?```python\n(.*?)^```$", re.S | re.M)
BLOCKS = [
    pytest.param(code, id=f"{page.name}-{number}")
    for page in [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
    for number, (not_run, code) in enumerate(BLOCK.findall(page.read_text()))
    if not not_run
]


@pytest.mark.parametrize("code", BLOCKS)
def test_documents_run(url, code):
    assert "rdma://10.0.0.7:6379" in code, "nothing to connect with"
    exec(code.replace("rdma://10.0.0.7:6379", url), {})


def test_there_are_blocks():
    assert BLOCKS
