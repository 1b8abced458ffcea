"""RQ over RDMA: a worker whose children connect as it does.

    rq worker --connection-class valkey_rdma.redis_py.Redis --worker-class valkey_rdma.rq.SpawnWorker --url rdma://10.0.0.7:6379
"""

import copy
import pickle
from types import SimpleNamespace
from typing import Any

import redis
import rq.connections
import rq.worker

if not hasattr(rq.connections, "get_connection_kwargs"):
    raise ImportError("valkey_rdma.rq needs RQ 3: pip install 'rq>=3'")

__all__ = ["SpawnWorker"]


class SpawnWorker(rq.worker.SpawnWorker):
    """RQ's ``SpawnWorker``, for connections of any class. RQ's own gives its children ``redis.Redis(**arguments)``: that is a connection
    over TCP, or an error for arguments such as ``scheme``."""

    def fork_work_horse(self, job: Any, queue: Any) -> None:
        # Other threads use this worker and its connection meanwhile: a copy of it is what RQ describes to the child.
        described: Any = copy.copy(self)
        pool = _PoolInChild(self.connection)
        described.connection = SimpleNamespace(
            connection_pool=SimpleNamespace(
                connection_class=pool.connection_class, connection_kwargs={"connection_pool": pool}
            )
        )
        super(SpawnWorker, described).fork_work_horse(job, queue)
        self._horse_pid = described._horse_pid


class _PoolInChild:
    """Written into the child's program as an expression that makes a pool like that of ``connection``."""

    def __init__(self, connection: Any) -> None:
        self.connection_class = connection.connection_pool.connection_class
        arguments = rq.connections.get_connection_kwargs(connection)
        # As RQ's own does: the child has the defaults.
        self.arguments = {name: value for name, value in arguments.items() if name not in ("retry", "driver_info")}

    def __repr__(self) -> str:
        pickled = pickle.dumps((self.connection_class, self.arguments))
        return f"__import__({__name__!r}, fromlist=['pool']).pool({pickled!r})"


def pool(pickled: bytes) -> "redis.ConnectionPool":
    """The pool that a worker has described to its child."""
    connection_class, arguments = pickle.loads(pickled)
    return redis.ConnectionPool(connection_class=connection_class, **arguments)
