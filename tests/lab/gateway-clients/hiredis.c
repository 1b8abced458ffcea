/* hiredis or libvalkey, whose interfaces differ in their prefix only, through a Unix socket: LIB is redis or valkey. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include HEADER

#define JOIN_(a, b) a##b
#define JOIN(a, b) JOIN_(a, b)
#define F(name) JOIN(LIB, name)
#define TYPE_STRING 1
#define TYPE_ARRAY 2

static F(Context) *context;

static void fail(const char *what) {
    fprintf(stderr, "%s: %s\n", what, context && context->err ? context->errstr : "another reply than expected");
    exit(1);
}

/* Checks the text of a reply, or of one of its elements, and frees the reply. */
static void expect(const char *what, F(Reply) *reply, int element, const char *text) {
    F(Reply) *part = reply;
    if (reply && element >= 0)
        part = reply->type == TYPE_ARRAY && reply->elements > (size_t)element ? reply->element[element] : NULL;
    if (!part || !part->str || strcmp(part->str, text) != 0) fail(what);
    freeReplyObject(reply);
}

int main(int argc, char **argv) {
    if (argc != 2) return 2;
    context = F(ConnectUnix)(argv[1]);
    if (!context || context->err) fail("connect");
    F(Reply) *reply = NULL;

    expect("SET", F(Command)(context, "SET %s %s", "c:k", "v"), -1, "OK");
    expect("GET", F(Command)(context, "GET c:k"), -1, "v");
    for (int number = 0; number < 1000; number++) F(AppendCommand)(context, "ECHO %d", number);
    for (int number = 0; number < 1000; number++) {
        char text[16];
        snprintf(text, sizeof text, "%d", number);
        if (F(GetReply)(context, (void **)&reply) != 0) fail("pipeline");
        expect("pipeline", reply, -1, text);
    }
    expect("MULTI", F(Command)(context, "MULTI"), -1, "OK");
    expect("queueing", F(Command)(context, "GET c:k"), -1, "QUEUED");
    expect("EXEC", F(Command)(context, "EXEC"), 0, "v");
    freeReplyObject(F(Command)(context, "DEL c:list"));
    freeReplyObject(F(Command)(context, "RPUSH c:list item"));
    expect("BLPOP", F(Command)(context, "BLPOP c:list 5"), 1, "item");
    expect("SUBSCRIBE", F(Command)(context, "SUBSCRIBE c:channel"), 1, "c:channel");
    F(Context) *other = F(ConnectUnix)(argv[1]);
    if (!other || other->err) fail("second connection");
    freeReplyObject(F(Command)(other, "PUBLISH c:channel hi"));
    if (F(GetReply)(context, (void **)&reply) != 0) fail("message");
    expect("message", reply, 2, "hi");
    expect("UNSUBSCRIBE", F(Command)(context, "UNSUBSCRIBE c:channel"), 0, "unsubscribe");

    size_t len = 3 << 20;
    char *large = malloc(len + 1);
    memset(large, 'x', len);
    large[len] = 0;
    expect("large SET", F(Command)(context, "SET c:k %b", large, len), -1, "OK");
    expect("large GET", F(Command)(context, "GET c:k"), -1, large);
    free(large);
    F(Free)(other);
    F(Free)(context);
    return 0;
}
