# redis-py or valkey-py. Usage: redis_blocking.py redis|valkey SOCKET 2|3
import importlib, sys, threading
library, path, protocol = importlib.import_module(sys.argv[1]), sys.argv[2], int(sys.argv[3])
name = "Valkey" if sys.argv[1] == "valkey" else "Redis"
# Its default is five seconds for a reply, which an emulated processor can take.
client = getattr(library, name)(unix_socket_path=path, protocol=protocol, decode_responses=True, client_name="suite", socket_timeout=None)
client.flushall()
assert client.set("k", "v") and client.get("k") == "v" and client.client_getname() == "suite"
with client.pipeline(transaction=True) as pipe:
    assert pipe.incr("n").incr("n").execute() == [1, 2]
with client.pipeline(transaction=False) as pipe:
    assert [pipe.echo(str(i)) for i in range(100)] and pipe.execute() == [str(i) for i in range(100)]
with client.pipeline() as pipe:
    pipe.watch("n")
    client.incr("n")
    pipe.multi()
    pipe.incr("n")
    try:
        pipe.execute()
        raise AssertionError("the watched key changed")
    except library.WatchError:
        pass
big = "x" * 5_000_000
assert client.set("big", big) and client.get("big") == big
assert client.hset("h", mapping={"a": 1, "b": 2}) == 2 and client.hgetall("h") == {"a": "1", "b": "2"}
with client.pubsub() as pubsub:
    pubsub.subscribe("c")
    assert pubsub.get_message(timeout=300)["type"] == "subscribe"
    client.publish("c", "hi")
    assert pubsub.get_message(timeout=300)["data"] == "hi"
pusher = threading.Timer(0.2, lambda: client.rpush("list", "item"))
pusher.start()
assert client.blpop("list", timeout=300) in (["list", "item"], ("list", "item"))
pusher.join()
assert client.eval("return KEYS[1]", 1, "k") == "k"
