// Models of gigabytes through the built command line, in a process of its own, so that its memory can be held to what is promised.
import { execFile } from 'node:child_process';
import { createReadStream } from 'node:fs';
import { type FileHandle, mkdtemp, open, readdir, rm, stat, statfs } from 'node:fs/promises';
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';
import { inspectModel, type ModelInfo } from 'scalepoint/model';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { bytes, graph, int, text, varint } from '../formats/onnx/encoder.js';
import { bigGguf, bigSafetensors, type SparseModel } from '../support/models.js';
import { roundHalfEven } from '../support/support.js';
import { ggufFile } from '../support/tiny-llama.js';

const mebibyte = 2 ** 20;
const gibibyte = 2 ** 30;
const cli = fileURLToPath(new URL('../../../dist/cli.js', import.meta.url));

let folder = '';
beforeAll(async () => {
  folder = await mkdtemp(join(tmpdir(), 'scalepoint-big-'));
});
afterAll(() => rm(folder, { recursive: true, force: true }));

async function needSpace(bytes: number): Promise<void> {
  const { bavail, bsize } = await statfs(folder);
  if (bavail * bsize >= bytes) return;
  throw new Error(`this test needs ${bytes / gibibyte} GiB in ${tmpdir()}, and has ${(bavail * bsize) / gibibyte} GiB`);
}

interface SparseFile extends Pick<SparseModel, 'header' | 'size'> {
  readonly values: readonly Pick<SparseModel['values'][number], 'position' | 'bytes'>[];
}

/** A file whose bytes are zeros, but for the header and a value here and there. */
async function make({ header, size, values }: SparseFile, name: string): Promise<string> {
  const path = join(folder, name);
  const file = await open(path, 'wx');
  await file.write(header, 0, header.length, 0);
  await file.truncate(size);
  for (const { position, bytes } of values) await file.write(bytes, 0, bytes.length, position);
  await file.close();
  return path;
}

async function run(...args: string[]): Promise<{ peakBytes: number; totals: { bytesAfter: number } }> {
  // A heap of this size has no room for garbage, which a busy machine collects late.
  const env = { ...process.env, NODE_OPTIONS: '--max-old-space-size=96' };
  const { stdout } = await promisify(execFile)(process.execPath, [cli, ...args, '--json'], {
    env,
    maxBuffer: 64 * mebibyte,
  });
  return JSON.parse(stdout);
}

/** Quantizes in another process with two workers, holds its memory to the promise, hands the result over. */
async function quantize(
  path: string,
  headerBytes: number,
  [to, ...options]: [string, ...string[]],
  use: (output: string) => Promise<void>,
  tensors = 0,
) {
  const output = `${path}.out`;
  const base = (await run('inspect', path)).peakBytes;
  const args = ['quantize', path, '--to', to, ...options, '--output', output, '--workers', '2'];
  const { peakBytes, totals } = await run(...args);
  // The documentation states the memory of a tensor for models with very many. Models with few are held to the rest.
  const bound = base + 2 * 64 * mebibyte + 4 * headerBytes + 1024 * tensors;
  const inMebibytes = (bytes: number) => `${(bytes / mebibyte).toFixed(0)} MiB`;
  console.log(
    `${inMebibytes((await stat(path)).size)} to ${to} (${inMebibytes(totals.bytesAfter)}): peak ` +
      `${inMebibytes(peakBytes)}, of which ${inMebibytes(base)} for looking into the file; at most ${inMebibytes(bound)}`,
  );
  expect((await stat(output)).size).toBe(totals.bytesAfter);
  expect(peakBytes).toBeGreaterThan(base);
  expect(peakBytes).toBeLessThanOrEqual(bound);
  await use(output);
  expect((await readdir(folder)).filter((name) => name.endsWith('.partial'))).toEqual([]);
  for (const name of await readdir(folder)) if (!path.endsWith(name)) await rm(join(folder, name));
}

