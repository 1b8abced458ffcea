# ruby-redis. Usage: client.rb SOCKET
require "redis"

def connect = Redis.new(path: ARGV[0], timeout: 300)

def same(got, wanted) = got == wanted || abort("#{got.inspect[0, 200]} instead of #{wanted.inspect[0, 200]}: #{caller[0]}")

client, other, big = connect, connect, Random.bytes(1 << 20)
client.set("big", big)
same client.get("big").b == big, true
same client.pipelined { |pipe| 200.times { |n| pipe.echo(n.to_s) } }, (0..199).map(&:to_s)
script = "return {KEYS[1], ARGV[1]}"
same client.eval(script, ["{t}k"], ["x"]), ["{t}k", "x"]
same client.evalsha(client.script(:load, script), ["{t}k"], ["y"]), ["{t}k", "y"]

same client.multi { |tx| tx.set("{t}n", "1"); tx.incr("{t}n") }, ["OK", 2]
watched = client.watch("{t}n") do
  other.set("{t}n", "9")
  client.multi { |tx| tx.set("{t}n", "1") }
end
same watched, nil

client.del("{t}l")
blocked = Thread.new { client.blpop("{t}l", timeout: 300) }
sleep 0.2
other.rpush("{t}l", "item")
same blocked.value, ["{t}l", "item"]

client.mset(*(1..300).flat_map { |n| ["scan:#{n}", "1"] })
keys = client.scan_each(match: "scan:*", count: 50).to_a.uniq
same [keys.size, client.del(*keys)], [300, 300]

client.del("{t}s")
same client.xgroup(:create, "{t}s", "g", "0", mkstream: true), "OK"
same client.xadd("{t}s", { "a" => "1" }, id: "1-1"), "1-1"
same client.xreadgroup("g", "me", "{t}s", ">"), { "{t}s" => [["1-1", { "a" => "1" }]] }
same client.xack("{t}s", "g", "1-1"), 1

got = []
client.subscribe("c") do |on|
  on.subscribe { Thread.new { connect.publish("c", "hi") } }
  on.message { |_, text| got << text; client.unsubscribe }
end
client.psubscribe("p*") do |on|
  on.psubscribe { Thread.new { connect.publish("px", "ho") } }
  on.pmessage { |_, _, text| got << text; client.punsubscribe }
end
same got, ["hi", "ho"]
same client.get("{t}n"), "9"

callers = (0...50).map do |n|
  Thread.new do
    own = connect
    20.times do |turn|
      value = "#{n}:#{turn}." * (n + 1)
      own.set("c#{n}", value)
      same own.get("c#{n}"), value
    end
  end
end
callers.each(&:join)
