#!/usr/bin/env python3
"""TLS with real Valkeys and with OpenSSL, on the host over TCP: our programs with their servers, their programs with ours, each reply
verified; and what is refused, with its text.

usage: tests/lab/tls.py LAB PROGRAMS [--list] [--only TEXT]

LAB is the lab's folder, prepared; PROGRAMS that of our built programs. Exit status: 0 if every row passed, 1 if one failed, or if there
was none. Certificates are made with openssl, for this run.
"""
import argparse
import contextlib
import csv
import json
import pathlib
import signal
import socket
import ssl
import subprocess
import sys
import tempfile
import time

from rows import Failed, Rows, kill, refused, run
from tls_servers import HOST, PORTS, Relay, Servers

MIB = 1 << 20
# What may become of commands when the server ends their connection.
LOST = {"connection lost", "server error LOADING", "server error NOUPSTREAM"}
# What one connection of a client of OpenSSL is asked.
PINGS = b"SET key value\r\nGET key\r\nPING\r\n"
ANSWERS = b"+OK\r\n$5\r\nvalue\r\n+PONG\r\n"


def ask(port, file=None):
    """A plain TCP connection's or a TLS connection's answers."""
    with contextlib.closing(file or socket.create_connection((HOST, port), 20)) as connection:
        connection.sendall(PINGS)
        got = b""
        while len(got) < len(ANSWERS) and (more := connection.recv(1000)):
            got += more
    return got


def at(server):
    return ["--url", server] if isinstance(server, str) else ["-s", server]


