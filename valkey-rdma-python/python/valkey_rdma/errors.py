"""What can go wrong.

Every exception has ``fate``, the fact that matters before a retry: ``"not-sent"`` (the command did not run),
``"may-have-run"`` (no reply came, so it is unknown) or ``"answered"`` (the server answered).

A batch (``mget_into``, ``mset_from``) of several keys raises the first failure, after all keys were tried. Its ``outcomes`` then says what
became of each key, in order: what the call returns for it, or its exception. It is None if the batch ended as a whole, by its time limit or
because the client was closed: each key may or may not be done then.
"""

from typing import Any, Literal

Fate = Literal["not-sent", "may-have-run", "answered"]


class Error(Exception):
    """The base of all exceptions of this package."""

    fate: Fate = "not-sent"
    #: Of a batch that failed in part: the result or the exception of each key. None if it ended as a whole.
    outcomes: list[Any] | None = None


class UrlError(Error, ValueError):
    """The URL is invalid. Nothing was tried."""


class ConnectError(Error, ConnectionError):
    """No usable connection could be made. ``errno`` is the number of the operating system's error, if there was one."""

    #: The first word of the server's error, if it refused the login.
    code: str | None = None


class ConnectTimeoutError(ConnectError, TimeoutError):
    """No usable connection could be made in time: within the ``timeout=`` of the URL, the client library's limit, or the system's."""


class LostError(Error, ConnectionError):
    """The connection ended before the reply arrived. Commands that read are sent again instead, up to ``retries`` times."""


class DeadlineError(Error, TimeoutError):
    """There was no reply in time. Blocking commands, and calls that fill buffers or send from them, close their connection then. Other
    calls keep theirs, and a late reply is discarded. A batch has no ``outcomes``: any of its keys may be done."""


class ServerError(Error):
    """The server answered with an error. The connection stays usable."""

    #: The first word of the reply, such as ``"WRONGTYPE"``.
    code: str | None = None


class RefusedError(Error, ValueError):
    """The command cannot be sent on a shared connection, or its keys are on several nodes; the text names the alternative. It was
    not sent."""


class ClusterError(Error):
    """The cluster cannot run the command now: no node serves the slot of its key, or the nodes do not agree. It did not run. If only some
    parts of a command on several nodes failed, the others may have run, and ``fate`` is ``"may-have-run"``."""


class UnexpectedReplyError(Error):
    """The reply has another type than the call can return, or is a number of more digits than Python converts. The command ran."""


class SizeError(Error, ValueError):
    """A value does not fit into its buffer. The buffer is untouched."""


class ClosedError(Error, ConnectionError):
    """The client was closed, before the call or during it: see ``fate``."""


class ForkedError(Error, RuntimeError):
    """The client was made before a fork, or a signal handler forked during the call. Make another one in the child process."""
