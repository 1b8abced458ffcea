// node-redis. Usage: node_redis.mjs FOLDER SOCKET 2|3
import assert from "assert";
import { randomBytes } from "crypto";
import { createRequire } from "module";

const { createClient, RESP_TYPES } = createRequire(import.meta.url)(process.argv[2]);
const socket = { path: process.argv[3], connectTimeout: 300000 }, RESP = +process.argv[4];
const connect = () =>
  createClient({ RESP, socket, name: "suite" }).on("error", (error) => { throw error; }).connect();
const client = await connect(), other = await connect();
const sleep = (ms) => new Promise((resolve) => setTimeout(resolve, ms));

assert.equal(await client.clientGetName(), "suite");
const big = randomBytes(1 << 20);
await client.set("big", big);
assert((await client.withTypeMapping({ [RESP_TYPES.BLOB_STRING]: Buffer }).get("big")).equals(big));
const numbers = [...Array(200).keys()].map(String);
assert.deepEqual(await Promise.all(numbers.map((number) => client.echo(number))), numbers);
const script = "return {KEYS[1], ARGV[1]}";
assert.deepEqual(await client.eval(script, { keys: ["{t}k"], arguments: ["x"] }), ["{t}k", "x"]);

assert.deepEqual(await client.multi().set("{t}n", "1").incr("{t}n").exec(), ["OK", 2]);
await client.watch("{t}n");
await other.set("{t}n", "9");
await assert.rejects(client.multi().set("{t}n", "1").exec());

await client.del("{t}l");
const blocked = client.blPop("{t}l", 300);
await sleep(200);
await other.rPush("{t}l", "item");
assert.equal((await blocked).element, "item");

await client.mSet(Object.fromEntries(numbers.map((number) => ["scan:" + number, "1"])));
const found = new Set();
for await (const keys of client.scanIterator({ MATCH: "scan:*", COUNT: 50 })) keys.forEach((key) => found.add(key));
assert.equal(found.size, numbers.length);
await client.del([...found]);

await client.del("{t}s");
await client.xGroupCreate("{t}s", "g", "0", { MKSTREAM: true });
await client.xAdd("{t}s", "1-1", { a: "1" });
assert.equal((await client.xReadGroup("g", "me", { key: "{t}s", id: ">" }))[0].messages[0].id, "1-1");

const got = [];
await other.subscribe("c", (text) => got.push(text));
await other.pSubscribe("p*", (text) => got.push(text));
await client.publish("c", "hi");
await client.publish("px", "ho");
while (got.length < 2) await sleep(10);
assert.deepEqual(got.sort(), ["hi", "ho"]);
await other.unsubscribe("c");
await other.pUnsubscribe("p*");
assert.equal(await other.get("{t}n"), "9");

const caller = async (number) => {
  for (let turn = 0; turn < 20; turn++) {
    const value = `${number}:${turn}.`.repeat(number + 1);
    await client.set("c" + number, value);
    assert.equal(await client.get("c" + number), value);
  }
};
await Promise.all([...Array(50).keys()].map(caller));
process.exit(0);
