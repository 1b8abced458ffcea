"""A server that a proof starts, kills and starts again."""

import os
import subprocess
import time

from valkey_rdma import Client


class Server:
    """``program`` is a valkey-server, or `mock`: the one that VALKEY_RDMA_MOCK names. `mock-rdma` is that on the emulated device."""

    def __init__(self, program, port):
        self.url = f"valkey://127.0.0.1:{port}"
        if program == "mock-rdma":
            self.url = f"emulated://127.0.0.1:{port}"
            self.command = [os.environ["VALKEY_RDMA_MOCK"], "--device", "emulated", "--port", port]
        elif program == "mock":
            self.command = [os.environ["VALKEY_RDMA_MOCK"], "--tcp-port", port]
        else:
            self.command = [program, "--port", port, "--save", "", "--protected-mode", "no"]
        self.start()

    def start(self):
        self.process = subprocess.Popen(self.command, stdout=subprocess.DEVNULL)
        end = time.monotonic() + 30
        while True:
            try:
                return Client(self.url).close()
            except ConnectionError:
                if time.monotonic() > end:
                    raise
                time.sleep(0.02)

    def stop(self):
        self.process.kill()
        self.process.wait()
