// ioredis or iovalkey. Usage: ioredis.js FOLDER SOCKET
const assert = require("assert");
const Client = require(process.argv[2]);
// Its default is ten seconds for a connection.
const patient = { connectTimeout: 300000 };
(async () => {
  const client = new Client(process.argv[3], patient), other = new Client(process.argv[3], patient);
  assert.equal(await client.set("k", "v"), "OK");
  assert.equal(await client.get("k"), "v");
  assert.deepEqual(await client.multi().set("m", "1").incr("m").exec(), [[null, "OK"], [null, 2]]);
  assert.deepEqual(await Promise.all([...Array(200).keys()].map((n) => client.echo(n))), [...Array(200).keys()].map(String));
  const message = new Promise((resolve) => other.on("message", (channel, text) => resolve(text)));
  await other.subscribe("c");
  await client.publish("c", "hi");
  assert.equal(await message, "hi");
  await other.unsubscribe("c");
  const blocked = other.blpop("list3", 300);
  await client.rpush("list3", "item");
  assert.deepEqual(await blocked, ["list3", "item"]);
  const big = "x".repeat(3000000);
  await client.set("big", big);
  assert.equal(await client.get("big"), big);
  await client.quit();
  await other.quit();
})().catch((error) => { console.error(error); process.exit(1); });
