/* Connections over RDMA as file descriptors, for programs that know sockets only.
 *
 * Link with -lvalkey_rdma. Each descriptor is one end of a Unix socket pair: read, write, poll, setsockopt(SO_RCVTIMEO) and
 * shutdown work as on any stream socket. A background thread of the library copies between the pair and the RDMA connection, so
 * connect after fork, not before.
 *
 * URLs: rdma://host:port (RDMA adapters and soft-RoCE), emulated://host:port (RDMA in software, if built with it),
 * valkey://host:port (TCP). Options follow as ?device=NAME&gid=INDEX&timeout=SECONDS, as for the Rust client.
 *
 * Every function may be called from any thread. */
#ifndef VALKEY_RDMA_H
#define VALKEY_RDMA_H

#ifdef __cplusplus
extern "C" {
#endif

/* Connects. Returns a descriptor, or -1: see valkey_rdma_last_error. Does not log in, and sends nothing. */
int valkey_rdma_connect(const char *url);

/* Delivers what was written to the descriptor, waits for that up to 10 seconds, and closes it. close(2) closes at once: what was
 * written before is still delivered, unless the process ends first. Returns 0, or -1 if it was not all delivered in time or the
 * connection has failed; the descriptor is closed in either case. */
int valkey_rdma_close(int fd);

typedef struct valkey_rdma_listener valkey_rdma_listener;

/* Listens at the address of the URL, which must be an IP address; port 0 takes a free one. Returns NULL on errors. */
valkey_rdma_listener *valkey_rdma_listen(const char *url);

/* The port it listens on. */
int valkey_rdma_listener_port(const valkey_rdma_listener *listener);

/* Waits for the next connection. Returns a descriptor, or -1. */
int valkey_rdma_accept(const valkey_rdma_listener *listener);

/* Ends listening. No other thread may be using the listener. NULL is ignored. */
void valkey_rdma_listener_close(valkey_rdma_listener *listener);

/* Why the last call of this thread that failed did so; "" if none has. Valid until this thread's next call into the library. */
const char *valkey_rdma_last_error(void);

#ifdef __cplusplus
}
#endif

#endif
