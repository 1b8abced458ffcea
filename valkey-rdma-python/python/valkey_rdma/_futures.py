"""Futures of operations that use a buffer."""

import asyncio


class BufferFuture(asyncio.Future):
    """When ``cancel`` returns, the operation does not use its buffers any more. A done callback would be too late: it runs in the
    loop's next turn, and ``await`` on a future that is cancelled already raises at once."""

    def cancel(self, msg=None):
        cancelled = super().cancel(msg)
        if cancelled:
            self._stop(self)
        return cancelled
