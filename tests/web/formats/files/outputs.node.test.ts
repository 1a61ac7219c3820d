// Results under names: one of several writers wins, what is there stays what it is, and nothing is left of what failed.
import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import {
  chmod,
  link,
  lstat,
  mkdir,
  mkdtemp,
  open,
  readdir,
  readFile,
  readlink,
  rm,
  stat,
  symlink,
  writeFile,
} from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { pathToFileURL } from 'node:url';
import { build } from 'rolldown';
import { calibrateModel, evaluateModel, quantizeModel } from 'scalepoint/model';
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, it, vi } from 'vitest';
import { writeSidecar } from '../../../../web/src/tooling.js';
import { activationsOf, matrixFile } from '../../support/importance.js';
import { pair, spellings } from '../../support/lora.js';
import { madeUpLlama } from '../../support/made-up-llama.js';
import { rejectionOf, safetensors, weights } from '../../support/models.js';
import * as onnx from '../onnx/encoder.js';

const model = safetensors({ 'a.weight': weights('F32', [8, 64]) });
let expected = new Uint8Array(0);

let programs = '';
beforeAll(async () => {
  programs = await mkdtemp(join(tmpdir(), 'scalepoint-programs-'));
  expected = await (await quantizeModel(model, { to: 'int8' })).bytes();
});
afterAll(() => rm(programs, { recursive: true, force: true }));

let folder = '';
let output = '';
beforeEach(async () => {
  folder = await mkdtemp(join(tmpdir(), 'scalepoint-outputs-'));
  output = join(folder, 'out.safetensors');
});
afterEach(() => rm(folder, { recursive: true, force: true }));

const write = (path: string, overwrite = false) => quantizeModel(model, { to: 'int8', output: path, overwrite });
const exists = { name: 'ScalepointError', code: 'EXISTS' };

/** Lets a function of the file system fail. */
function failing(name: 'link', code: string) {
  return vi
    .spyOn(process.getBuiltinModule('node:fs/promises'), name)
    .mockRejectedValue(Object.assign(new Error(`${code}: not possible here`), { code }));
}

describe('several writers to a name', () => {
  it.each(['with hard links', 'without hard links'])('leave one winner, %s', async (kind) => {
    const spy = kind === 'with hard links' ? undefined : failing('link', 'EPERM');
    try {
      const outcomes = await Promise.allSettled(Array.from({ length: 8 }, (_, i) => writeSidecar(output, `${i}`)));
      const winners = outcomes.flatMap(({ status }, i) => (status === 'fulfilled' ? [i] : []));
      expect(winners).toHaveLength(1);
      expect(await readFile(output, 'utf8')).toBe(String(winners[0]));
      for (const outcome of outcomes) {
        if (outcome.status === 'rejected') expect(outcome.reason).toMatchObject(exists);
      }
      expect(await readdir(folder)).toEqual(['out.safetensors']);
    } finally {
      spy?.mockRestore();
    }
  });

  it('do not replace what came after the start', async () => {
    for (const code of [undefined, 'ENOTSUP']) {
      const spy = code === undefined ? undefined : failing('link', code);
      await rm(output, { force: true });
      const onProgress = () => writeFile(output, 'mine');
      const error = await rejectionOf(quantizeModel(model, { to: 'int8', output, onProgress }));
      spy?.mockRestore();
      expect(error).toMatchObject(exists);
      expect(await readFile(output, 'utf8')).toBe('mine');
      expect(await readdir(folder)).toEqual(['out.safetensors']);
    }
  });
});

