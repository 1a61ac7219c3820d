// Files that a command line names besides the model: pipes and devices have no size, and may have no end.
import { execFile, spawn } from 'node:child_process';
import { once } from 'node:events';
import { existsSync } from 'node:fs';
import { mkdir, open, readFile, truncate, writeFile } from 'node:fs/promises';
import { pathToFileURL } from 'node:url';
import { promisify } from 'node:util';
import { inspectModel } from 'scalepoint/model';
import { describe, expect, it } from 'vitest';
import * as onnx from '../formats/onnx/encoder.js';
import { safetensors } from '../support/models.js';
import { npy } from '../support/npz.js';
import { decoderConfig, decoderWeights, plainTokenizer } from '../support/tiny-huggingface.js';
import { tinyLlama } from '../support/tiny-llama.js';
import { path, programFile, putModel, run, useFolder } from './support.js';

useFolder();

const mostBytes = 16 * 2 ** 20;
/** The limit for texts and plans. */
const mostText = 256 * 2 ** 20;

/** A command line that reads a file. */
type Reader = readonly [
  name: string,
  words: (file: string) => string[],
  content: string | (() => Promise<string>),
  most?: number,
];

const text = 'a b c d '.repeat(8);
const onTexts = ['--chunk-size', '8', '--workers', '0'];

/** Command lines, a good content of the file, and the largest size. */
const readers: readonly Reader[] = [
  ['--config', (file) => ['model.safetensors', '--to', 'int8', '--config', file, '-o', 'o.safetensors'], '{"a": 1}'],
  ['verify --config', (file) => ['verify', 'model.safetensors', '--config', file], '{"a": 1}'],
  ['--rules', (file) => ['model.safetensors', '--to', 'int8', '--rules', file, '-o', 'o.safetensors'], 'zzz=keep\n'],
  [
    '--tensor-type-file',
    (file) => ['m.gguf', '--to', 'Q8_0', '--tensor-type-file', file, '-o', 'o.gguf'],
    'attn_v=q8_0',
  ],
  ['evaluate --text', (file) => ['evaluate', 'folder', '--text', file, ...onTexts], text, mostText],
  ['evaluate --ids', (file) => ['evaluate', 'folder', '--ids', file, ...onTexts], '1, 2, 3, 4, 5, 6, 7, 8', mostText],
  [
    '--plan',
    (file) => ['model.safetensors', '--plan', file, '-o', 'o.safetensors'],
    async () => {
      await run(['plan', 'model.safetensors', '--to', 'int8', '--save-plan', 'plan.json', '-q']);
      return readFile(path('plan.json'), 'utf8');
    },
    mostText,
  ],
  ['--chat-template', (file) => ['m.gguf', '--to', 'Q8_0', '--chat-template', file, '-o', 'o.gguf'], '{{ x }}'],
];

const product = onnx.product('MatMul', [16, 8], [2, 16], [2, 8])();

/** The model of a folder, with its tokenizer. */
const folder: Readonly<Record<string, Uint8Array | string>> = {
  'model.safetensors': safetensors(
    Object.fromEntries(
      [...decoderWeights({ layers: 1 })].map(([name, { shape, values }]) => [
        name,
        { dtype: 'F32', shape, data: values },
      ]),
    ),
  ),
  'config.json': JSON.stringify(decoderConfig('LlamaForCausalLM', { num_hidden_layers: 1 })),
  'tokenizer.json': JSON.stringify(plainTokenizer({ decoder: null })),
  'tokenizer_config.json': '{}',
};

