/* Connections over RDMA as file descriptors, for programs that know sockets only.
 *
 * Link with -lvalkey_rdma. Each descriptor is one end of a Unix socket pair (AF_UNIX, SOCK_STREAM), blocking and close-on-exec.
 * read, write, poll, epoll, fcntl(O_NONBLOCK), setsockopt(SO_RCVTIMEO) and shutdown work as on any stream socket. Options of TCP
 * (TCP_NODELAY, TCP_KEEPIDLE) fail: the library watches the connection without them.
 *
 * URLs: rdma://host:port (RDMA adapters and soft-RoCE), emulated://host:port (RDMA in software, if built with it),
 * valkey://host:port (TCP). Options follow as ?device=NAME&gid=INDEX&timeout=5s&fallback=tcp, as for the Rust client.
 * With TLS: rdmas://, emulateds://, valkeys://, with ?ca=FILE&cert=FILE&key=FILE&server_name=NAME&verify=full|ca|none. The bytes at
 * the descriptor are plain, and the library encrypts them. valkey_rdma_listen refuses these URLs.
 *
 * Threads: every function may be called from any thread. A background thread copies between the socket pairs and the RDMA
 * connections. It starts with the first valkey_rdma_connect or valkey_rdma_listen, blocks all signals, and lives as long as the process.
 *
 * Failures: the descriptor of a lost connection reads as end of file. Writing to it fails with EPIPE, though not always the first time,
 * as on any socket (and raises SIGPIPE, unless the program ignores it or sends with MSG_NOSIGNAL). After valkey_rdma_close,
 * valkey_rdma_last_error says why.
 *
 * Forks: a descriptor that a child inherits belongs to the parent. The child should close(2) it, because the connection ends only when
 * all copies are closed. It may make connections of its own over TCP; over RDMA it may not if its parent has used RDMA before
 * the fork. A listener belongs to the parent too: in the child, valkey_rdma_accept fails, and valkey_rdma_listener_close does nothing.
 */
#ifndef VALKEY_RDMA_H
#define VALKEY_RDMA_H

#ifdef __cplusplus
extern "C" {
#endif

/* Connects. Returns a descriptor, or -1: see valkey_rdma_last_error. Does not log in, and sends nothing. Waits as long as the URL's
 * timeout says, 5 seconds unless given. A program with an event loop calls it from another thread. */
int valkey_rdma_connect(const char *url);

/* What this thread's last successful valkey_rdma_connect connected to, as "rdma to 10.0.0.1:6379, device mlx5_0"; "" if there was none.
 * Names the version and cipher suite of TLS. Says why, if it is TCP because of fallback=tcp. Valid until this thread's next call into the library. */
const char *valkey_rdma_last_connection(void);

/* Delivers what was written to the descriptor, waits for that up to 10 seconds, and closes it. close(2) returns at once, and what was
 * written before is still delivered, unless the process ends first. Returns 0, or -1 if it was not all delivered in time, the
 * connection has failed, or it belongs to the parent of this process. The descriptor is closed in any case. */
int valkey_rdma_close(int fd);

typedef struct valkey_rdma_listener valkey_rdma_listener;

/* Listens at the address of the URL, which must be an IP address; port 0 takes a free one. Returns NULL on errors. Accepts all connections:
 * logins and databases in the URL are refused, and so are clusters, Sentinels and options other than rx_size, send_buffer,
 * poll, device, gid and source. */
valkey_rdma_listener *valkey_rdma_listen(const char *url);

/* The port it listens on, or -1. */
int valkey_rdma_listener_port(const valkey_rdma_listener *listener);

/* Waits for the next connection, however long. Returns a descriptor, or -1. */
int valkey_rdma_accept(const valkey_rdma_listener *listener);

/* Makes every accept return -1: those that wait in other threads, and later ones. NULL is ignored. */
void valkey_rdma_listener_stop(const valkey_rdma_listener *listener);

/* Ends listening. No other thread may be using the listener. NULL is ignored. */
void valkey_rdma_listener_close(valkey_rdma_listener *listener);

/* Why the last call of this thread that failed did so; "" if none has. Valid until this thread's next call into the library. */
const char *valkey_rdma_last_error(void);

/* The version of the library, as "0.1.0". */
const char *valkey_rdma_version(void);

#ifdef __cplusplus
}
#endif

#endif