describe('what is there', () => {
  it('keeps its mode', async () => {
    for (const mode of [0o600, 0o644, 0o755, 0o666, 0o444]) {
      await rm(output, { force: true });
      await writeFile(output, 'old');
      await chmod(output, mode);
      await write(output, true);
      expect((await stat(output)).mode & 0o777).toBe(mode);
      expect(await readFile(output)).toEqual(Buffer.from(expected));
    }
  });

  it('remains a link, and what it leads to is replaced', async () => {
    const other = join(folder, 'other');
    await mkdir(other);
    await writeFile(join(other, 'model'), 'old');
    await chmod(join(other, 'model'), 0o640);
    await symlink('other', join(folder, 'folder'));
    await symlink('../folder/model', join(other, 'second'));
    await symlink(join('folder', 'second'), output);
    expect(await rejectionOf(write(output))).toMatchObject(exists);
    expect(await readFile(output, 'utf8')).toBe('old');
    await write(output, true);
    expect(await readlink(output)).toBe(join('folder', 'second'));
    expect(await readlink(join(other, 'second'))).toBe('../folder/model');
    expect(await readFile(join(other, 'model'))).toEqual(Buffer.from(expected));
    expect((await stat(output)).mode & 0o777).toBe(0o640);
    expect((await readdir(other)).sort()).toEqual(['model', 'second']);
  });

  it('may be a link to a missing file, which needs overwrite', async () => {
    await symlink('missing', output);
    expect(await rejectionOf(write(output))).toMatchObject(exists);
    expect(await readdir(folder)).toEqual(['out.safetensors']);
    await write(output, true);
    expect((await lstat(output)).isSymbolicLink()).toBe(true);
    expect(await readFile(join(folder, 'missing'))).toEqual(Buffer.from(expected));
  });

  it('may be a link to itself, or to a folder, which cannot be written', async () => {
    await symlink('out.safetensors', output);
    expect(await rejectionOf(write(output, true))).toMatchObject({ code: 'IO' });
    await rm(output);
    await symlink('.', output);
    for (const overwrite of [false, true]) {
      expect(await rejectionOf(write(output, overwrite))).toMatchObject({ code: 'IO' });
    }
    expect(await readdir(folder)).toEqual(['out.safetensors']);
  });
});

describe('an open file that is the input', () => {
  it('is refused before it is emptied', async () => {
    const path = join(folder, 'model.safetensors');
    await writeFile(path, model);
    const handle = await open(path, 'r+');
    const other = await open(path, 'r+');
    for (const [input, target] of [
      [handle, handle],
      [handle, other],
      [path, handle],
    ] as const) {
      const error = await rejectionOf(quantizeModel(input, { to: 'int8', output: target }));
      expect(error).toBeInstanceOf(RangeError);
      expect(error).toMatchObject({ option: 'output' });
      expect(await readFile(path)).toEqual(Buffer.from(model));
    }
    await handle.close();
    await other.close();
  });

  it('is recognized by its handle where the system reports no inode', async () => {
    let emptied = 0;
    const handle = {
      stat: async () => ({ size: model.length, mtimeMs: 0, isFile: () => true }),
      async read(buffer: Uint8Array, offset: number, length: number, position: number) {
        buffer.set(model.subarray(position, position + length), offset);
        return { bytesRead: length };
      },
      write: async (_: Uint8Array, __: number, length: number) => ({ bytesWritten: length }),
      async truncate() {
        emptied++;
      },
    };
    const error = await rejectionOf(quantizeModel(handle, { to: 'int8', output: handle }));
    expect(error).toMatchObject({ option: 'output' });
    expect(emptied).toBe(0);
  });
});

