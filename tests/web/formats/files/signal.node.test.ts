// A signal ends the work from the first byte on, at every wait.
import { execFile, spawn } from 'node:child_process';
import { once } from 'node:events';
import { existsSync } from 'node:fs';
import { mkdtemp, readdir, readlink, rm, writeFile } from 'node:fs/promises';
import { createServer, type Server, type ServerResponse } from 'node:http';
import type { AddressInfo } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { build } from 'rolldown';
import {
  compareModels,
  type FileInput,
  inspectModel,
  type ModelInput,
  planModel,
  quantizeModel,
  readTensor,
} from 'scalepoint/model';
import { afterAll, afterEach, beforeAll, describe, expect, it } from 'vitest';
import { rejectionOf, safetensors, weights } from '../../support/models.js';

/** Its header takes more than the 100 kB that are asked for first. */
const model = safetensors(
  { 'a.weight': weights('F32', [8, 64]), 'b.weight': weights('F32', [8, 64], 2) },
  { text: 'x'.repeat(300_000) },
);
const index = (name: string) =>
  new TextEncoder().encode(JSON.stringify({ weight_map: { 'a.weight': name, 'b.weight': name } }));
const never = new Promise<never>(() => {});

let folder = '';
beforeAll(async () => {
  folder = await mkdtemp(join(tmpdir(), 'scalepoint-signal-'));
});
afterAll(() => rm(folder, { recursive: true, force: true }));

let server: Server | undefined;
afterEach(() => {
  server?.closeAllConnections();
  server?.close();
});

/** Answers a request for a range, if it is for one. True if the answer will never end. */
type Answer = (response: ServerResponse, range: readonly [number, number] | undefined, path: string) => boolean;

/** A server; how many answers hang, and how many of them the client gave up. */
async function serve(answer: Answer) {
  const given = { stuck: 0, up: 0 };
  server = createServer((request, response) => {
    const [, begin, last] = /^bytes=(\d+)-(\d+)$/.exec(request.headers.range ?? '') ?? [];
    response.on('close', () => {
      if (!response.writableFinished) given.up++;
    });
    const range = begin === undefined ? undefined : ([Number(begin), Number(last)] as const);
    if (answer(response, range, request.url ?? '')) given.stuck++;
  });
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  const { port } = server.address() as AddressInfo;
  return { url: new URL(`http://127.0.0.1:${port}/model.safetensors`), given };
}

/** Answers a range as it should be. */
function answerRange(response: ServerResponse, [begin, last]: readonly [number, number], bytes = model) {
  response.writeHead(206, { 'content-range': `bytes ${begin}-${last}/${bytes.length}` });
  response.end(bytes.subarray(begin, last + 1));
  return false;
}

/** Never answers. */
const stalled: Answer = () => true;
/** Answers the first requests, and then only begins. */
const stalledAfter =
  (requests: number): Answer =>
  (response, range) => {
    if (range === undefined) return true;
    if (requests-- > 0) return answerRange(response, range);
    response.writeHead(206, { 'content-range': `bytes ${range[0]}-${range[1]}/${model.length}` });
    response.flushHeaders();
    return true;
  };
/** A byte every few milliseconds. */
const dripping: Answer = (response, range) => {
  if (range === undefined || range[1] === 0) return answerRange(response, range ?? [0, 0]);
  response.writeHead(206, { 'content-range': `bytes ${range[0]}-${range[1]}/${model.length}` });
  const timer = setInterval(() => response.write('x'), 5);
  response.on('close', () => clearInterval(timer));
  return true;
};
/** A whole file without an end. */
const endless: Answer = (response) => {
  response.writeHead(200);
  const more = () => {
    while (!response.destroyed && response.write(new Uint8Array(1 << 14)));
  };
  response.on('drain', more);
  more();
  return true;
};

const reason = new Error('enough');
const never_ = join('never', 'written.safetensors');

/** All that can be done with a model. */
const calls: readonly [name: string, (file: ModelInput, signal: AbortSignal) => Promise<unknown>][] = [
  ['inspectModel', (file, signal) => inspectModel(file, { signal })],
  ['readTensor', (file, signal) => readTensor(file, 'a.weight', { signal })],
  ['planModel', (file, signal) => planModel(file, { to: 'int8', signal })],
  ['quantizeModel', (file, signal) => quantizeModel(file, { to: 'int8', signal, output: never_ })],
  ['compareModels', (file, signal) => compareModels(model, file, { signal })],
];

/** Expects that a call ends by the signal, which comes when the call hangs. */
async function ends(call: (signal: AbortSignal) => Promise<unknown>, hangs = () => true): Promise<void> {
  const controller = new AbortController();
  const outcome = rejectionOf(call(controller.signal));
  await expect.poll(hangs, { interval: 1 }).toBe(true);
  await new Promise((resolve) => setTimeout(resolve, 10));
  controller.abort(reason);
  expect(await outcome).toBe(reason);
}