async function bytesAt(file: FileHandle, position: number, count: number): Promise<DataView> {
  const bytes = new Uint8Array(count);
  expect((await file.read(bytes, 0, count, position)).bytesRead).toBe(count);
  return new DataView(bytes.buffer);
}

const placeOf = ({ tensors }: ModelInfo, name: string) => {
  const found = tensors.find((tensor) => tensor.name === name);
  if (found === undefined) throw new Error(`${name} is missing`);
  return found;
};

describe('a safetensors model of 2.25 GiB', () => {
  it('becomes int8 within 64 MiB a worker, with every value in its place', async () => {
    const model = bigSafetensors();
    expect(model.size).toBeGreaterThan(2.25 * gibibyte);
    expect(Math.max(...model.values.map(({ position }) => position))).toBeGreaterThan(2 * gibibyte);
    await needSpace(1.5 * gibibyte);
    const path = await make(model, 'model.safetensors');
    await quantize(path, model.header.length, ['int8', '--plain'], async (output) => {
      const info = await inspectModel(output);
      const file = await open(output);
      for (const { tensor, index, columns, value } of model.values) {
        const row = Math.floor(index / columns);
        const scale = (await bytesAt(file, placeOf(info, `${tensor}_scale`).byteOffset + 4 * row, 4)).getFloat32(
          0,
          true,
        );
        // The value alone makes the scale of its row: it is 127.5 steps from 0, or just less where the scale was rounded up.
        expect(scale).toBe(Math.fround(Math.abs(value) / 127.5));
        const code = Math.max(-128, Math.min(127, roundHalfEven(Math.fround(value / scale))));
        const codes = await bytesAt(file, placeOf(info, tensor).byteOffset + index - 1, 3);
        expect([0, 1, 2].map((i) => codes.getInt8(i))).toEqual([0, code, 0]);
      }
      await file.close();
    });
    await rm(path);
  });
});

describe('a GGUF model of 2.25 GiB', () => {
  it('becomes Q4_K_M with Q8_0 within 64 MiB a worker, with every value in its place', async () => {
    const model = bigGguf();
    expect(model.size).toBeGreaterThan(2.25 * gibibyte);
    expect(Math.max(...model.values.map(({ position }) => position))).toBeGreaterThan(2 * gibibyte);
    await needSpace(2 * gibibyte);
    const path = await make(model, 'model.gguf');
    const blocks = { Q4_K: [256, 144], Q6_K: [256, 210], Q8_0: [32, 34] } as Record<string, [number, number]>;
    // The rule takes half of the weights: Q8_0, Q4_K and Q6_K in one pass over the file.
    await quantize(path, model.header.length, ['Q4_K_M', '--rule', 'ffn_(up|gate)=Q8_0'], async (output) => {
      const info = await inspectModel(output);
      const file = await open(output);
      const seen = new Set<string>();
      for (const { tensor, index, value } of model.values) {
        const { dtype, byteOffset } = placeOf(info, tensor);
        seen.add(dtype);
        const [elements, size] = blocks[dtype] as [number, number];
        const at = byteOffset + Math.floor(index / elements) * size;
        const block = await bytesAt(file, at, size);
        if (dtype === 'Q8_0') expect(block.getInt8(2 + (index % 32))).toBe(Math.sign(value) * 127);
        const zeros = new Uint8Array(size);
        expect(new Uint8Array(block.buffer)).not.toEqual(zeros);
        // Of zeros ggml makes scales of 0, and codes that are 0 or the middle.
        const scale = { Q8_0: 0, Q4_K: 0, Q6_K: 208 }[dtype] as number;
        expect(block.getUint16(scale, true)).not.toBe(0);
        expect((await bytesAt(file, at + size, size)).getUint16(scale, true)).toBe(0);
      }
      expect([...seen].sort()).toEqual(Object.keys(blocks).sort());
      await file.close();
    });
    await rm(path);
  });
});

