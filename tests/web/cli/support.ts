/** Runs command lines: in this process, or as a process of their own where the process itself is what is tested. */
import { type ChildProcess, spawn } from 'node:child_process';
import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { afterEach, beforeEach } from 'vitest';
import { explainFailure, run as runCommand } from '../../../web/src/cli/main.js';

export interface Outcome {
  readonly code: number | null;
  readonly stdout: string;
  readonly stderr: string;
}

let folder = '';

/** An empty folder for each test of the file, in which commands run. */
export function useFolder(): void {
  beforeEach(async () => {
    folder = await mkdtemp(join(tmpdir(), 'scalepoint-files-'));
  });
  afterEach(() => rm(folder, { recursive: true, force: true }));
}

/** A path in the folder of the test. */
export const path = (...names: readonly string[]) => join(folder, ...names);

// ------------------------------------------------------------------------------------------------------------------ in this process

const variables = ['COLUMNS', 'NO_COLOR', 'FORCE_COLOR', 'TERM'];
const signals = ['SIGINT', 'SIGTERM', 'SIGHUP', 'SIGQUIT'] as const;

/** Sets what commands read of the process, and collects what they print. Returns how to set everything back. */
function enter(args: readonly string[], env: Readonly<Record<string, string>>, place: string) {
  const texts = { stdout: '', stderr: '' };
  const undo: (() => void)[] = [];
  for (const name of ['stdout', 'stderr'] as const) {
    const stream = process[name];
    const { write } = stream;
    stream.write = ((text: string | Uint8Array, ...more: unknown[]) => {
      texts[name] += typeof text === 'string' ? text : Buffer.from(text).toString('latin1');
      const done = more.at(-1);
      if (typeof done === 'function') done();
      return true;
    }) as typeof write;
    undo.push(() => {
      stream.write = write;
    });
  }
  const { argv } = process;
  const cwd = process.cwd();
  process.argv = [...argv.slice(0, 2), ...args];
  process.chdir(place);
  const before = new Map(variables.map((name) => [name, process.env[name]]));
  for (const name of variables) delete process.env[name];
  Object.assign(process.env, env);
  const listeners = new Map(signals.map((name) => [name, process.listeners(name)]));
  undo.push(() => {
    process.argv = argv;
    process.chdir(cwd);
    for (const [name, value] of before) {
      if (value === undefined) delete process.env[name];
      else process.env[name] = value;
    }
    for (const [name, old] of listeners) {
      for (const listener of process.listeners(name)) if (!old.includes(listener)) process.off(name, listener);
    }
  });
  return { texts, leave: () => undo.forEach((one) => void one()) };
}

/** Streams, folder and environment belong to the whole process, so that commands run one after the other. */
let last: Promise<unknown> = Promise.resolve();

/** Runs a command line in this process and in a folder, which is the test's unless another is named. */
export function run(
  args: readonly string[],
  env: Readonly<Record<string, string>> = {},
  place: string = folder,
): Promise<Outcome> {
  const outcome = last.then(async () => {
    const { texts, leave } = enter(args, env, place);
    try {
      const code = await runCommand(args).catch((error: unknown) => explainFailure(error, args));
      return { code, ...texts };
    } finally {
      leave();
    }
  });
  last = outcome.catch(() => {});
  return outcome;
}

// ------------------------------------------------------------------------------------------------------------------ as a process

/** The folder of the built program. */
export const program = fileURLToPath(new URL('../../../dist/', import.meta.url));

/** The file that Node runs. */
export const programFile = (place = program) => join(place, 'cli.js');

export interface ProcessOutcome extends Outcome {
  /** The text on stdout. */
  readonly bytes: Buffer;
}

/** Starts the program as a process in the test's folder. */
export async function start(
  args: readonly string[],
  { env = {}, place, stdin }: { env?: Record<string, string>; place?: string; stdin?: Uint8Array } = {},
): Promise<{ child: ChildProcess; outcome: Promise<ProcessOutcome> }> {
  const { PATH = '' } = process.env;
  const child = spawn(process.execPath, [programFile(place), ...args], { cwd: folder, env: { PATH, ...env } });
  const chunks = { stdout: [] as Uint8Array[], stderr: [] as Uint8Array[] };
  for (const name of ['stdout', 'stderr'] as const) {
    child[name].on('data', (chunk: Uint8Array) => void chunks[name].push(chunk));
  }
  // A program that reads nothing closes the pipe.
  child.stdin.on('error', () => {});
  child.stdin.end(stdin);
  const outcome = new Promise<ProcessOutcome>((resolve) => {
    child.on('close', (code) => {
      const [bytes, stderr] = [Buffer.concat(chunks.stdout), String(Buffer.concat(chunks.stderr))];
      resolve({ code, stdout: String(bytes), stderr, bytes });
    });
  });
  return { child, outcome };
}

// ------------------------------------------------------------------------------------------------------------------------- files

export const wave = (i: number) => Math.sin(i * 1.7) / (1 + (i % 7));

/** The bytes of a safetensors file of F32 tensors; of I64 where the data are bigints. */
export function safetensors(
  tensors: Record<string, [number[], (i: number) => number | bigint]>,
  metadata?: object,
): Uint8Array {
  const header: Record<string, unknown> = metadata === undefined ? {} : { __metadata__: metadata };
  const parts: Uint8Array[] = [];
  let offset = 0;
  for (const [tensor, [shape, value]] of Object.entries(tensors)) {
    const values = Array.from({ length: shape.reduce((a, b) => a * b, 1) }, (_, i) => value(i));
    const isInteger = typeof values[0] === 'bigint';
    const array = isInteger ? BigInt64Array.from(values as bigint[]) : Float32Array.from(values as number[]);
    parts.push(new Uint8Array(array.buffer));
    header[tensor] = { dtype: isInteger ? 'I64' : 'F32', shape, data_offsets: [offset, offset + array.byteLength] };
    offset += array.byteLength;
  }
  const json = Buffer.from(JSON.stringify(header));
  const length = Buffer.alloc(8);
  length.writeBigUInt64LE(BigInt(json.length));
  return Buffer.concat([length, json, ...parts]);
}

/** Writes such a file into the test's folder. */
export const put = (name: string, ...content: Parameters<typeof safetensors>) =>
  writeFile(path(name), safetensors(...content));

export const putModel = () =>
  put(
    'model.safetensors',
    {
      'embed_tokens.weight': [[8, 16], wave],
      'layers.0.weight': [[16, 32], wave],
      'layers.0.bias': [[16], wave],
      steps: [[], () => 3n],
    },
    { format: 'pt' },
  );
