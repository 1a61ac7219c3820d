// Time of a model that is quantized from the hub, beside that of one plain download of the same bytes. The hub of the tests stands behind a
// line on which each request waits, and all connections share a bandwidth. Times are the least of some rounds. The goal is 1.2 times the download.
//
//   npm run build && node tests/bench/hub.mjs [--delay 100] [--bandwidth 100,500] [--workers 2] [--rounds 3]
import { fork } from 'node:child_process';
import { once } from 'node:events';
import { mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { parseArgs } from 'node:util';
import { quantizeModel } from '../../dist/model.js';
import { startHub } from '../web/support/hub/hub.mjs';
import { writeMadeLlama } from './made-llama.mjs';

const { values: options, positionals } = parseArgs({
  options: {
    delay: { type: 'string', default: '100' },
    bandwidth: { type: 'string', default: '100,500' },
    workers: { type: 'string', default: '2' },
    rounds: { type: 'string', default: '3' },
  },
  allowPositionals: true,
});

/** Weights of 249 MiB. */
const sizes = { layers: 2, hidden: 2048, inner: 8192, heads: 32, keyHeads: 8, vocabulary: 4096 };
const goal = 1.2;

/** The hub, in a process of its own. It takes settings, and answers with the number of requests since the last ones. @param {string} folder */
async function serveHub(folder) {
  const names = ['config.json', 'tokenizer.json', 'model.safetensors'];
  const files = Object.fromEntries(names.map((name) => [name, readFileSync(join(folder, name))]));
  const hub = await startHub({ repositories: { 'acme/made': { files } } });
  // Hashes the files.
  await fetch(`${hub.endpoint}/api/models/acme/made?blobs=true`);
  process.on('message', (settings) => {
    Object.assign(hub.settings, settings);
    process.send?.({ requests: hub.requests.splice(0).length });
  });
  process.send?.({ endpoint: hub.endpoint });
}

/** Seconds of a run. @param {() => Promise<unknown>} run */
async function secondsOf(run) {
  const start = performance.now();
  await run();
  return (performance.now() - start) / 1000;
}

async function measure() {
  const folder = mkdtempSync(join(tmpdir(), 'scalepoint-hub-'));
  await writeMadeLlama(folder, sizes);
  const server = fork(fileURLToPath(import.meta.url), [folder]);
  try {
    const [{ endpoint }] = await once(server, 'message');
    process.env.HF_ENDPOINT = endpoint;
    process.env.HF_HOME = folder;
    /** Tells the server its settings. @returns {Promise<number>} requests since the last call */
    const set = async (/** @type {object} */ settings) => {
      server.send(settings);
      const [{ requests }] = await once(server, 'message');
      return requests;
    };
    const output = join(folder, 'result');
    const quantized = (/** @type {'int8' | 'Q8_0'} */ to) => () =>
      quantizeModel('hf:acme/made', { to, workers: Number(options.workers), output, overwrite: true });
    const runs = {
      'one download': async () => {
        const { body } = await fetch(`${endpoint}/acme/made/resolve/main/model.safetensors`);
        if (body !== null) for await (const _ of body);
      },
      int8: quantized('int8'),
      Q8_0: quantized('Q8_0'),
    };
    for (const megabits of options.bandwidth.split(',').map(Number)) {
      await set({ delay: Number(options.delay), bandwidth: (megabits * 1e6) / 8 });
      let plain = Number.NaN;
      console.log(`${megabits} Mbit/s, ${options.delay} ms for each request:`);
      for (const [name, run] of Object.entries(runs)) {
        const found = [];
        for (let i = 0; i < Number(options.rounds); i++) found.push(await secondsOf(run));
        const requests = (await set({})) / found.length;
        const seconds = Math.min(...found);
        if (name === 'one download') plain = seconds;
        const times = seconds / plain;
        const judged = `${times.toFixed(2)} times${times > goal ? `, above the goal of ${goal}` : ''}`;
        console.log(`  ${name.padEnd(14)}${seconds.toFixed(2).padStart(7)} s, ${requests} requests, ${judged}`);
      }
    }
  } finally {
    server.kill();
    rmSync(folder, { recursive: true });
  }
}

const [served] = positionals;
await (served === undefined ? measure() : serveHub(served));
