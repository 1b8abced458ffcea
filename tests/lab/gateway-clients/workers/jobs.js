// Jobs of Bull and BullMQ: each adds its number to the file DONE. URL is the server's, MODULES the folder of the packages.
// usage: jobs.js bull|bullmq work         runs jobs, as the README of each shows
//        jobs.js bull|bullmq enqueue      enqueues the numbers that come on standard input, one a line
const fs = require("fs");
const { hostname, port } = new URL(process.env.URL);
const [name, mode] = process.argv.slice(2);
const library = require(`${process.env.MODULES}/${name}`);
const note = async (job) => fs.appendFileSync(process.env.DONE, job.data.number + "\n");
// Both begin their keys with "bull".
const queueName = `jobs-of-${name}`;
const log = (error) => console.error(`${name}: ${error}`);
const connection = { host: hostname, port: +port };

const worker = () => {
  if (name === "bullmq") return new library.Worker(queueName, note, { connection: { ...connection, maxRetriesPerRequest: null } });
  const queue = new library(queueName, process.env.URL);
  queue.process(note);
  return queue;
};
const enqueue = async () => {
  const queue = name === "bullmq" ? new library.Queue(queueName, { connection }) : new library(queueName, process.env.URL);
  queue.on("error", log);
  for await (const line of require("readline").createInterface({ input: process.stdin })) {
    const data = { number: +line };
    await (name === "bullmq" ? queue.add("note", data) : queue.add(data));
  }
  await queue.close();
};
if (mode === "work") worker().on("error", log);
else enqueue();