describe.each(calls)('%s', (_, call) => {
  it.each([
    ['that never answers', stalled],
    ['that only begins', stalledAfter(0)],
    ['that ends in the header', stalledAfter(1)],
    ['that drips', dripping],
    ['that never ends', endless],
  ] as const)('leaves a server %s', async (_, answer) => {
    const { url, given } = await serve(answer);
    await ends(
      (signal) => call(url, signal),
      () => given.stuck > 0,
    );
    await expect.poll(() => given.up, { interval: 5 }).toBe(1);
  });

  it('leaves a shard that never comes', async () => {
    const { url, given } = await serve((response, range, path) => {
      const isIndex = path === '/model.safetensors' && range !== undefined;
      return isIndex ? answerRange(response, range, index('shard.safetensors')) : true;
    });
    await ends(
      (signal) => call(url, signal),
      () => given.stuck > 0,
    );
    await expect.poll(() => given.up, { interval: 5 }).toBe(1);
  });

  const isFile = { size: model.length, isFile: () => true };
  it.each<[string, FileInput]>([
    ['tells its size', { stat: () => never, read: () => never }],
    ['gives a byte', { stat: async () => isFile, read: () => never }],
  ])('leaves a handle that never %s', async (_, handle) => {
    await ends((signal) => call(handle, signal));
  });

  it('opens nothing if it was aborted before', async () => {
    let opened = 0;
    const stat = async () => {
      opened++;
      return isFile;
    };
    expect(await rejectionOf(call({ stat, read: () => never }, AbortSignal.abort(reason)))).toBe(reason);
    expect(opened).toBe(0);
  });
});

it('a pipe is refused at once', async () => {
  const pipe = join(folder, 'pipe');
  await promisify(execFile)('mkfifo', [pipe]);
  for (const [, call] of calls) {
    const error = await rejectionOf(call(pipe, new AbortController().signal));
    expect(error).toMatchObject({ code: 'IO', message: expect.stringContaining('not a regular file') });
  }
});

it('a signal also ends the opening and the closing of an output', async () => {
  const file = (methods: object) => methods as unknown as FileSystemFileHandle;
  const createWritable = () => never;
  for (const getFile of [createWritable, () => Promise.resolve(new File([], 'q.safetensors'))]) {
    await ends((signal) => quantizeModel(model, { to: 'int8', signal, output: file({ getFile, createWritable }) }));
  }
  const output = new WritableStream<Uint8Array<ArrayBuffer>>({ close: () => never });
  await ends((signal) => quantizeModel(model, { to: 'int8', signal, output }));
});

it('closes a file that was opened too late', async () => {
  const path = join(folder, 'late.safetensors');
  await writeFile(path, model);
  // Other files and pipes of this process open and close meanwhile.
  const descriptors = '/proc/self/fd';
  const whatIsOpen = async () =>
    Promise.all((await readdir(descriptors)).map((name) => readlink(join(descriptors, name)).catch(() => '')));
  const controller = new AbortController();
  const call = rejectionOf(inspectModel(path, { signal: controller.signal }));
  controller.abort(reason);
  expect(await call).toBe(reason);
  if (existsSync(descriptors)) await expect.poll(whatIsOpen, { interval: 5 }).not.toContain(path);
});

describe('Ctrl-C', () => {
  /** Starts a program of the command line's modules, and waits until it prints a line. */
  async function started(script: string) {
    const entry = join(folder, 'program.mjs');
    const source = new URL('../../../../web/src/cli/', import.meta.url).pathname;
    await writeFile(entry, script.replaceAll("'cli/", `'${source}`));
    const file = join(folder, 'program-bundle.mjs');
    const output = { file, format: 'esm', codeSplitting: false } as const;
    await build({ input: entry, platform: 'node', output, logLevel: 'silent' });
    const child = spawn(process.execPath, [file], { stdio: ['ignore', 'pipe', 'pipe'] });
    let stderr = '';
    child.stderr.setEncoding('utf8').on('data', (text: string) => {
      stderr += text;
    });
    const [line] = await once(child.stdout, 'data');
    return { child, line: String(line).trim(), errors: () => stderr };
  }

  it('ends a command that hangs at once', async () => {
    // A pipe without a writer hangs in a call to the system, which no signal of the library reaches.
    const pipe = join(folder, 'stuck');
    await promisify(execFile)('mkfifo', [pipe]);
    const { child } = await started(`
      import { abortOnSignal } from 'cli/process.ts';
      import { open } from 'node:fs/promises';
      abortOnSignal('interrupted');
      console.log('ready');
      await open(${JSON.stringify(pipe)}, 'r');`);
    child.kill('SIGINT');
    expect(await once(child, 'close')).toEqual([null, 'SIGINT']);
  });

  it.each([1, 2])('%i times ends a process that computes without a pause, and leaves none behind', async (times) => {
    const { child, line, errors } = await started(`
      import { abortOnSignal } from 'cli/process.ts';
      import { isWatched, watch } from 'cli/watched.ts';
      if (isWatched()) {
        abortOnSignal('interrupted');
        console.log(process.pid);
        for (;;);
      }
      process.exitCode = await watch(process.argv[1], []);`);
    expect(Number(line)).not.toBe(child.pid);
    child.kill('SIGINT');
    // Two signals of one kind that come together would be one.
    if (times > 1) child.kill('SIGTERM');
    const [code, signal] = await once(child, 'close');
    expect([signal, errors()]).toEqual([null, 'scalepoint: interrupted\n']);
    expect([130, times > 1 ? 143 : 130]).toContain(code);
    expect(() => process.kill(Number(line), 0)).toThrow('ESRCH');
  });

  it('ends a watched process whose watcher was killed', async () => {
    const { child } = await started(`
      import { endWithWatcher, isWatched, watch } from 'cli/watched.ts';
      if (isWatched()) {
        endWithWatcher();
        console.log('ready');
        setInterval(() => {}, 1000);
      } else await watch(process.argv[1], []);`);
    child.kill('SIGKILL');
    // The stream ends with the last process that holds it.
    await once(child, 'close');
  });
});
