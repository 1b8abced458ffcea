<?php
// php-redis. Usage: client.php SOCKET
function connect() {
    $client = new Redis();
    $client->connect($GLOBALS["argv"][1]);
    return $client;
}

function same($got, $wanted) {
    if ($got !== $wanted) {
        throw new Exception(json_encode([$got, $wanted], JSON_INVALID_UTF8_SUBSTITUTE));
    }
}

[$client, $other, $big] = [connect(), connect(), random_bytes(1 << 20)];
same($client->set("big", $big), true);
same($client->get("big") === $big, true);
$pipe = $client->pipeline();
for ($n = 0; $n < 200; $n++) $pipe->echo("$n");
same($pipe->exec(), array_map("strval", range(0, 199)));
$script = "return {KEYS[1], ARGV[1]}";
same($client->eval($script, ["{t}k", "x"], 1), ["{t}k", "x"]);
same($client->evalSha(sha1($script), ["{t}k", "y"], 1), ["{t}k", "y"]);

same($client->multi()->set("{t}n", "1")->incr("{t}n")->exec(), [true, 2]);
$client->watch("{t}n");
$other->set("{t}n", "9");
same($client->multi()->set("{t}n", "1")->exec(), false);
same($client->get("{t}n"), "9");

$client->del("{t}l");
same($client->blPop(["{t}l"], 1), []);
$other->rPush("{t}l", "item");
same($client->blPop(["{t}l"], 300), ["{t}l", "item"]);

$client->mset(array_fill_keys(array_map(fn($n) => "scan:$n", range(1, 300)), "1"));
$client->setOption(Redis::OPT_SCAN, Redis::SCAN_RETRY);
[$found, $cursor] = [[], null];
while ($keys = $client->scan($cursor, "scan:*", 50)) foreach ($keys as $key) $found[$key] = 1;
same(count($found), 300);
$client->del(array_keys($found));

$client->del("{t}s");
same($client->xGroup("CREATE", "{t}s", "g", "0", true), true);
same($client->xAdd("{t}s", "1-1", ["a" => "1"]), "1-1");
same($client->xReadGroup("g", "me", ["{t}s" => ">"]), ["{t}s" => ["1-1" => ["a" => "1"]]]);
same($client->xAck("{t}s", "g", ["1-1"]), 1);

// Another process publishes until the subscriber has heard it.
$publish = '$r = new Redis(); $r->connect($argv[1]); while (!$r->get("heard")) { $r->publish("c", "hi"); usleep(50000); }';
$client->del("heard");
$child = proc_open([PHP_BINARY, "-r", $publish, "--", $argv[1]], [], $pipes);
$got = [];
$subscriber = connect();
$subscriber->setOption(Redis::OPT_READ_TIMEOUT, 300);
try {
    $subscriber->subscribe(["c"], function ($own, $channel, $text) use (&$got) {
        $got = [$channel, $text];
        $own->close();
    });
} catch (RedisException $closed) {
} finally {
    $client->set("heard", "1");
    proc_close($child);
}
same($got, ["c", "hi"]);

$clients = array_map(fn($n) => connect(), range(0, 49));
for ($turn = 0; $turn < 20; $turn++) {
    foreach ($clients as $n => $own) {
        $value = str_repeat("$n:$turn.", $n + 1);
        $own->set("c$n", $value);
        same($own->get("c$n"), $value);
    }
}
