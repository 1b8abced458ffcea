"""RQ over RDMA: a worker whose children connect as it does.

    rq worker --connection-class valkey_rdma.redis_py.Redis --worker-class valkey_rdma.rq.SpawnWorker --url rdma://10.0.0.7:6379
"""

import copy
import os
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
        described.connection = SimpleNamespace(
            connection_pool=SimpleNamespace(
                connection_class=self.connection.connection_pool.connection_class,
                connection_kwargs={"connection_pool": _PoolInChild()},
            )
        )
        # RQ passes this process's environment on. Unlike the child's program, only the same user can read it: it has the password.
        os.environ[_POOL] = _described(self.connection)
        try:
            super(SpawnWorker, described).fork_work_horse(job, queue)
        finally:
            del os.environ[_POOL]
        self._horse_pid = described._horse_pid


# The variable of the environment with the pool's description.
_POOL = "VALKEY_RDMA_RQ_POOL"


class _PoolInChild:
    """Written into the child's program as an expression that makes the pool."""

    def __repr__(self) -> str:
        return f"__import__({__name__!r}, fromlist=['pool']).pool()"


def _described(connection: Any) -> str:
    arguments = rq.connections.get_connection_kwargs(connection)
    # As RQ's own does: the child has the defaults.
    arguments = {name: value for name, value in arguments.items() if name not in ("retry", "driver_info")}
    return pickle.dumps((connection.connection_pool.connection_class, arguments)).hex()


def pool() -> "redis.ConnectionPool":
    """The pool that a worker has described to its child, this process. Jobs do not find the description."""
    connection_class, arguments = pickle.loads(bytes.fromhex(os.environ.pop(_POOL)))
    return redis.ConnectionPool(connection_class=connection_class, **arguments)