describe('a GGUF model of 208 MiB', () => {
  it('is split, and converted from its files into others, within 64 MiB a worker', async () => {
    const tensors = Array.from({ length: 13 }, (_, i) => ({
      name: `blk.${i}.ffn_up.weight`,
      dtype: 'F16',
      ne: [4096, 2048],
    }));
    const pairs = [
      ['general.architecture', 'string', 'llama'],
      ['llama.block_count', 'u32', 13],
      ['llama.attention.head_count', 'u32', 32],
    ] as const;
    const size = 13 * 2 * 4096 * 2048;
    const head = ggufFile({ pairs, tensors: tensors.map((tensor) => ({ ...tensor, data: new Uint8Array(0) })) });
    const path = await make({ header: head, size: head.length + size, values: [] }, 'model.gguf');
    const base = (await run('inspect', path)).peakBytes;
    const bound = base + 2 * 64 * mebibyte + 4 * head.length;
    expect(bound).toBeLessThan(base + size);
    const within = async (...args: string[]) => {
      const { peakBytes } = await run(...args, '--workers', '2');
      expect(peakBytes).toBeLessThanOrEqual(bound);
    };
    await within('split', path, '--split-size', '51MB');
    const first = join(folder, 'model-00001-of-00005.gguf');
    await within('quantize', first, '--to', 'Q8_0', '--split-size', '27MB');
    for (const name of await readdir(folder)) await rm(join(folder, name));
  });
});

describe('a column-major array of 128 MiB', () => {
  it('becomes int8 within 64 MiB a worker', async () => {
    const shape = [4096, 8192];
    const header = `{'descr': '<f4', 'fortran_order': True, 'shape': (${shape.join(', ')}), }\n`;
    const head = Buffer.alloc(10);
    head.write('\x93NUMPY\x01\x00', 'latin1');
    head.writeUInt16LE(header.length, 8);
    const model = { header: Buffer.concat([head, Buffer.from(header)]), size: 0, values: [] };
    const path = await make({ ...model, size: model.header.length + 128 * mebibyte }, 'array.npy');
    await quantize(path, model.header.length, ['int8'], async () => {});
    await rm(path);
  });
});

/** A model that multiplies by matrices of zeros, each of 64 MiB. */
function matrices(count: number): SparseFile {
  const side = 4096;
  const weights = Array.from({ length: count }, (_, i) => {
    return Buffer.from([...int(1, side), ...int(1, side), ...int(2, 1), ...text(8, `w${i}`)]);
  });
  const rawBytes = 4 * side * side;
  const rawHead = [...varint((9 << 3) | 2), ...varint(rawBytes)];
  const main = Buffer.from(
    graph({
      nodes: weights.map((_, i) => ({ op: 'MatMul', in: [`x${i}`, `w${i}`], out: [`x${i + 1}`] })),
      inputs: [['x0', [1, side]]],
      outputs: [[`x${count}`, [1, side]]],
    }),
  );
  const heads = weights.map((head) => {
    return Buffer.from([
      ...varint((5 << 3) | 2),
      ...varint(head.length + rawHead.length + rawBytes),
      ...head,
      ...rawHead,
    ]);
  });
  const size = main.length + heads.reduce((sum, head) => sum + head.length + rawBytes, 0);
  const header = Buffer.from([...int(1, 8), ...varint((7 << 3) | 2), ...varint(size), ...main]);
  let position = header.length;
  const values = heads.map((head) => {
    const at = position;
    position += head.length + rawBytes;
    return { position: at, bytes: head };
  });
  const end = Buffer.from(bytes(8, [...text(1, ''), ...int(2, 21)]));
  return { header, size: position + end.length, values: [...values, { position, bytes: end }] };
}

