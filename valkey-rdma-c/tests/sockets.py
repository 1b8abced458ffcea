"""Python's sockets over RDMA, through libvalkey_rdma.

usage: sockets.py LIBRARY URL          a server's, to write and read a value there
       sockets.py LIBRARY listen URL   an address to listen on, for an echo in this process
"""

import ctypes
import select
import socket
import sys
import threading

library = ctypes.CDLL(sys.argv[1])
library.valkey_rdma_last_error.restype = ctypes.c_char_p
library.valkey_rdma_listen.restype = ctypes.c_void_p
for name in "listener_port", "accept", "listener_stop", "listener_close":
    getattr(library, "valkey_rdma_" + name).argtypes = [ctypes.c_void_p]


def checked(result):
    if result is None or result < 0:
        sys.exit(library.valkey_rdma_last_error().decode())
    return result


def connect(url):
    return socket.socket(fileno=checked(library.valkey_rdma_connect(url.encode())))


def value(url):
    big = b"x" * 300_000
    with connect(url) as connection, connection.makefile("rb") as replies:
        connection.sendall(b"*3\r\n$3\r\nSET\r\n$6\r\npython\r\n$%d\r\n%s\r\n" % (len(big), big))
        print(replies.readline().decode().strip())
        connection.sendall(b"GET python\r\n")
        select.select([connection], [], [])
        length = int(replies.readline()[1:])
        print(length, "bytes,", "as sent" if replies.read(length) == big else "others")


def echo(url):
    listener = checked(library.valkey_rdma_listen(url.encode()))
    port = library.valkey_rdma_listener_port(listener)

    def serve():
        with socket.socket(fileno=checked(library.valkey_rdma_accept(listener))) as peer:
            while data := peer.recv(65536):
                peer.sendall(data)
        if library.valkey_rdma_accept(listener) == -1:
            print(library.valkey_rdma_last_error().decode())

    server = threading.Thread(target=serve)
    server.start()
    with connect(url.rsplit(":", 1)[0] + f":{port}") as connection:
        connection.settimeout(30)
        connection.sendall(b"as if it were TCP")
        print(connection.recv(100).decode())
    library.valkey_rdma_listener_stop(listener)
    server.join()
    library.valkey_rdma_listener_close(listener)


echo(sys.argv[3]) if sys.argv[2] == "listen" else value(sys.argv[2])
