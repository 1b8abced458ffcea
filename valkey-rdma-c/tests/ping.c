/* Says PING to the server at the URL of the command line, and prints what it answers. */
#include <stdio.h>
#include <string.h>
#include <unistd.h>
#include "valkey_rdma.h"

int main(int argc, char **argv) {
    if (argc != 2) {
        fprintf(stderr, "usage: ping URL\n");
        return 2;
    }
    int fd = valkey_rdma_connect(argv[1]);
    if (fd < 0) {
        fprintf(stderr, "ping: %s\n", valkey_rdma_last_error());
        return 1;
    }
    const char *ping = "PING\r\n";
    char reply[64];
    if (write(fd, ping, strlen(ping)) < 0) {
        perror("write");
        return 1;
    }
    ssize_t len = read(fd, reply, sizeof reply - 1);
    if (len <= 0) {
        fprintf(stderr, "ping: no reply\n");
        return 1;
    }
    reply[len] = 0;
    printf("%s", reply);
    return valkey_rdma_close(fd) == 0 ? 0 : 1;
}
