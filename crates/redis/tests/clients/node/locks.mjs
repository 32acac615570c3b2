// ioredis and redlock against a server: `node locks.mjs basics|contend SECONDS HOST:PORT...`

import Redis from "ioredis";
import Redlock from "redlock";
import Redlock4 from "redlock-4";
import assert from "node:assert/strict";
import { setTimeout as sleep } from "node:timers/promises";

const [mode, seconds, ...addresses] = process.argv.slice(2);
const clients = [];

function connect(number) {
  const [host, port] = addresses[number % addresses.length].split(":");
  const client = new Redis({ host, port: Number(port), retryStrategy: () => 100 });
  // A node that dies is expected; commands report it themselves.
  client.on("error", () => {});
  clients.push(client);
  return client;
}

// All nodes of a cluster are one: each Redlock has one address.
const redlock = (number, settings) => new Redlock([connect(number)], { retryJitter: 20, ...settings });
const once = { retryCount: 0 };
const patient = { retryCount: 200, retryDelay: 50 };

const tests = {
  async "a lock is taken once, and given back"() {
    const [ana, bo] = [redlock(0, once), redlock(1, once)];
    const lock = await ana.acquire(["node/once"], 10_000);
    await assert.rejects(bo.acquire(["node/once"], 10_000));
    await lock.release();
    await (await bo.acquire(["node/once"], 10_000)).release();
  },
  async "who waits gets it when it is given back"() {
    const [ana, bo] = [redlock(0, once), redlock(1, patient)];
    const lock = await ana.acquire(["node/wait"], 10_000);
    let given = false;
    const waiting = bo.acquire(["node/wait"], 10_000).then((served) => {
      assert(given, "two hold the lock");
      return served;
    });
    await sleep(300);
    given = true;
    await lock.release();
    await (await waiting).release();
  },
  async "an extended lock outlives its first lease"() {
    const [ana, bo] = [redlock(0, once), redlock(1, once)];
    const lock = await ana.acquire(["node/extend"], 1_000);
    const extended = await lock.extend(20_000);
    await sleep(1_500);
    await assert.rejects(bo.acquire(["node/extend"], 10_000));
    await extended.release();
  },
  async "a lost lock is not given back"() {
    const [ana, bo] = [redlock(0, once), redlock(1, patient)];
    const lost = await ana.acquire(["node/lost"], 200);
    const lock = await bo.acquire(["node/lost"], 10_000);
    await assert.rejects(lost.release());
    await assert.rejects(redlock(0, once).acquire(["node/lost"], 10_000));
    await lock.release();
  },
  async "several keys are one lock"() {
    const [ana, bo] = [redlock(0, once), redlock(1, once)];
    const lock = await ana.acquire(["node/a", "node/b"], 10_000);
    await assert.rejects(bo.acquire(["node/b", "node/c"], 10_000));
    await (await bo.acquire(["node/c"], 10_000)).release();
    await lock.release();
  },
  async "a lock is extended as long as it is used"() {
    const seen = await redlock(0, once).using(["node/using"], 1_000, async (signal) => {
      await sleep(2_000);
      await assert.rejects(redlock(1, once).acquire(["node/using"], 1_000));
      return signal.aborted;
    });
    assert.equal(seen, false);
  },
  async "redlock 4 does all of it too"() {
    const [ana, bo] = [new Redlock4([connect(0)], once), new Redlock4([connect(1)], patient)];
    let lock = await ana.lock("node/4", 1_000);
    await assert.rejects(new Redlock4([connect(1)], once).lock("node/4", 1_000));
    lock = await lock.extend(20_000);
    await sleep(1_500);
    const waiting = bo.lock("node/4", 10_000);
    await sleep(200);
    await lock.unlock();
    await (await waiting).unlock();
    await assert.rejects(lock.unlock());
  },
};

// Eight want one lock all the time. Two inside at once would be seen.
const contending = {
  async "never two hold the lock"() {
    const until = Date.now() + Number(seconds) * 1_000;
    let inside = 0, served = 0, counter = 0, failed = 0, last = 0;
    const worker = async (number) => {
      const lockers = redlock(number, patient);
      while (Date.now() < until) {
        let lock;
        try {
          lock = await lockers.acquire(["node/contended"], 4_000);
        } catch {
          failed += 1;
          await sleep(20);
          continue;
        }
        assert.equal(++inside, 1, "two hold the lock");
        const seen = counter;
        await sleep(2);
        counter = seen + 1;
        served += 1;
        last = Date.now();
        inside -= 1;
        // What is not given back, because nobody answers, runs out.
        await lock.release().catch(() => {});
      }
    };
    await Promise.all([...Array(8).keys()].map(worker));
    console.log(`measured: ioredis and redlock: served ${served} times, ${failed} acquires failed`);
    assert.equal(counter, served);
    assert(served > 50, `served only ${served} times`);
    assert(until - last < 15_000, "nobody was served at the end");
  },
};

let failures = 0;
const chosen = Object.entries(mode === "contend" ? contending : tests);
for (const [name, test] of chosen) {
  try {
    await test();
    console.log(`test ${name} ... ok`);
  } catch (error) {
    failures += 1;
    console.log(`test ${name} ... FAILED`, error);
  }
}
clients.forEach((client) => client.disconnect());
const verdict = failures === 0 ? "ok" : "FAILED";
console.log(`test result: ${verdict}. ${chosen.length - failures} passed; ${failures} failed`);
process.exit(failures === 0 ? 0 : 1);
