// pg-boss in the suite (suite/peers.py describes the commands). Runs on the Node.js of the peers' environment.
//
// A job executes one INSERT and sends one follow-up job in one transaction, by the option `db`. The job itself is fetched
// before and completed afterwards, in separate statements, 100 at a time: at least once. The fastest configuration that was
// found: batches of 100, fetched without a pause while they are full (burstWhenBatchFull), ten concurrent handlers.

import { clocked, converse, drained, load, now, POOL, rest, sleep, TEXT, timed, url, what } from "./program.mjs";

const { PgBoss } = load("pg-boss");
const pg = load("pg");
const BATCH = 100;
const QUEUES = ["insert", "no-op", "timed", "follow", "send"];
const quiet = what !== "serve"; // turn off maintenance and schedules, as far as the options allow, so that they are not counted
const boss = new PgBoss({ connectionString: url, max: POOL, supervise: !quiet, schedule: !quiet, useListenNotify: !quiet });
boss.on("error", (error) => { console.error(error); process.exit(1); });
await boss.start();

let last = 0;
const waits = [];
const pool = new pg.Pool({ connectionString: url, max: POOL });

async function insert(job) {
  const client = await pool.connect();
  try {
    await client.query("BEGIN");
    await client.query("INSERT INTO business (number) VALUES ($1)", [job.data.number]);
    await boss.send("follow", job.data, { db: { executeSql: (text, values) => client.query(text, values) } });
    await client.query("COMMIT");
  } finally {
    client.release();
  }
}

const handlers = {
  insert: async (jobs) => {
    for (let n = 0; n < jobs.length; n += POOL) await Promise.all(jobs.slice(n, n + POOL).map(insert));
    last = now();
  },
  "no-op": async () => { last = now(); },
};

async function work() {
  await converse(async (name) => {
    await boss.work(name, { batchSize: BATCH, burstWhenBatchFull: true, pollingIntervalSeconds: 0.5 }, handlers[name]);
    await drained(() => last);
    await boss.offWork(name);
    return last;
  });
}

async function serve() {
  await boss.work("timed", async ([job]) => { waits.push(now() - job.data.sent); });
  await sleep(1);
  await converse((line) => timed(line, waits, (sent) => boss.send("timed", { sent })));
}

async function send(count, batch) {
  const data = { Number: 1, Text: TEXT };
  for (let n = 0; n < count; n += batch) {
    if (batch === 1) await boss.send("send", data);
    else await boss.insert("send", Array.from({ length: batch }, () => ({ data })));
  }
}

async function fetch(count, batch) {
  for (let n = 0; n < count; ) {
    const jobs = await boss.fetch("send", { batchSize: batch });
    if (jobs.length === 0) throw new Error(`only ${n} of ${count} jobs were there`);
    await boss.complete("send", jobs.map((job) => job.id));
    n += jobs.length;
  }
}

if (what === "install") for (const name of QUEUES) await boss.createQueue(name, { notify: name === "timed" });
else if (what === "fill") {
  const [name, count] = [rest[0], Number(rest[1])];
  for (let n = 0; n < count; n += 1000)
    await boss.insert(name, Array.from({ length: Math.min(1000, count - n) }, (_, k) => ({ data: { number: n + k } })));
} else if (what === "send") await clocked(() => send(...rest.map(Number)));
else if (what === "fetch") await clocked(() => fetch(...rest.map(Number)));
else if (what === "work") await work();
else await serve();
await boss.stop({ graceful: false, close: true });
process.exit(0);
