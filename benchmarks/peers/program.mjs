// What pgboss_jobs.mjs and graphile_jobs.mjs share: the clock, the commands on stdin, and the path of the packages.

import { createRequire } from "node:module";
import { createInterface } from "node:readline";

export const [url, what, ...rest] = process.argv.slice(2);
export const load = createRequire(process.env.ROWPOST_BENCH_PEERS + "/");
export const POOL = 10;
export const TEXT = "x".repeat(490);

// the monotonic clock of the machine, the same as Python's time.monotonic()
export const now = () => Number(process.hrtime.bigint()) / 1e9;
export const sleep = (seconds) => new Promise((resolve) => setTimeout(resolve, seconds * 1000));

// Prints "ready", then answers each line of stdin with the result of `answer`.
export async function converse(answer) {
  console.log("ready");
  for await (const line of createInterface({ input: process.stdin })) console.log(await answer(line));
}

// Sends `count` jobs to itself, `gap` seconds apart, and waits until each has recorded its latency.
export async function timed(line, waits, send) {
  const [count, gap] = line.split(" ").map(Number);
  waits.length = 0;
  for (let n = 0; n < count; n++) {
    await send(now());
    await sleep(gap);
  }
  while (waits.length < count) await sleep(0.01);
  return JSON.stringify(waits);
}

// Waits until no handler has ended for a second, because the peer does not report that its queue is empty.
export async function drained(last) {
  const started = now();
  while (now() - Math.max(started, last()) < 1.0) await sleep(0.05);
}

export async function clocked(run) {
  const started = now();
  await run();
  console.log(now() - started);
}