/** A server of one file, in ranges. */
async function serve(path: string) {
  const { size } = await stat(path);
  const server = createServer(({ headers }, response) => {
    const [, begin, last] = /^bytes=(\d+)-(\d+)$/.exec(headers.range ?? '') ?? [];
    const [start, end] = [Number(begin), Number(last)];
    response.writeHead(206, { 'content-range': `bytes ${start}-${end}/${size}`, 'content-length': end - start + 1 });
    createReadStream(path, { start, end }).pipe(response);
  });
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  const { port } = server.address() as AddressInfo;
  return { url: `http://127.0.0.1:${port}/`, close: () => server.close() };
}

describe('an ONNX model of 256 MiB', () => {
  const library = new URL('../../../dist/model.js', import.meta.url).href;
  it.each([
    ['q4', 'a server', 2],
    ['q4', 'a Blob', 1],
    ['int8-weights', 'a server', 2],
  ] as const)(
    'becomes %s within 64 MiB a worker, 40 MiB for garbage, and 84 MiB fetched ahead, from %s, with %d worker(s)',
    async (to, from, workers) => {
      const model = matrices(4);
      for (const name of await readdir(folder)) await rm(join(folder, name));
      const path = await make(model, 'model.onnx');
      const output = join(folder, 'out.onnx');
      const server = await serve(path);
      const source =
        from === 'a Blob'
          ? `await (await import('node:fs')).openAsBlob(${JSON.stringify(path)})`
          : `new URL(${JSON.stringify(server.url)})`;
      const code = `
      import { readFileSync } from 'node:fs';
      import { inspectModel, quantizeModel } from ${JSON.stringify(library)};
      // maxRSS counts what the process that started this one had.
      const peak = () => 1024 * Number(/^VmHWM:\\s*(\\d+)/m.exec(readFileSync('/proc/self/status', 'utf8'))[1]);
      const source = ${source};
      await inspectModel(source);
      const base = peak();
      await quantizeModel(source, { to: ${JSON.stringify(to)}, workers: ${workers}, output: ${JSON.stringify(output)} });
      console.log(JSON.stringify({ base, peak: peak() }));`;
      const { stdout } = await promisify(execFile)(process.execPath, ['--input-type=module', '-e', code]);
      server.close();
      const { base, peak } = JSON.parse(stdout);
      console.log(
        `${to} from ${from}: ${((peak - base) / mebibyte).toFixed(0)} MiB above ${(base / mebibyte).toFixed(0)}`,
      );
      expect(peak).toBeGreaterThan(base);
      const ahead = from === 'a server' ? 84 : 0;
      expect(peak - base).toBeLessThanOrEqual((64 * workers + 40 + ahead) * mebibyte);
      expect((await stat(output)).size).toBeLessThan((to === 'q4' ? 0.16 : 0.26) * model.size);
    },
  );
});

describe('50,000 small tensors', () => {
  const count = 50_000;
  const kinds = [
    ['weights of 8 x 8', 'q_proj.weight', 'F32', [8, 8], 256],
    ['biases of 16, which are kept', 'q_proj.bias', 'BF16', [16], 32],
  ] as const;
  it.each(kinds)('%s take 1 KiB each at most', async (_what, name, dtype, shape, bytes) => {
    const entries = Array.from({ length: count }, (_, i) => {
      const offsets = `[${i * bytes},${(i + 1) * bytes}]`;
      return `"model.layers.${i}.self_attn.${name}":{"dtype":"${dtype}","shape":[${shape}],"data_offsets":${offsets}}`;
    });
    const json = Buffer.from(`{${entries.join()}}`);
    const header = Buffer.concat([Buffer.alloc(8), json, Buffer.alloc(-json.length & 7, ' ')]);
    header.writeBigUInt64LE(BigInt(header.length - 8));
    const path = await make({ header, size: header.length + count * bytes, values: [] }, `many-${dtype}.safetensors`);
    // Biases alone convert nothing, which the command line has to be told is meant.
    await quantize(path, header.length, ['int8', '--force'], async () => {}, count);
    await rm(path);
  });
});
