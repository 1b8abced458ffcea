"""The Python code in the READMEs and in docs/ runs."""

import pathlib
import re

import pytest
from certificates import Authority
from conftest import Mock

ROOT = pathlib.Path(__file__).parent.parent.parent
BLOCK = re.compile(r"^(<!-- not run: .*-->\n)?```python\n(.*?)^```$", re.S | re.M)
BLOCKS = [
    pytest.param(code, id=f"{page.parent.name}-{page.name}-{number}")
    for page in [ROOT / "README.md", ROOT / "valkey-rdma-python/README.md", *sorted((ROOT / "docs").glob("*.md"))]
    for number, (not_run, code) in enumerate(BLOCK.findall(page.read_text()))
    if not not_run
]


SERVER, NODES = "rdma://10.0.0.7:6379", ("rdma://10.0.0.1:6379", "rdma://10.0.0.2:6379")
ENCRYPTED, ISSUER = "rdmas://10.0.0.7:6379", "/etc/valkey/ca.pem"
OF_CLUSTERS = [block for block in BLOCKS if NODES[0] in block.values[0]]
OF_TLS = [block for block in BLOCKS if ENCRYPTED in block.values[0]]


@pytest.mark.parametrize("code", [block for block in BLOCKS if block not in OF_CLUSTERS + OF_TLS])
def test_documents_run(url, code):
    assert SERVER in code, "nothing to connect with"
    exec(code.replace(SERVER, url), {})


@pytest.mark.parametrize("code", OF_CLUSTERS)
def test_documents_about_clusters_run(cluster_urls, code):
    exec(code.replace(NODES[0], cluster_urls[0]).replace(NODES[1], cluster_urls[-1]), {})


@pytest.mark.parametrize("code", OF_TLS)
def test_documents_about_tls_run(tmp_path, code):
    authority = Authority(tmp_path, "issuer")
    mock = Mock(authority.issue("server", "IP:127.0.0.1").flags)
    try:
        exec(code.replace(ENCRYPTED, mock.emulated).replace(ISSUER, str(authority.ca)), {})
    finally:
        mock.stop()


def test_there_are_blocks():
    assert BLOCKS and OF_CLUSTERS and OF_TLS