class Suite(Servers):
    """The rows, as methods. A row starts the servers that it needs."""

    # Clients.

    def load(self, server, *flags, requests=300):
        """Our load tool's SET and GET, each byte verified, at a URL or a Unix socket."""
        words = [self.programs / "valkey-rdma-benchmark", *at(server), "--csv", "--verify", "full", "-t", "set,get"]
        report = list(csv.DictReader(run([*words, "-n", str(requests), *flags]).decode().splitlines()))
        got = [(line["test"], line["replies"], line["errors"]) for line in report]
        if got != [("SET", str(requests), "0"), ("GET", str(requests), "0")]:
            raise Failed(f"the load tool reports {got}")

    @contextlib.contextmanager
    def load_during(self, server, seconds):
        """The load tool beside what happens to the server. In the end all replies were right, and only lost connections cost some."""
        report = self.folder / "report"
        words = [self.programs / "valkey-rdma-benchmark", *at(server), "--verify", "full", "--ratio", "1:1", "-r", "100"]
        words += ["--populate", "all", "--duration", str(seconds), "-c", "2", "--tasks-per-connection", "10", "--json", report]
        log = (self.folder / "load.log").open("w+b")
        process = subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        try:
            time.sleep(seconds / 3)
            yield
            process.wait(60)
        finally:
            kill(process)
        for test in json.loads(report.read_text())["tests"]:
            if not set(test["errors"]) <= LOST or not test["connections_lost"]:
                raise Failed(f"{test['errors']}, {test['connections_lost']} connections lost, {test['first_errors']}")

    def cli(self, port, *words, given=b"", ca=None):
        return run([self.valkeys / "valkey-cli", "-h", HOST, "-p", str(port), "--tls", "--cacert", ca or self.issuer.ca, "-e", *words],
                   given=given)

    def until(self, holds, what):
        end = time.monotonic() + 60
        while not holds():
            if time.monotonic() > end:
                raise Failed(f"not within a minute: {what}")
            time.sleep(0.05)

    # Our clients with real servers.

    def tasks_on_one_connection(self):
        with self.valkey() as port:
            self.load(self.url(port), "-c", "1", "--tasks-per-connection", "50", "-3")

    def connections_with_pipelines(self):
        with self.valkey() as port:
            self.load(self.url(port), "-c", "50", "-P", "16", "-d", "1000", requests=8000)

    def values_of_20_mib(self):
        with self.valkey() as port:
            self.load(self.url(port), "-c", "1", "--tasks-per-connection", "2", "-d", str(20 * MIB), requests=4)

    def each_version(self):
        for version in ["TLSv1.2", "TLSv1.3"]:
            with self.valkey("--tls-protocols", version) as port:
                self.load(self.url(port), "-c", "1", "--tasks-per-connection", "10")

    def an_rsa_certificate(self):
        with self.valkey("--tls-protocols", "TLSv1.2", pair=self.issuer.issue(HOST, rsa=True)) as port:
            self.load(self.url(port), "-c", "1")

    def a_client_certificate(self):
        with self.valkey(clients="yes") as port:
            self.load(self.url(port, cert=self.client.cert, key=self.client.key), "-c", "4")

    def a_password(self):
        with self.valkey("--requirepass", "secret") as port:
            self.load(self.url(port).replace("://", "://:secret@"), "-c", "1")

    def another_name(self):
        with self.valkey(pair=self.issuer.issue("other.example")) as port:
            for options in [{"server_name": "other.example"}, {"verify": "ca"}, {"verify": "none", "ca": self.stranger.ca}]:
                self.load(self.url(port, **options), "-c", "1")

    def a_session_that_is_resumed(self):
        """Of the client in the gateway: the load tool begins anew with each connection."""
        with self.valkey("--tls-protocols", "TLSv1.3") as port, contextlib.closing(Relay(port)) as relay:
            with self.gateway_at(self.url(relay.port)) as gateway:
                self.load(gateway)
                first = len(relay.resumed)
                relay.cut()
                # Without clients, the gateway does not connect again before.
                self.load(gateway)
            if len(relay.resumed) == first or not all(relay.resumed[first:]):
                raise Failed(f"resumed at the connections: {relay.resumed}, the first {first} are those before the cut")

    def other_certificates_on_both_sides(self):
        ca = self.folder / "changing.crt"
        ca.write_bytes(self.issuer.ca.read_bytes())
        other = self.stranger.issue(HOST)
        with self.valkey() as port, self.load_during(self.url(port, ca=ca), 4):
            ca.write_bytes(self.stranger.ca.read_bytes())
            self.cli(port, "CONFIG", "SET", "tls-cert-file", other.cert, "tls-key-file", other.key)
            self.cli(port, "CLIENT", "KILL", "TYPE", "normal", ca=self.stranger.ca)

    def killed_and_started_again(self):
        with contextlib.ExitStack() as stack:
            flags = ["--appendonly", "yes"]
            first = contextlib.ExitStack()
            port = first.enter_context(self.valkey(*flags))
            with first, self.load_during(self.url(port), 6):
                first.close()
                stack.enter_context(self.valkey(*flags, port=port))

    def a_cluster_of_six_with_faults(self):
        first = next(PORTS)
        for _ in range(5):
            next(PORTS)
        words = [self.programs / "valkey-rdma-cluster-faults", "--valkey", self.valkeys, "--tls", "--port", str(first), "--tasks", "50"]
        run([*words, "--rate", "500", "--seconds", "12", "--events", "nothing,kill,failover", "--slots", "20"])

    def sentinels_that_name_the_next_primary(self):
        """The gateway asks Sentinels and servers over TLS, which have nothing else between them either."""
        with contextlib.ExitStack() as stack:
            servers = [stack.enter_context(contextlib.ExitStack()) for _ in range(2)]
            primary = servers[0].enter_context(self.valkey())
            replica = servers[1].enter_context(self.valkey("--replicaof", HOST, str(primary), "--repl-diskless-sync-delay", "0"))
            sentinels = [next(PORTS) for _ in range(3)]
            for port in sentinels:
                file = self.folder / f"sentinel-{port}.conf"
                lines = [f"{name} {value}" for name, value in self.valkey_tls(self.pair, port).items()]
                lines += [f"sentinel monitor mymaster {HOST} {primary} 2", "sentinel down-after-milliseconds mymaster 1000"]
                file.write_text("\n".join([*lines, "sentinel failover-timeout mymaster 5000", ""]))
                words = [self.valkeys / "valkey-server", file, "--sentinel"]
                stack.enter_context(self.running(words, ["+slave slave"], file.stem))
            for port in sentinels:
                known = lambda: b"num-other-sentinels\n2\n" in self.cli(port, "SENTINEL", "MASTER", "mymaster")
                self.until(known, "the Sentinels find each other")
            places = ",".join(f"{HOST}:{port}" for port in sentinels)
            server = f"valkeys+sentinel://{places}/mymaster?ca={self.issuer.ca}"
            gateway = stack.enter_context(self.gateway_at(server))
            with self.load_during(gateway, 9):
                # On a busy machine, the Sentinels may have made the replica the primary before.
                named = self.cli(sentinels[0], "SENTINEL", "GET-MASTER-ADDR-BY-NAME", "mymaster").split()
                # A replica that is still reading the data would be a primary without keys.
                self.until(lambda: b"state=online" in self.cli(int(named[1]), "INFO", "replication"), "the replica has the data")
                servers[[primary, replica].index(int(named[1]))].close()

    # What our client refuses. `{}` is the port of a server of that kind.

    def refusals(self):
        """Name, server, options of the URL, what the error says; and the exit status 2, if the settings alone are wrong."""
        old, late = self.issuer.issue(HOST, days=-3), self.issuer.issue("client", days=-1)
        foreign, other = self.stranger.issue("client"), self.issuer.issue("other.example")
        rubbish, missing = self.folder / "rubbish.pem", self.folder / "missing.pem"
        rubbish.write_text("rubbish\n")
        plain, own = self.valkey, self.client
        strict = lambda: self.valkey(clients="yes")
        identity = lambda pair: {"cert": pair.cert, "key": pair.key}
        return [
            ("wrong name", lambda: self.valkey(pair=other), {}, f"is for other.example, not for {HOST}"),
            ("unknown issuer", plain, {"ca": self.stranger.ca}, "issuer that is not trusted here"),
            ("issuers of the system", plain, {"ca": ""}, "--cacert FILE"),
            ("expired", lambda: self.valkey(pair=old), {}, "expired 3 days ago"),
            ("client certificate missing", strict, {}, "requires a certificate of its clients"),
            ("client certificate missing, TLS 1.2", lambda: self.valkey("--tls-protocols", "TLSv1.2", clients="yes"), {}, "cert=FILE"),
            ("client certificate of a foreign issuer", strict, identity(foreign), "refused the client's certificate"),
            ("client certificate expired", strict, identity(late), "refused the client's certificate"),
            ("key of another certificate", plain, {"cert": own.cert, "key": late.key}, "does not belong to the certificate", 2),
            ("certificate without key", plain, {"cert": own.cert}, "cert=FILE needs key=FILE", 2),
            ("no PEM", plain, {"ca": rubbish}, f"the file of issuers {rubbish} cannot be used", 2),
            ("no such file", plain, {"ca": missing}, f"cannot read the file of issuers {missing}", 2),
            ("a folder", plain, {"ca": self.folder}, str(self.folder), 2),
            ("no cipher suite in common", lambda: self.valkey("--tls-protocols", "TLSv1.2", "--tls-ciphers", "ECDHE-ECDSA-AES128-SHA"), {},
             "no cipher suite"),
            # It waits for the end of a line, and never answers.
            ("a plain server", self.plain_valkey, {"timeout": "1s"}, "TLS handshake"),
            ("a server that says nothing", self.silent, {"timeout": "1s"}, "TLS handshake"),
            ("a server that hangs up", lambda: self.silent(hangs_up=True), {}, "closed the connection during the TLS handshake"),
        ]

    def refuse(self, server, options, says, status=1):
        with server() as port:
            words = ["--url", self.url(port, **options), "-t", "ping", "-n", "1"]
            refused([self.programs / "valkey-rdma-benchmark", *words], says, status)

    def a_plain_client_at_a_tls_port(self):
        with self.valkey() as port:
            refused([self.programs / "valkey-rdma-benchmark", "--url", f"valkey://{HOST}:{port}", "-t", "ping", "-n", "1"], "TLS")

    # Clients of OpenSSL with our servers.

    def context(self, version=None, pair=None):
        context = ssl.create_default_context(cafile=self.issuer.ca)
        if version:
            context.minimum_version = context.maximum_version = version
        if pair:
            context.load_cert_chain(pair.cert, pair.key)
        return context

    def secured(self, port, context, seconds=20, **options):
        return context.wrap_socket(socket.create_connection((HOST, port), seconds), server_hostname=HOST, **options)

    def openssl_s_client(self, kind):
        with self.ours(kind) as (port, _, _):
            for version in ["-tls1_2", "-tls1_3"]:
                words = ["openssl", "s_client", "-connect", f"{HOST}:{port}", "-CAfile", self.issuer.ca, "-verify_return_error"]
                said = run([*words, "-verify_ip", HOST, version, "-ign_eof"], 20, PINGS + b"QUIT\r\n")
                if ANSWERS not in said or b"Verify return code: 0 (ok)" not in said:
                    raise Failed(f"openssl s_client {version}: {said[-500:]}")

    def valkey_cli(self, kind):
        value = bytes(range(256)) * (20 * MIB // 256)
        with self.ours(kind) as (port, _, _):
            if self.cli(port, "-x", "SET", "large", given=value) != b"OK\n" or self.cli(port, "GET", "large") != value + b"\n":
                raise Failed("the value of 20 MiB came back another")

    def valkey_benchmark(self, kind):
        with self.ours(kind) as (port, _, _):
            words = [self.valkeys / "valkey-benchmark", "-h", HOST, "-p", str(port), "--tls", "--cacert", self.issuer.ca]
            said = run([*words, "-t", "set,get", "-n", "2000", "-P", "16", "-q"]).decode()
            if said.count("requests per second") != 2 or "rror" in said:
                raise Failed(said)

    def their_certificates(self, kind):
        with self.ours(kind, clients="required") as (port, _, _):
            if ask(port, self.secured(port, self.context(pair=self.client))) != ANSWERS:
                raise Failed("with a certificate it does not answer")
            for pair in [None, self.stranger.issue("client"), self.issuer.issue("client", days=-1)]:
                for version in [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3]:
                    with contextlib.suppress(ssl.SSLError, ConnectionResetError):
                        if got := ask(port, self.secured(port, self.context(version, pair))):
                            raise Failed(f"{pair} was answered with {got}")
        with self.ours(kind, clients="optional") as (port, _, _):
            for pair in [None, self.client]:
                if ask(port, self.secured(port, self.context(pair=pair))) != ANSWERS:
                    raise Failed(f"optional: {pair} is not served")

    def wrong_ports(self, kind):
        """Plain bytes at the TLS port get an alert or an end, and TLS at the plain port no handshake: Valkey waits there for the end of a
        line. Others are served afterwards."""
        with self.ours(kind) as (port, plain, _):
            with contextlib.suppress(ConnectionResetError):
                if b"PONG" in (got := ask(port)):
                    raise Failed(f"plain bytes at the TLS port were answered: {got}")
            try:
                self.secured(plain, self.context(), seconds=1)
                raise Failed("the plain port speaks TLS")
            except (ssl.SSLError, ConnectionResetError, TimeoutError):
                pass
            if ask(plain) != ANSWERS or ask(port, self.secured(port, self.context())) != ANSWERS:
                raise Failed("the ports do not answer afterwards")

    def resumption_and_orderly_end(self, kind):
        with self.ours(kind) as (port, _, _):
            for version in [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3]:
                context, session = self.context(version), None
                for again in [False, True]:
                    connection = self.secured(port, context, session=session, suppress_ragged_eofs=False)
                    connection.sendall(PINGS + b"QUIT\r\n")
                    got = b""
                    # An end without close_notify is an error here.
                    while more := connection.recv(1000):
                        got += more
                    if not got.startswith(ANSWERS) or connection.session_reused != again:
                        raise Failed(f"{version.name}: resumed: {connection.session_reused}, not {again}; {got}")
                    session = connection.session
                    connection.close()

    def certificates_read_again(self, kind):
        """At SIGHUP. The connection that is open stays so."""
        changing = self.issuer.issue(HOST)
        with self.ours(kind, changing) as (port, _, process):
            old = self.secured(port, self.context())
            before, other = old.getpeercert()["serialNumber"], self.issuer.issue(HOST)
            for file, fresh in zip(changing, other):
                file.write_bytes(fresh.read_bytes())
            process.send_signal(signal.SIGHUP)
            shown = lambda: self.secured(port, self.context()).getpeercert()["serialNumber"]
            self.until(lambda: shown() != before, "another certificate is shown")
            if ask(port, old) != ANSWERS:
                raise Failed("the connection that was open has ended")

    def rows(self):
        for row in [self.tasks_on_one_connection, self.connections_with_pipelines, self.values_of_20_mib, self.each_version,
                    self.an_rsa_certificate, self.a_client_certificate, self.a_password, self.another_name,
                    self.a_session_that_is_resumed, self.other_certificates_on_both_sides, self.killed_and_started_again,
                    self.a_cluster_of_six_with_faults, self.sentinels_that_name_the_next_primary, self.a_plain_client_at_a_tls_port]:
            yield f"real server: {row.__name__.replace('_', ' ')}", row
        for name, *refusal in self.refusals():
            yield f"refused: {name}", lambda refusal=refusal: self.refuse(*refusal)
        for kind in ["mock", "gateway"]:
            for row in [self.openssl_s_client, self.valkey_cli, self.valkey_benchmark, self.their_certificates, self.wrong_ports,
                        self.resumption_and_orderly_end, *([self.certificates_read_again] if kind == "gateway" else [])]:
                yield f"our {kind}: {row.__name__.replace('_', ' ')}", lambda row=row, kind=kind: row(kind)


def main():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("lab", type=pathlib.Path, help="the lab's folder")
    parser.add_argument("programs", type=pathlib.Path, help="the folder of our built programs")
    parser.add_argument("--list", action="store_true", help="print the rows, run nothing")
    parser.add_argument("--only", default="", help="only rows whose line contains this text")
    args = parser.parse_args()
    # Servers end with their contexts, also if this suite is stopped.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    with tempfile.TemporaryDirectory() as folder:
        suite = Suite(args.lab, args.programs, pathlib.Path(folder))
        chosen = [row for row in suite.rows() if args.only in row[0]]
        if args.list:
            print(*(name for name, _ in chosen), sep="\n")
            return 0
        rows = Rows([sys.argv[0], args.lab, args.programs, "--only"])
        for row in chosen:
            rows.report(*row)
        return rows.end()


if __name__ == "__main__":
    sys.exit(main())
