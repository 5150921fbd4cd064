// graphile-worker in the suite (suite/peers.py describes the commands). Runs on the Node.js of the peers' environment.
//
// A job executes one INSERT and sends one follow-up job in one transaction, by the SQL function add_job. The job itself is
// taken before and deleted afterwards, in separate statements: at least once, and after a crash only after four hours. The
// configuration that its authors recommend for speed: 24 concurrent jobs, up to 500 prefetched, deletions in batches.

import { clocked, converse, drained, load, now, rest, sleep, TEXT, timed, url, what } from "./program.mjs";

const { run, runMigrations, makeWorkerUtils, Logger } = load("graphile-worker");
const logger = new Logger(() => (level, message) => { if (level === "error") console.error(message); });
const common = { connectionString: url, logger };
const fast = { worker: { connectionString: url, concurrentJobs: 24, maxPoolSize: 24, logger, localQueue: { size: 500 },
  completeJobBatchDelay: 0, failJobBatchDelay: 0 } };

let last = 0;
const waits = [];
const taskList = {
  insert: async (payload, { withPgClient }) => {
    await withPgClient(async (client) => {
      await client.query("BEGIN");
      await client.query("INSERT INTO business (number) VALUES ($1)", [payload.number]);
      await client.query("SELECT graphile_worker.add_job('follow', $1::json)", [JSON.stringify(payload)]);
      await client.query("COMMIT");
    });
    last = now();
  },
  "no-op": async () => { last = now(); },
  timed: async (payload) => { waits.push(now() - payload.sent); },
};

const specs = (name, payload, count) => Array.from({ length: count }, (_, number) => ({ identifier: name, payload: { number, ...payload } }));

async function send(utils, count, batch) {
  const payload = { Number: 1, Text: TEXT };
  for (let n = 0; n < count; n += batch) {
    if (batch === 1) await utils.addJob("send", payload);
    else await utils.addJobs(specs("send", payload, batch));
  }
}

if (what === "install") await runMigrations(common);
else if (what === "work") {
  await converse(async () => {
    const runner = await run({ preset: fast, taskList, noHandleSignals: true });
    await drained(() => last);
    await runner.stop();
    return last;
  });
} else {
  const utils = await makeWorkerUtils(common);
  if (what === "fill")
    for (let n = 0; n < Number(rest[1]); n += 1000) await utils.addJobs(specs(rest[0], {}, Math.min(1000, Number(rest[1]) - n)));
  else if (what === "send") await clocked(() => send(utils, ...rest.map(Number)));
  else {
    await run({ ...common, taskList, noHandleSignals: true });
    await sleep(1);
    await converse((line) => timed(line, waits, (sent) => utils.addJob("timed", { sent })));
  }
  await utils.release();
}
process.exit(0);
