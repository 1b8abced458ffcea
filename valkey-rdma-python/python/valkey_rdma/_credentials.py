"""The thread that calls a program's provider of credentials."""

import socket
import threading
from collections.abc import Callable
from typing import Any


def start(descriptor: int, requests: Any, provider: Callable[[], Any]) -> None:
    """Starts a thread that calls the provider for each byte that arrives, until the client has ended."""
    wakes = socket.socket(fileno=descriptor)
    try:
        threading.Thread(target=serve, args=(wakes, requests, provider), name="valkey-rdma-credentials", daemon=True).start()
    except BaseException:
        wakes.close()
        raise


def serve(wakes: socket.socket, requests: Any, provider: Callable[[], Any]) -> None:
    with wakes:
        # It waits in Python's own code, which ends well while Python exits.
        while wakes.recv(1):
            requests.answer(provider)
