"""Servers with TLS on this machine, for tls.py: real Valkeys, our mock, our gateway; and what only looks like one."""
import contextlib
import itertools
import socket
import threading

from certificates import Authority
from rows import Failed, kill, start

HOST = "127.0.0.1"
PORTS = itertools.count(7300)


class Relay:
    """Passes connections on to a port, and looks at what the server says first: whether it has resumed an earlier session of TLS 1.3."""

    def __init__(self, to):
        self.to, self.sockets, self.resumed = to, [], []
        self.listener = socket.create_server((HOST, 0))
        self.port = self.listener.getsockname()[1]
        threading.Thread(target=self.accept, daemon=True).start()

    def accept(self):
        with contextlib.suppress(OSError):
            while True:
                pair = self.listener.accept()[0], socket.create_connection((HOST, self.to))
                self.sockets += pair
                for one, other, looks in [(*pair, False), (*reversed(pair), True)]:
                    threading.Thread(target=self.copy, args=(one, other, looks), daemon=True).start()

    def copy(self, one, other, looks):
        with contextlib.suppress(OSError):
            if looks:
                head = one.recv(4096)
                # Not an alert, nor the end.
                if head[:1] == b"\x16":
                    self.resumed.append(has_psk(head))
                other.sendall(head)
            while data := one.recv(65536):
                other.sendall(data)
            other.shutdown(socket.SHUT_WR)

    def cut(self):
        """Ends all connections in the middle."""
        sockets, self.sockets = self.sockets, []
        for one in sockets:
            with contextlib.suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)

    def close(self):
        self.listener.close()
        self.cut()


def has_psk(record):
    """Whether the ServerHello of this record has the extension pre_shared_key (RFC 8446, sections 4.1.3 and 4.2.11)."""
    # Record and handshake headers, version and random; then the session's id, the cipher suite, the compression.
    at = 5 + 4 + 2 + 32
    at += 1 + record[at] + 2 + 1
    end = at + 2 + int.from_bytes(record[at : at + 2])
    at += 2
    while at < end:
        if int.from_bytes(record[at : at + 2]) == 41:
            return True
        at += 4 + int.from_bytes(record[at + 2 : at + 4])
    return False


class Servers:
    """Each is a context with its port, and is killed at its end. Their certificates are those of one issuer, made for this run."""

    def __init__(self, lab, programs, folder):
        self.valkeys, self.programs, self.folder = lab / "valkey/9.1", programs, folder
        self.issuer, self.stranger = Authority(folder, "issuer"), Authority(folder, "stranger")
        self.pair, self.client = self.issuer.issue(HOST, "localhost"), self.issuer.issue("client")

    @contextlib.contextmanager
    def running(self, words, signs, name):
        log = self.folder / f"{name}.log"
        process = start(words, log, signs)
        try:
            yield process
            if process.poll() not in [None, 0] and name.startswith("ours"):
                raise Failed(f"{words[0]} ended with {process.returncode}")
        finally:
            kill(process)
        for mark in ["panicked at", "ASSERTION FAILED", "BUG REPORT"]:
            if mark in log.read_text(errors="replace"):
                raise Failed(f"{words[0]}: {mark}")

    def valkey_tls(self, pair, port, clients="no"):
        """The settings of a real server, or of a Sentinel."""
        return {"port": "0", "tls-port": str(port), "bind": HOST, "tls-cert-file": pair.cert, "tls-key-file": pair.key,
                "tls-ca-cert-file": self.issuer.ca, "tls-auth-clients": clients, "tls-replication": "yes"}

    @contextlib.contextmanager
    def valkey(self, *flags, pair=None, port=None, clients="no"):
        """A real server with TLS alone."""
        port = port or next(PORTS)
        folder = self.folder / f"valkey-{port}"
        folder.mkdir(exist_ok=True)
        words = [self.valkeys / "valkey-server", "--save", "", "--dir", folder]
        for name, value in self.valkey_tls(pair or self.pair, port, clients).items():
            words += [f"--{name}", value]
        with self.running([*words, *flags], ["Ready to accept connections tls"], folder.name):
            yield port

    @contextlib.contextmanager
    def ours(self, kind, pair=None, clients="no"):
        """The mock, or the gateway before a real server with TLS: a TLS port, a plain port, and the process."""
        tls, plain, pair = next(PORTS), next(PORTS), pair or self.pair
        flags = ["--tls-cert", pair.cert, "--tls-key", pair.key, "--tls-client-auth", clients]
        flags += ["--tls-client-ca", self.issuer.ca] if clients != "no" else []
        with contextlib.ExitStack() as stack:
            if kind == "mock":
                words = [self.programs / "valkey-rdma-mock", "--tcp-port", str(plain), "--tls-port", str(tls), *flags]
                signs = ["ready valkey://", "ready valkeys://"]
            else:
                server = self.url(stack.enter_context(self.valkey()))
                words = [self.programs / "valkey-rdma-gateway", "--server", server, *flags]
                words += ["--listen", f"tls:{HOST}:{tls}", "--listen", f"tcp:{HOST}:{plain}"]
                signs = ["ready tcp", "ready tls"]
            yield tls, plain, stack.enter_context(self.running(words, signs, f"ours-{kind}-{tls}"))

    @contextlib.contextmanager
    def gateway_at(self, server):
        """The gateway's Unix socket, before this server."""
        socket_file = self.folder / "gateway.sock"
        words = [self.programs / "valkey-rdma-gateway", "--server", server, "--listen", f"unix:{socket_file}"]
        with self.running(words, ["ready unix"], "ours-gateway"):
            yield socket_file

    @contextlib.contextmanager
    def plain_valkey(self):
        port = next(PORTS)
        words = [self.valkeys / "valkey-server", "--port", str(port), "--bind", HOST, "--save", "", "--dir", self.folder]
        with self.running(words, ["Ready to accept connections"], f"valkey-{port}"):
            yield port

    @contextlib.contextmanager
    def silent(self, hangs_up=False):
        with socket.create_server((HOST, 0)) as listener:
            held = []

            def accept():
                with contextlib.suppress(OSError):
                    while True:
                        held.append(listener.accept()[0])
                        if hangs_up:
                            held.pop().close()

            threading.Thread(target=accept, daemon=True).start()
            yield listener.getsockname()[1]

    def url(self, port, **options):
        options = {"ca": self.issuer.ca, "timeout": "60s", **options}
        return f"valkeys://{HOST}:{port}?" + "&".join(f"{name}={value}" for name, value in options.items() if value)
