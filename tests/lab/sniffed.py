#!/usr/bin/env python3
"""What a third party sees of a value on the cable between two machines: all of it over RDMA, and none of it over RDMA with TLS.

usage: tests/lab/sniffed.py LAB PROGRAMS      on the host. PROGRAMS is the folder of our built programs
       sniffed.py far|near PROGRAMS FOLDER    in each of the machines: our mock; our load tool beside a reader of all packets
"""
import pathlib
import shlex
import socket
import subprocess
import sys
import tempfile
import threading

from certificates import Authority
from rows import Failed, Rows, kill, run, start

FAR, NEAR = "10.0.0.1", "10.0.0.2"
PLAIN, ENCRYPTED, END = 6379, 6380, 6400
ROCE = (4791).to_bytes(2)
VALUE = "what-only-the-two-ends-may-read"


def host(lab, programs):
    with tempfile.TemporaryDirectory() as folder:
        authority = Authority(pathlib.Path(folder), "issuer")
        pair = authority.issue(FAR)
        pair.cert.rename(f"{folder}/server.crt")
        pair.key.rename(f"{folder}/server.key")
        here = pathlib.Path(__file__).resolve()
        sides = [shlex.join([str(here), side, str(pathlib.Path(programs).resolve()), folder]) for side in ["far", "near"]]
        return subprocess.run([here.with_name("cable.sh"), lab, *sides], check=False).returncode


def far(programs, folder):
    """A mock, until the near end connects a second time."""
    words = [f"{programs}/valkey-rdma-mock", "--bind", FAR, "--device", "verbs", "--port", str(PLAIN), "--tls-rdma-port", str(ENCRYPTED)]
    words += ["--tls-cert", f"{folder}/server.crt", "--tls-key", f"{folder}/server.key"]
    mock = start(words, pathlib.Path("/tmp/sniffed.log"), ["ready rdma:", "ready rdmas:"])
    with socket.create_server((FAR, END)) as listener:
        for _ in range(2):
            listener.accept()[0].close()
    kill(mock)
    return 0


def packets_of(action):
    """All packets on the interface while the action runs."""
    seen, ends = [], threading.Event()
    with socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(3)) as reader:
        reader.bind(("d0", 0))
        reader.settimeout(0.2)

        def read():
            while True:
                try:
                    seen.append(reader.recv(65536))
                except TimeoutError:
                    if ends.is_set():
                        return

        thread = threading.Thread(target=read)
        thread.start()
        try:
            action()
        finally:
            ends.set()
            thread.join()
    # Ethernet, IPv4 without options, UDP.
    return [packet for packet in seen if packet[12:14] == b"\x08\x00" and packet[23] == 17 and packet[36:38] == ROCE]


def visible(programs, url):
    """How many RDMA packets show the value while it is set and read, of how many."""
    words = [f"{programs}/valkey-rdma-benchmark", "--url", url, "-c", "1", "-n", "20", "--csv", "-d", "3", "--"]

    def set_and_get():
        run([*words, "set", "key", VALUE])
        run([*words, "get", "key"])

    packets = packets_of(set_and_get)
    return sum(VALUE.encode() in packet for packet in packets), len(packets)


def near(programs, folder):
    while True:
        try:
            socket.create_connection((FAR, END), 5).close()
            break
        except OSError:
            continue

    def plain():
        shown, packets = visible(programs, f"rdma://{FAR}:{PLAIN}")
        if shown < 40:
            raise Failed(f"the reader is blind: {shown} of {packets} packets show the value, which was sent 20 times in each direction")
        return f"{shown} of {packets} packets show the value"

    def encrypted():
        shown, packets = visible(programs, f"rdmas://{FAR}:{ENCRYPTED}?ca={folder}/issuer.crt")
        if shown or packets < 40:
            raise Failed(f"{shown} of {packets} packets show the value")
        return f"none of {packets} packets shows the value"

    rows = Rows([sys.argv[0]])
    rows.report("over RDMA", plain)
    rows.report("over RDMA with TLS", encrypted)
    socket.create_connection((FAR, END), 5).close()
    return rows.end()


sides = {"far": far, "near": near}
sys.exit(sides[sys.argv[1]](*sys.argv[2:]) if sys.argv[1] in sides else host(*sys.argv[1:]))