for (const [name, words, content, most = mostBytes] of readers)
  describe(`the file of ${name}`, () => {
    const put = async () => {
      await putModel();
      await writeFile(path('m.gguf'), tinyLlama({ layers: 1, rows: 2 }));
      await mkdir(path('folder'));
      for (const [name, bytes] of Object.entries(folder)) await writeFile(path('folder', name), bytes);
    };

    it.skipIf(!existsSync('/dev/zero'))('may have no end', async () => {
      await put();
      const { code, stderr } = await run(words('/dev/zero'));
      expect({ code, stderr }).toEqual({
        code: 1,
        stderr: `scalepoint: /dev/zero: the file has more than the ${most} bytes allowed\n`,
      });
      expect(existsSync(path('o.gguf')) || existsSync(path('o.safetensors'))).toBe(false);
    });

    it('may be a byte too long', async () => {
      await put();
      await writeFile(path('long'), '');
      await truncate(path('long'), most + 1);
      expect(await run(words('long'))).toMatchObject({
        code: 1,
        stderr: expect.stringContaining('long: the file has'),
      });
    });

    it('may be a URL of this machine, and of no other', async () => {
      await put();
      await writeFile(path('good'), typeof content === 'string' ? content : await content());
      expect(await run(words(String(pathToFileURL(path('good')))))).toMatchObject({ code: 0 });
      const { code, stderr } = await run(words('https://example.org/file'));
      expect({ code, stderr }).toEqual({
        code: 2,
        stderr: expect.stringMatching(
          /^scalepoint: https:\/\/example\.org\/file: URLs are read for models and their statistics only; save this file, and give its path; see /,
        ),
      });
    });

    it('has to be UTF-8', async () => {
      await put();
      await writeFile(path('latin'), Uint8Array.of(0xe4, 0xf6));
      expect(await run(words('latin'))).toMatchObject({
        code: 1,
        stderr: 'scalepoint: latin: the file is not UTF-8\n',
      });
    });

    it.skipIf(process.platform === 'win32')('may be a pipe whose writer takes its time', async () => {
      await put();
      const good = typeof content === 'string' ? content : await content();
      await promisify(execFile)('mkfifo', [path('pipe')]);
      // Opened for both, so that neither side waits for the other.
      const pipe = await open(path('pipe'), 'r+');
      const done = run(words('pipe'));
      for (const part of [good.slice(0, 3), good.slice(3)]) {
        await new Promise((resolve) => setTimeout(resolve, 50));
        await pipe.write(part);
      }
      await new Promise((resolve) => setTimeout(resolve, 50));
      await pipe.close();
      expect(await done).toMatchObject({ code: 0 });
    });

    it.skipIf(process.platform === 'win32')('does not hold up the process as a pipe without a writer', async () => {
      await put();
      await promisify(execFile)('mkfifo', [path('pipe')]);
      // The pipe is empty.
      expect((await run(words('pipe'))).code).not.toBe(null);
    });
  });

it('a chat template keeps its text', async () => {
  await writeFile(path('m.gguf'), tinyLlama({ layers: 1, rows: 2 }));
  const text = `{{ "ä" }}\r\n${'x'.repeat(200_000)}`;
  await writeFile(path('t'), text);
  expect(await run(['m.gguf', '--to', 'copy', '--chat-template', 't', '-o', 'o.gguf'])).toMatchObject({ code: 0 });
  expect((await inspectModel(path('o.gguf'))).metadata['tokenizer.chat_template']).toBe(text);
});

it.skipIf(!existsSync('/dev/zero'))('stops reading standard input that is not a model', async () => {
  const child = spawn('sh', ['-c', `cat /dev/zero | "${process.execPath}" "${programFile()}" inspect -`]);
  let stderr = '';
  child.stderr.on('data', (text) => {
    stderr += text;
  });
  const [code] = await once(child, 'close');
  expect({ code, stderr }).toEqual({
    code: 1,
    stderr: expect.stringMatching(/^scalepoint: standard input: the file begins with 00 00 00 00/),
  });
});

// Samples are arrays, and read by position.
describe('the file of calibrate --data', () => {
  const words = (file: string) => ['calibrate', 'm.onnx', '--data', file];
  it.skipIf(!existsSync('/dev/zero'))('is a file, no device and no pipe', async () => {
    await writeFile(path('m.onnx'), product);
    await promisify(execFile)('mkfifo', [path('pipe')]);
    for (const file of ['/dev/zero', 'pipe']) {
      expect(await run(words(file))).toMatchObject({ code: 1, stderr: expect.stringContaining('not a regular file') });
    }
    await writeFile(path('long.npy'), new Uint8Array(mostBytes));
    expect(await run(words('long.npy'))).toMatchObject({ code: 1, stderr: expect.stringContaining('long.npy') });
    expect(existsSync(path('imatrix.gguf'))).toBe(false);
  });

  it('may be a URL', async () => {
    await writeFile(path('m.onnx'), product);
    await writeFile(path('x.npy'), npy('<f4', '(2, 16)', new Float32Array(32).fill(0.5).buffer));
    expect(await run(words(String(pathToFileURL(path('x.npy')))))).toMatchObject({ code: 0 });
    const { code, stderr } = await run([...words('https://'), '--force']);
    expect({ code, stderr }).toEqual({
      code: 2,
      stderr: expect.stringMatching(/^scalepoint: --data: expected a URL such as .*, got "https:\/\/"; see /),
    });
  });
});