describe('a path that is an input', () => {
  const llama = madeUpLlama({ layers: 1, width: 64 });
  const adapted = safetensors({ 'layers.0.q.weight': weights('F32', [8, 64]) });
  const lora = safetensors(spellings['plain names']('layers.0.q', pair(8, 64, 4, 1), 64, 4));
  const product = onnx.product('MatMul', [64, 32], [1, 64], [1, 32])();

  /** Fails, names the option, and leaves all files as they were. */
  async function refused(work: (inside: (name: string) => string) => Promise<unknown>, option = 'output') {
    const before = new Map<string, Buffer>();
    for (const name of await readdir(folder)) before.set(name, await readFile(join(folder, name)));
    const error = await rejectionOf(work((name) => join(folder, name)));
    expect(error).toBeInstanceOf(RangeError);
    expect(error).toMatchObject({ option, message: expect.stringContaining('does not overlap') });
    expect((await readdir(folder)).sort()).toEqual([...before.keys()].sort());
    for (const [name, bytes] of before) expect(bytes.equals(await readFile(join(folder, name))), name).toBe(true);
  }

  beforeEach(async () => {
    for (const [name, bytes] of Object.entries({
      'm.safetensors': model,
      'm.gguf': llama,
      'i.gguf': matrixFile(activationsOf([{ name: 'blk.0.attn_q.weight', shape: [64, 64] }])),
      'adapted.safetensors': adapted,
      'a.safetensors': lora,
      'p.onnx': product,
      's.jsonl': new TextEncoder().encode('{"x": []}'),
      'tokenizer.json': new TextEncoder().encode('{}'),
    }))
      await writeFile(join(folder, name), bytes);
    await symlink('m.safetensors', join(folder, 'soft'));
    await link(join(folder, 'm.safetensors'), join(folder, 'hard'));
  });

  it('is refused by any of its names, also with overwrite', async () => {
    for (const name of ['m.safetensors', './m.safetensors', 'soft', 'hard']) {
      await refused((inside) => {
        const output = name.startsWith('.') ? `${folder}/${name}` : inside(name);
        return quantizeModel(inside('m.safetensors'), { to: 'int8', output, overwrite: true });
      });
    }
    await refused((inside) =>
      quantizeModel(inside('m.safetensors'), {
        to: 'int8',
        output: pathToFileURL(inside('m.safetensors')),
        overwrite: true,
      }),
    );
  });

  it('is refused if an option names it', async () => {
    const overwrite = true;
    await refused((inside) =>
      quantizeModel(inside('m.gguf'), {
        to: 'Q4_K_M',
        importance: inside('i.gguf'),
        output: inside('i.gguf'),
        overwrite,
      }),
    );
    await refused((inside) =>
      quantizeModel(inside('adapted.safetensors'), {
        to: 'int8',
        lora: [{ file: inside('a.safetensors') }],
        output: inside('a.safetensors'),
        overwrite,
      }),
    );
  });

  it('is refused by calls that run models', async () => {
    const overwrite = true;
    await refused((inside) =>
      calibrateModel(inside('m.gguf'), new Uint32Array(64), { output: inside('m.gguf'), overwrite }),
    );
    for (const output of ['p.onnx', 's.jsonl']) {
      await refused((inside) =>
        calibrateModel(inside('p.onnx'), { files: inside('s.jsonl') }, { output: inside(output), overwrite }),
      );
    }
    await refused(
      (inside) => evaluateModel(inside('m.gguf'), { text: new Uint32Array(64), resume: inside('m.gguf') }),
      'resume',
    );
  });
});

describe('partial files', () => {
  /** Starts a program that has a partial file, and waits for that. */
  async function started(): Promise<ChildProcess> {
    const entry = join(programs, 'writer.mjs');
    const source = new URL('../../../../web/src/', import.meta.url).pathname;
    const script = `
      import { pathSink } from '${source}formats/files/path-sink.ts';
      import { abortOnSignal } from '${source}cli/process.ts';
      abortOnSignal('interrupted');
      const sink = await pathSink(process.argv[2], false);
      await sink.write(0, new Uint8Array(1000));
      console.log('ready');
      setInterval(() => {}, 1000);`;
    await writeFile(entry, script);
    const file = join(programs, 'writer-bundle.mjs');
    await build({ input: entry, platform: 'node', output: { file, format: 'esm' }, logLevel: 'silent' });
    const child = spawn(process.execPath, [file, output], { stdio: ['ignore', 'pipe', 'inherit'] });
    await once(child.stdout as NonNullable<typeof child.stdout>, 'data');
    expect(await readdir(folder)).toEqual([expect.stringMatching(/\.partial$/)]);
    return child;
  }

  it.each(['SIGINT', 'SIGQUIT', 'SIGTERM', 'SIGHUP'] as const)('are removed at a second %s at once', async (name) => {
    const child = await started();
    // Two signals of one kind that come together would be one.
    child.kill(name === 'SIGINT' ? 'SIGTERM' : 'SIGINT');
    child.kill(name);
    const [code, signal] = await once(child, 'close');
    expect(code).toBeNull();
    expect(['SIGINT', 'SIGTERM', name]).toContain(signal);
    expect(await readdir(folder)).toEqual([]);
  });

  it('of a process that was killed are removed by the next run, and no others', async () => {
    const child = await started();
    const [partial = ''] = await readdir(folder);
    // Of a living process, of another host, and what only looks like one.
    const others = [
      partial.replace(/-\d+-/, `-${process.pid}-`),
      partial.replace(/^\.scalepoint-[0-9a-f]{8}/, '.scalepoint-00000000'),
      `${partial}.txt`,
    ].sort();
    for (const name of others) await writeFile(join(folder, name), '');
    await write(output);
    expect((await readdir(folder)).sort()).toEqual([...others, partial, 'out.safetensors'].sort());
    child.kill('SIGKILL');
    await once(child, 'close');
    await write(output, true);
    expect((await readdir(folder)).sort()).toEqual([...others, 'out.safetensors'].sort());
  });
});
