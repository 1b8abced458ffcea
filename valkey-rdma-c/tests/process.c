/* What a connected process may do: block signals, fork (also while its threads connect, with a listener, or before it closes), close twice, ask, end a thread. Prints one line if all is well.
 *
 * usage: process signals|fork|hold|storm|listen|close|describe|thread URL */
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>
#include "valkey_rdma.h"

static void fail(const char *what) {
    fprintf(stderr, "%s: %s\n", what, valkey_rdma_last_error());
    exit(1);
}

static int connected(const char *url) {
    int fd = valkey_rdma_connect(url);
    if (fd < 0)
        fail("connect");
    return fd;
}

static void ping(int fd) {
    char reply[7];
    if (write(fd, "PING\r\n", 6) != 6)
        fail("write");
    for (size_t have = 0; have < sizeof reply;) {
        ssize_t more = read(fd, reply + have, sizeof reply - have);
        if (more <= 0)
            fail("read");
        have += more;
    }
    if (memcmp(reply, "+PONG\r\n", sizeof reply) != 0)
        fail("reply");
}

/* The signal is for the thread that waits, though the program has blocked it after connecting only. */
static void signals(const char *url) {
    int fd = connected(url), received;
    sigset_t terminate;
    sigemptyset(&terminate);
    sigaddset(&terminate, SIGTERM);
    sigprocmask(SIG_BLOCK, &terminate, NULL);
    kill(getpid(), SIGTERM);
    sigwait(&terminate, &received);
    ping(fd);
    if (valkey_rdma_close(fd) < 0)
        fail("close");
    puts("the program has the signal");
}

/* The child has its own connections, and cannot close the parent's. */
static void forks(const char *url) {
    int fd = connected(url), status;
    ping(fd);
    pid_t child = fork();
    if (child == 0) {
        alarm(60);
        int own = connected(url);
        ping(own);
        if (valkey_rdma_close(own) < 0)
            fail("close");
        if (valkey_rdma_close(fd) == 0 || !strstr(valkey_rdma_last_error(), "forked"))
            fail("close of the parent's");
        _exit(0);
    }
    if (waitpid(child, &status, 0) < 0 || status != 0)
        fail("child");
    ping(fd);
    if (valkey_rdma_close(fd) < 0)
        fail("close");
    puts("both are connected");
}

/* A child that never closes what it has inherited does not keep the parent's connection, nor the library's threads. */
static void holds(const char *url) {
    int fd = connected(url);
    pid_t child = fork();
    if (child == 0) {
        alarm(60);
        pause();
        _exit(1);
    }
    if (child < 0)
        fail("fork");
    if (valkey_rdma_close(fd) < 0)
        fail("close");
    fd = connected(url);
    ping(fd);
    if (valkey_rdma_close(fd) < 0)
        fail("second close");
    kill(child, SIGKILL);
    if (waitpid(child, NULL, 0) < 0)
        fail("child");
    puts("the parent has closed");
}

static atomic_int stop;

static void *connects(void *url) {
    while (!stop)
        if (valkey_rdma_close(connected(url)) < 0)
            fail("close");
    return NULL;
}

/* Whatever the threads of the parent do at the moment of the fork, the child can connect. */
static void storm(char *url) {
    pthread_t threads[3];
    for (int i = 0; i < 3; i++)
        if (pthread_create(&threads[i], NULL, connects, url) != 0)
            fail("thread");
    for (int i = 0; i < 300; i++) {
        int status;
        pid_t child = fork();
        if (child == 0) {
            alarm(30);
            int own = connected(url);
            if (valkey_rdma_close(own) < 0)
                fail("close");
            _exit(0);
        }
        if (waitpid(child, &status, 0) < 0 || status != 0)
            fail("child");
    }
    stop = 1;
    for (int i = 0; i < 3; i++)
        pthread_join(threads[i], NULL);
    puts("all children have connected");
}

static valkey_rdma_listener *listener;
static int accepting[2];

static void *accepts(void *unused) {
    for (int i = 0; i < 2; i++) {
        int fd = valkey_rdma_accept(listener);
        if (fd < 0)
            fail("accept");
        close(fd);
        if (write(accepting[1], "", 1) != 1)
            fail("pipe");
    }
    return unused;
}

/* A child cannot accept from the listener of its parent, and closing it there does not end it here. */
static void inherits(const char *url) {
    /* Over sockets, which both processes have: not from memory to memory. */
    char peer[100], accepted;
    int status;
    pthread_t thread;
    listener = valkey_rdma_listen(url);
    if (!listener)
        fail("listen");
    snprintf(peer, sizeof peer, "emulated://127.0.0.1:%d?device=tcp", valkey_rdma_listener_port(listener));
    if (pipe(accepting) < 0 || pthread_create(&thread, NULL, accepts, NULL) != 0)
        fail("thread");
    int first = connected(peer);
    /* From here the thread waits for the second. */
    if (read(accepting[0], &accepted, 1) != 1)
        fail("pipe");
    pid_t child = fork();
    if (child == 0) {
        alarm(10);
        if (valkey_rdma_accept(listener) >= 0 || !strstr(valkey_rdma_last_error(), "forked"))
            fail("accept of the parent's");
        valkey_rdma_listener_close(listener);
        _exit(0);
    }
    if (waitpid(child, &status, 0) < 0 || status != 0)
        fail("child");
    int second = connected(peer);
    pthread_join(thread, NULL);
    close(first);
    close(second);
    valkey_rdma_listener_close(listener);
    puts("the parent listens");
}

/* The second close fails, and ends nothing. */
static void closes(const char *url) {
    int fd = connected(url);
    if (valkey_rdma_close(fd) < 0)
        fail("close");
    if (valkey_rdma_close(fd) == 0)
        fail("second close");
    puts(valkey_rdma_last_error());
}

static void describes(const char *url) {
    int fd = connected(url);
    printf("%s, by %s\n", valkey_rdma_last_connection(), valkey_rdma_version());
    if (valkey_rdma_close(fd) < 0)
        fail("close");
}

/* Runs after the library's own variables of the thread are gone. */
static void at_end(void *value) {
    (void)value;
    if (valkey_rdma_connect("none://h") >= 0 || strlen(valkey_rdma_last_error()) != 0)
        fail("a text of a thread that has ended");
}

static pthread_key_t key;

static void *ends(void *value) {
    if (valkey_rdma_connect("none://h") >= 0 || strlen(valkey_rdma_last_error()) == 0)
        fail("an error without a text");
    pthread_setspecific(key, value);
    return NULL;
}

static void threads(void) {
    pthread_t thread;
    if (pthread_key_create(&key, at_end) != 0 || pthread_create(&thread, NULL, ends, &key) != 0)
        fail("thread");
    pthread_join(thread, NULL);
    puts("the thread has ended");
}

int main(int argc, char **argv) {
    /* A hang is a failure, too. */
    alarm(60);
    if (argc != 3)
        return 2;
    if (strcmp(argv[1], "signals") == 0)
        signals(argv[2]);
    else if (strcmp(argv[1], "fork") == 0)
        forks(argv[2]);
    else if (strcmp(argv[1], "hold") == 0)
        holds(argv[2]);
    else if (strcmp(argv[1], "storm") == 0)
        storm(argv[2]);
    else if (strcmp(argv[1], "listen") == 0)
        inherits(argv[2]);
    else if (strcmp(argv[1], "thread") == 0)
        threads();
    else if (strcmp(argv[1], "describe") == 0)
        describes(argv[2]);
    else
        closes(argv[2]);
    return 0;
}
