"""Subclasses, whose arguments are their own."""

import select

import pytest

from valkey_rdma import Client, ClusterClient, LMCacheClient


class Prefixed:
    """Takes other arguments than the class that it is mixed with."""

    def __init__(self, prefix, *, server):
        super().__init__(server, key_prefix=prefix) if isinstance(self, LMCacheClient) else super().__init__(server)
        self.prefix = prefix

    def get(self, name):
        return self.command("GET", self.prefix + name)


class PrefixedClient(Prefixed, Client):
    pass


class PrefixedCluster(Prefixed, ClusterClient):
    pass


class PrefixedConnector(Prefixed, LMCacheClient):
    pass


def test_a_client(url, key):
    with PrefixedClient(key, server=url) as client:
        client.set_from(key + "k", b"value")
        assert client.get("k") == b"value"


def test_a_client_of_a_cluster(cluster_urls, key):
    with PrefixedCluster(key, server=cluster_urls) as client:
        client.set_from(key + "k", b"value")
        assert client.get("k") == b"value"


def test_a_connector(url, key):
    connector = PrefixedConnector(key, server=url)
    connector.submit_batch_set(["k"], [b"value"])
    assert select.select([connector.event_fd()], [], [], 30)[0]
    connector.close()
    with PrefixedClient(key, server=url) as client:
        assert client.get("k") == b"value"


@pytest.mark.parametrize("kind", [Client, ClusterClient, LMCacheClient])
def test_one_that_has_not_connected(kind):
    class Forgetful(kind):
        def __init__(self):
            pass

    forgetful = Forgetful()
    with pytest.raises(RuntimeError, match="not connected"):
        forgetful.info()
    repr(forgetful)
    forgetful.close()


def test_a_client_connects_once(url, key):
    with Client(url) as client:
        with pytest.raises(RuntimeError, match="connected already"):
            client.__init__(url)
        assert client.command("EXISTS", key) == 0
    with pytest.raises(TypeError, match="url"):
        Client()
