// FILEs of the command line and inputs in code: paths, folders, URLs as texts and as objects, handles and lists of the browser.
import { mkdir, readFile, writeFile } from 'node:fs/promises';
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { pathToFileURL } from 'node:url';
import {
  compareModels,
  inspectModel,
  loadTensors,
  type ModelInput,
  quantizeModel,
  readTensor,
  verifyModel,
} from 'scalepoint/model';
import { afterAll, beforeAll, beforeEach, describe, expect, it } from 'vitest';
import { rejectionOf, safetensors, weights } from '../support/models.js';
import { path, run, useFolder } from './support.js';

useFolder();

const model = safetensors({ 'a.weight': weights('F32', [8, 128]), 'a.bias': weights('F32', [8]) });

let origin = '';
const asked: string[] = [];
const server = createServer((request, response) => {
  const { pathname } = new URL(request.url ?? '/', 'http://localhost');
  asked.push(pathname);
  if (pathname !== '/models/digits%20x.safetensors' && pathname !== '/') {
    response.writeHead(404).end();
    return;
  }
  response.writeHead(200, { 'content-length': model.length }).end(model);
});
beforeAll(async () => {
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  origin = `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
});
afterAll(() => void server.close());

beforeEach(async () => {
  asked.length = 0;
  await mkdir(path('folder'));
  await writeFile(path('folder', 'model.safetensors'), model);
  await writeFile(path('folder', 'config.json'), '{"model_type":"x"}');
});

/** A file handle of the browser, as far as calls use it. */
const handleOf = (file: File) => ({ kind: 'file', name: file.name, getFile: async () => file });

/** The list of an input element. */
class FileList extends Array<File> {
  readonly [Symbol.toStringTag] = 'FileList';
}

describe('a pipeline of diffusers', () => {
  it('is its transformer or unet, and the command says so', async () => {
    for (const part of ['unet', 'transformer']) {
      await mkdir(path('pipe', part), { recursive: true });
      await writeFile(path('pipe', 'model_index.json'), '{"_class_name":"FluxPipeline"}');
      await writeFile(path('pipe', part, 'diffusion_pytorch_model.safetensors'), model);
      await writeFile(path('pipe', part, 'diffusion_pytorch_model.fp16.safetensors'), 'another spelling');
      expect((await inspectModel(path('pipe'))).tensors).toHaveLength(2);
      const said = `scalepoint: pipe is a pipeline of diffusers; ${part} is read, and its other models are folders to give on their own\n`;
      const plan = await run(['plan', 'pipe', '--to', 'float16']);
      expect(plan).toMatchObject({ code: 0, stderr: said });
      expect(plan.stdout).toContain(`would write pipe/${part}/diffusion_pytorch_model.float16.safetensors`);
      expect((await run(['pipe', '--to', 'float16', '-o', 'out.safetensors', '--force', '--quiet'])).stderr).toBe('');
    }
    await mkdir(path('bare'));
    await writeFile(path('bare', 'model_index.json'), '{}');
    expect((await run(['plan', 'bare', '--to', 'float16'])).stderr).toMatch(/the folder "bare" holds no/);
  });
});

describe('in code, a model is', () => {
  const names = async (input: unknown) => (await inspectModel(input as ModelInput)).tensors.map(({ name }) => name);
  const wanted = ['a.weight', 'a.bias'];

  it('a path, a folder with one model, or a file: URL of either', async () => {
    for (const given of [path('folder', 'model.safetensors'), path('folder'), `${path('folder')}/`]) {
      expect(await names(given), given).toEqual(wanted);
      expect(await names(pathToFileURL(given)), given).toEqual(wanted);
      expect(await names(pathToFileURL(given).href), given).toEqual(wanted);
    }
    // Files beside the model are found in the folder.
    const { config } = await quantizeModel(path('folder'), { to: 'int8', workers: 0, config: { model_type: 'x' } });
    expect(config).toHaveProperty('quantization_config');
    expect(await verifyModel(path('folder'))).toMatchObject({ problems: [] });
    expect(
      (await compareModels(path('folder'), path('folder', 'model.safetensors'), { workers: 0 })).tensors,
    ).toHaveLength(2);
    expect((await readTensor(path('folder'), 'a.bias')).shape).toEqual([8]);
    expect(await rejectionOf(loadTensors(path('folder')))).toMatchObject({ code: 'BAD_FILE' });
  });

  it('the text of a URL', async () => {
    expect(await names(`${origin}/models/digits%20x.safetensors`)).toEqual(wanted);
    expect(await names(new URL(`${origin}/models/digits%20x.safetensors`))).toEqual(wanted);
    expect(await rejectionOf(names(`${origin}/none.gguf`))).toMatchObject({ code: 'IO' });
    expect(await rejectionOf(names('https://'))).toMatchObject({ name: 'RangeError', option: 'file' });
    expect(await rejectionOf(names('https://a b/'))).toMatchObject({ name: 'RangeError', option: 'file' });
    // A path with a colon is a path.
    expect(await rejectionOf(names('httpsx://a'))).toMatchObject({ code: 'IO' });
  });

  it('a handle or a list of the browser', async () => {
    const file = new File([model], 'm.safetensors');
    expect(await names(handleOf(file))).toEqual(wanted);
    expect(await names([handleOf(file), new File(['{}'], 'config.json')])).toEqual(wanted);
    const list = new FileList();
    list.push(file, new File(['{}'], 'config.json'));
    expect(await names(list)).toEqual(wanted);
    const gone = { getFile: () => Promise.reject(new DOMException('gone', 'NotFoundError')) };
    expect(await rejectionOf(names(gone))).toMatchObject({ code: 'IO', message: 'cannot read the file: gone' });
  });

  it('refused by name otherwise', async () => {
    const cases: readonly (readonly [unknown, string])[] = [
      [{}, 'got an object'],
      [{ path: 'x' }, 'got { path: "x" }'],
      [new Float32Array(2), 'got Float32Array'],
      [null, 'got null'],
      [undefined, 'got undefined'],
      [42, 'got 42'],
      [Promise.resolve(model), 'got a Promise; write await file'],
      [[model, 3], 'got 3'],
    ];
    for (const [input, message] of cases) {
      const error = await rejectionOf(names(input));
      expect(error, message).toMatchObject({ name: 'TypeError', option: 'file' });
      expect(String(error)).toContain(message);
    }
    await mkdir(path('empty'));
    expect(await rejectionOf(names(path('empty')))).toMatchObject({ code: 'NOT_FOUND' });
    await writeFile(path('empty', 'a.gguf'), 'x');
    await writeFile(path('empty', 'b.gguf'), 'x');
    const several = await rejectionOf(names(path('empty')));
    expect(several).toMatchObject({ code: 'NOT_FOUND', message: expect.stringContaining('name one: a.gguf, b.gguf') });
  });
});

describe('on the command line, a FILE is', () => {
  it('a URL, whose result goes to the working folder', async () => {
    const url = `${origin}/models/digits%20x.safetensors?download=true`;
    const inspected = await run(['inspect', url, '--json']);
    expect(inspected).toMatchObject({ code: 0, stderr: '' });
    expect(JSON.parse(inspected.stdout).tensors).toHaveLength(2);
    const made = await run([url, '--to', 'int8', '--quiet']);
    expect(made).toMatchObject({ code: 0, stderr: '' });
    const result = await readFile(path('digits x.int8.safetensors'));
    expect(result).toEqual(Buffer.from(await (await quantizeModel(model, { to: 'int8', workers: 0 })).bytes()));
    expect((await run(['verify', url])).code).toBe(0);
    expect((await run(['compare', url, 'digits x.int8.safetensors'])).code).toBe(0);
    await mkdir(path('out'));
    expect((await run([url, '--to', 'bfloat16', '-o', 'out', '--quiet'])).code).toBe(0);
    expect(await readFile(path('out', 'digits x.bfloat16.safetensors'))).toHaveLength(
      8 * 128 * 2 + 16 + (await headerBytes()),
    );
    expect((await run(['inspect', `${origin}/none.gguf`])).code).toBe(1);
    expect(await run(['inspect', 'https://'])).toMatchObject({
      code: expect.any(Number),
      stderr: expect.stringContaining('a URL such as'),
    });
  });

  /** Bytes before the data of the result in out/. */
  async function headerBytes(): Promise<number> {
    const file = await readFile(path('out', 'digits x.bfloat16.safetensors'));
    return 8 + Number(file.readBigUInt64LE(0));
  }

  it('one model: others are refused by name', async () => {
    for (const command of ['inspect', 'verify', 'merge']) {
      const { code, stderr } = await run([command, 'a.gguf', 'b.gguf']);
      expect({ command, code }).toEqual({ command, code: 2 });
      expect(stderr).toMatch(/takes one FILE, got "b\.gguf" as well; for a model in several files, name its folder/);
    }
    expect((await run(['compare', 'a', 'b', 'c'])).stderr).toMatch(/compare takes A and B, got "c" as well; see/);
  });

  it('a URL of the file system', async () => {
    const { code } = await run(['inspect', pathToFileURL(path('folder')).href]);
    expect(code).toBe(0);
  });
});

it('takes config.json for its folder', async () => {
  const { code, stdout } = await run(['inspect', path('folder', 'config.json'), '--json']);
  expect(code).toBe(0);
  expect(JSON.parse(stdout)).toMatchObject({ format: 'safetensors', files: ['model.safetensors'] });
});

it('gives the command for arguments in the order of llama-quantize', async () => {
  const cases: [string[], string][] = [
    [['in.gguf', 'out.gguf', 'Q4_K_M'], 'scalepoint quantize in.gguf --to Q4_K_M -o out.gguf'],
    [['in.gguf', 'q8_0'], 'scalepoint quantize in.gguf --to Q8_0'],
    [["a 'b.gguf", 'c d.gguf', 'q4_k_m'], "scalepoint quantize 'a '\\''b.gguf' --to Q4_K_M -o 'c d.gguf'"],
  ];
  for (const [args, command] of cases) {
    const { code, stderr } = await run(['quantize', ...args]);
    expect(code).toBe(2);
    expect(stderr).toContain(`write: ${command}`);
  }
});

it('fails to compare models without a common tensor', async () => {
  await writeFile(path('other.safetensors'), safetensors({ 'b.weight': weights('F32', [8, 128]) }));
  const { code, stdout, stderr } = await run(['compare', path('folder'), path('other.safetensors')]);
  expect(code).toBe(1);
  expect(stdout).toContain('only in');
  expect(stderr).toContain('the models have no tensor of the same name');
});
