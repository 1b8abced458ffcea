// @valkey/valkey-glide, which has no Unix sockets. Usage: glide.mjs FOLDER HOST:PORT 2|3
import assert from "assert";
import { randomBytes } from "crypto";
import { createRequire } from "module";

const { Batch, Decoder, GlideClient, ProtocolVersion, Script } = createRequire(import.meta.url)(process.argv[2]);
const [host, port] = process.argv[3].split(":"), isResp3 = process.argv[4] === "3";
// Its default is 250 ms for a reply.
const requestTimeout = 300000;
const protocol = isResp3 ? ProtocolVersion.RESP3 : ProtocolVersion.RESP2;
const connect = () =>
  GlideClient.createClient({ addresses: [{ host, port: +port }], requestTimeout, protocol, clientName: "suite" });
const client = await connect(), other = await connect();

assert.equal(await client.clientGetName(), "suite");
const big = randomBytes(1 << 20);
await client.set("{t}big", big);
assert((await client.get("{t}big", { decoder: Decoder.Bytes })).equals(big));
const batch = new Batch(false), numbers = [...Array(200).keys()].map(String);
numbers.forEach((number) => batch.echo(number));
assert.deepEqual(await client.exec(batch, true), numbers);
const script = new Script("return {KEYS[1], ARGV[1]}");
assert.deepEqual(await client.invokeScript(script, { keys: ["{t}k"], args: ["x"] }), ["{t}k", "x"]);

assert.deepEqual(await client.exec(new Batch(true).set("{t}n", "1").incr("{t}n"), true), ["OK", 2]);
await client.watch(["{t}n"]);
await other.set("{t}n", "9");
assert.equal(await client.exec(new Batch(true).set("{t}n", "1"), true), null);

await client.del(["{t}l"]);
const blocked = client.blpop(["{t}l"], 300);
await new Promise((resolve) => setTimeout(resolve, 200));
await other.rpush("{t}l", ["item"]);
assert.deepEqual(await blocked, ["{t}l", "item"]);

await client.del(["{t}s"]);
await client.xgroupCreate("{t}s", "g", "0", { mkStream: true });
await client.xadd("{t}s", [["a", "1"]], { id: "1-1" });
assert.deepEqual((await client.xreadgroup("g", "me", { "{t}s": ">" }))[0].value, { "1-1": [["a", "1"]] });

// It subscribes in RESP3 only.
if (isResp3) {
  await client.subscribe(["c"], requestTimeout);
  await client.psubscribe(["p*"], requestTimeout);
  await other.publish("hi", "c");
  await other.publish("ho", "px");
  const got = [(await client.getPubSubMessage()).message, (await client.getPubSubMessage()).message];
  assert.deepEqual(got.sort(), ["hi", "ho"]);
  await client.unsubscribe(["c"], requestTimeout);
}

const caller = async (number) => {
  for (let turn = 0; turn < 20; turn++) {
    const value = `${number}:${turn}.`.repeat(number + 1);
    await client.set("c" + number, value);
    assert.equal(await client.get("c" + number), value);
  }
};
await Promise.all([...Array(50).keys()].map(caller));
process.exit(0);
