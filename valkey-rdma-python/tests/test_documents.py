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


SERVER, NODES = "rdma://10.0.0.7:6379", ("rdma://10.0.0.1:6379", "rdma://10.0.0.2:6379")
OF_CLUSTERS = [block for block in BLOCKS if NODES[0] in block.values[0]]


@pytest.mark.parametrize("code", [block for block in BLOCKS if block not in OF_CLUSTERS])
def test_documents_run(url, code):
    assert SERVER in code, "nothing to connect with"
    exec(code.replace(SERVER, url), {})


@pytest.mark.parametrize("code", OF_CLUSTERS)
def test_documents_about_clusters_run(cluster_urls, code):
    exec(code.replace(NODES[0], cluster_urls[0]).replace(NODES[1], cluster_urls[-1]), {})


def test_there_are_blocks():
    assert BLOCKS and OF_CLUSTERS
