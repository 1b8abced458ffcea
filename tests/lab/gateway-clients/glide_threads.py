# valkey-glide-sync. Usage: glide_threads.py SOCKET|HOST:PORT
import os
import sys
import threading

from glide_sync import Batch, GlideClient, GlideClientConfiguration, NodeAddress, Script

address = sys.argv[1]
host, _, port = address.rpartition(":")
node = NodeAddress(unix_socket_path=address) if address.startswith("/") else NodeAddress(host, int(port))
# Its default is 250 ms for a reply.
settings = GlideClientConfiguration([node], request_timeout=300_000)
client, other = GlideClient.create(settings), GlideClient.create(settings)

big = os.urandom(1 << 20)
assert client.set("big", big) == "OK" and client.get("big") == big
assert client.exec(Batch(is_atomic=True).set("{t}n", "1").incr("{t}n"), True) == ["OK", 2]
client.watch(["{t}n"])
other.set("{t}n", "9")
assert client.exec(Batch(is_atomic=True).set("{t}n", "1"), True) is None and client.get("{t}n") == b"9"

client.delete(["{t}l"])
threading.Timer(0.2, lambda: other.rpush("{t}l", ["item"])).start()
assert client.blpop(["{t}l"], 300) == [b"{t}l", b"item"]
script = Script("return {KEYS[1], ARGV[1]}")
assert client.invoke_script(script, keys=["{t}k"], args=["x"]) == [b"{t}k", b"x"]
client.subscribe({"c"}, 300_000)
other.publish("hi", "c")
assert client.get_pubsub_message().message == b"hi"
client.unsubscribe({"c"}, 300_000)

wrong = []
# What ends a thread would otherwise only be printed.
threading.excepthook = lambda ended: wrong.append(repr(ended.exc_value))


def caller(number):
    for turn in range(20):
        value = f"{number}:{turn}." * (number + 1)
        client.set(f"c{number}", value)
        if client.get(f"c{number}") != value.encode():
            wrong.append(number)


threads = [threading.Thread(target=caller, args=(number,)) for number in range(50)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
assert not wrong, wrong
