"""What the workers of test_frameworks.py run."""

import os


def where():
    """The process of the job, and what its connection is."""
    from rq import get_current_job

    connection = get_current_job().connection
    assert connection.ping()
    with_scheme = connection.connection_pool.make_connection()
    return os.getpid(), f"{type(with_scheme).__module__}.{type(with_scheme).__name__}", with_scheme.scheme
