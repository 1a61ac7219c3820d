// Files that a command line names besides the model: pipes and devices have no size, and may have no end.
import { execFile, spawn } from 'node:child_process';
import { once } from 'node:events';
import { existsSync } from 'node:fs';
import { open, writeFile } from 'node:fs/promises';
import { promisify } from 'node:util';
import { inspectModel } from 'scalepoint/model';
import { describe, expect, it } from 'vitest';
import { tinyLlama } from '../support/tiny-llama.js';
import { path, programFile, putModel, run, useFolder } from './support.js';

useFolder();

const most = 16 * 2 ** 20;
/** Command lines that read a file, and a good content of it. */
const readers: readonly (readonly [name: string, words: (file: string) => string[], content: string])[] = [
  ['--config', (file) => ['model.safetensors', '--to', 'int8', '--config', file, '-o', 'o.safetensors'], '{"a": 1}'],
  ['verify --config', (file) => ['verify', 'model.safetensors', '--config', file], '{"a": 1}'],
  ['--rules', (file) => ['model.safetensors', '--to', 'int8', '--rules', file, '-o', 'o.safetensors'], 'zzz=keep\n'],
  [
    '--tensor-type-file',
    (file) => ['m.gguf', '--to', 'Q8_0', '--tensor-type-file', file, '-o', 'o.gguf'],
    'attn_v=q8_0',
  ],
  ['--chat-template', (file) => ['m.gguf', '--to', 'Q8_0', '--chat-template', file, '-o', 'o.gguf'], '{{ x }}'],
];

describe.each(readers)('the file of %s', (_, words, content) => {
  const put = async () => {
    await putModel();
    await writeFile(path('m.gguf'), tinyLlama({ layers: 1, rows: 2 }));
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
    await writeFile(path('long'), new Uint8Array(most + 1).fill(0x20));
    expect(await run(words('long'))).toMatchObject({ code: 1, stderr: expect.stringContaining('long: the file has') });
  });

  it('has to be UTF-8', async () => {
    await put();
    await writeFile(path('latin'), Uint8Array.of(0xe4, 0xf6));
    expect(await run(words('latin'))).toMatchObject({ code: 1, stderr: 'scalepoint: latin: the file is not UTF-8\n' });
  });

  it.skipIf(process.platform === 'win32')('may be a pipe whose writer takes its time', async () => {
    await put();
    await promisify(execFile)('mkfifo', [path('pipe')]);
    // Opened for both, so that neither side waits for the other.
    const pipe = await open(path('pipe'), 'r+');
    const done = run(words('pipe'));
    for (const part of [content.slice(0, 3), content.slice(3)]) {
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
  const child = spawn('sh', ['-c', `cat /dev/zero | "${process.execPath}" "${await programFile()}" inspect -`]);
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
