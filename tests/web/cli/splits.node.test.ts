// Models in several files on the command line.
import { readdir, readFile, rm, writeFile } from 'node:fs/promises';
import { describe, expect, it } from 'vitest';
import { inspectModel } from '../../../web/src/model.js';
import { expectBytes, safetensors, weights } from '../support/models.js';
import { tinyLlama } from '../support/tiny-llama.js';
import { path, run, useFolder } from './support.js';

useFolder();

const model = tinyLlama({ layers: 2 });
const checkpoint = safetensors(
  Object.fromEntries(Array.from({ length: 6 }, (_, i) => [`l.${i}.weight`, weights('F32', [16, 128], i + 1)])),
);

/** Runs a command that is to succeed. */
async function done(...args: string[]): Promise<string> {
  const { code, stdout, stderr } = await run(args);
  expect({ code, stderr: code === 0 ? '' : stderr }).toEqual({ code: 0, stderr: '' });
  return stdout;
}

describe('scalepoint split and merge', () => {
  it('copy a GGUF model into several files and back', async () => {
    await writeFile(path('m.gguf'), model);
    const text = await done('split', 'm.gguf', '--split-size', '25KB');
    expect(text).toContain('wrote m-00001-of-00003.gguf');
    expect(await readdir(path())).toEqual([...[1, 2, 3].map((n) => `m-0000${n}-of-00003.gguf`), 'm.gguf']);
    await rm(path('m.gguf'));
    // A folder, or the first file.
    expect(await done('inspect', '.')).toContain('3 files');
    expect(await done('verify', 'm-00001-of-00003.gguf')).toContain('no problems found');
    await done('merge', '.');
    expectBytes(await readFile(path('m.gguf')), model);
    expect(await done('compare', 'm.gguf', 'm-00001-of-00003.gguf')).toMatch(/max error|0/);
    await done('m-00001-of-00003.gguf', '--to', 'Q8_0', '--split-tensors', '10');
    expect(await readdir(path())).toContain('m-Q8_0-00001-of-00003.gguf');
  });

  it('copy safetensors into several files and back', async () => {
    await writeFile(path('model.safetensors'), checkpoint);
    await done('split', 'model.safetensors', '--shard-size', '20KB', '-o', './s.safetensors');
    expect(await readdir(path())).toEqual([
      'model.safetensors',
      's-00001-of-00003.safetensors',
      's-00002-of-00003.safetensors',
      's-00003-of-00003.safetensors',
      's.safetensors.index.json',
    ]);
    await done('merge', 's.safetensors.index.json');
    const info = await inspectModel(path('s.safetensors'));
    expect(info.tensors.map(({ name }) => name)).toEqual([0, 1, 2, 3, 4, 5].map((i) => `l.${i}.weight`));
    const json = JSON.parse(await done('plan', 'model.safetensors', '--to', 'int8', '--shard-size', '5KB', '--json'));
    expect(json.files[0]).toMatchObject({ name: 'model.int8.safetensors.index.json' });
    expect(json.files.map(({ bytes }: { bytes: number }) => bytes)).toHaveLength(4);
    expect(await done('plan', 'model.safetensors', '--to', 'int8', '--shard-size', '5KB')).toContain(
      'would write model.int8-00003-of-00003.safetensors',
    );
  });

  it('never write over what they read', async () => {
    await writeFile(path('m.gguf'), model);
    await done('split', 'm.gguf', '--split-tensors', '9');
    const before = await readdir(path());
    const again = await run(['split', 'm-00001-of-00003.gguf', '--split-tensors', '9', '-o', 'm.gguf', '--force']);
    expect(again).toMatchObject({ code: 2, stderr: expect.stringContaining('is the input itself') });
    const merged = await run(['merge', 'm-00001-of-00003.gguf']);
    expect(merged).toMatchObject({ code: 1, stderr: expect.stringContaining('exists already') });
    expect(await readdir(path())).toEqual(before);
    // Without a name, copies of a file stand beside it.
    await done('quantize', 'm.gguf', '--to', 'COPY', '--name', 'other');
    await done('split', 'm-00001-of-00003.gguf', '--split-tensors', '9');
    expect(await readdir(path())).toEqual(expect.arrayContaining(['m.copy.gguf', 'm.copy-00002-of-00003.gguf']));
  });

  it('say what is wrong with a command line', async () => {
    await writeFile(path('m.gguf'), model);
    for (const [args, message] of [
      [['split', 'm.gguf'], 'split needs --split-size SIZE'],
      [
        ['split', 'm.gguf', '--split-size', '5 apples'],
        '--split-size: expected a number of bytes or a string such as 5GB',
      ],
      [['split', 'm.gguf', '--split-size', '1G', '--shard-size', '1G'], '--split-size: not together with --shard-size'],
      [['split', 'm.gguf', '--split-size', '1G', '--split-tensors', '3'], '--split-tensors'],
      [['split', 'm.gguf', '--split-tensors', '0'], '--split-tensors: expected a whole number from 1'],
      [
        ['split', 'm.gguf', '--split-size', '1G', '--to', 'Q8_0'],
        '--to: expected nothing, got "Q8_0"; scalepoint quantize takes --to',
      ],
      [
        ['merge', 'm.gguf', '--split-size', '1G'],
        '--split-size: expected nothing, got "1G"; scalepoint split takes --split-size',
      ],
      [['merge'], 'merge needs a FILE'],
      [['m.gguf', '--to', 'Q8_0', '--part', '4/3'], '--part: expected a string such as 1/16'],
      [['m.gguf', '--to', 'Q8_0', '--split-size', '1K', '-o', '-'], '--output'],
    ] as const) {
      expect(await run([...args])).toMatchObject({ code: 2, stderr: expect.stringContaining(message) });
    }
    expect(await readdir(path())).toEqual(['m.gguf']);
  });
});

describe('--part', () => {
  it('makes a share of the files; the last one writes the index and config.json', async () => {
    await writeFile(path('in.safetensors'), checkpoint);
    const args = ['in.safetensors', '--to', 'int8', '-o', 'model.safetensors', '--shard-size', '3KB', '--part'];
    const first = await run([...args, '2/2']);
    expect(first).toMatchObject({
      code: 0,
      stderr: expect.stringContaining('part 2/2: 3 files; other parts are missing'),
    });
    expect(await readdir(path())).toEqual([
      'in.safetensors',
      ...[4, 5, 6].map((n) => `model-0000${n}-of-00006.safetensors`),
    ]);
    const last = await run([...args, '1/2']);
    expect(last).toMatchObject({ code: 0, stderr: expect.stringContaining('the result is whole') });
    expect(await readdir(path())).toEqual(expect.arrayContaining(['config.json', 'model.safetensors.index.json']));
    expect(await done('verify', 'model.safetensors.index.json')).toContain('compared with config.json');
    expect(await run([...args, '1/2'])).toMatchObject({ code: 1 });
    const { files, isWhole, tensors } = JSON.parse(await done(...args, '1/2', '--force', '--json', '--quiet'));
    expect([files.length, isWhole, tensors.length]).toEqual([3, true, 3]);
  });
});

describe('--override-kv', () => {
  it('edits the metadata on the way', async () => {
    await writeFile(path('m.gguf'), model);
    await writeFile(path('t.jinja'), '{{ messages }}\n');
    const edits = [
      '--override-kv',
      'llama.context_length=int:128',
      '--override-kv',
      'a.b=str:x=y:z',
      '--name',
      'New name',
    ];
    await done('m.gguf', '--to', 'Q8_0', ...edits, '--chat-template', 't.jinja', '-o', 'out.gguf');
    expect((await inspectModel(path('out.gguf'))).metadata).toMatchObject({
      'llama.context_length': 128,
      'a.b': 'x=y:z',
      'general.name': 'New name',
      'tokenizer.chat_template': '{{ messages }}\n',
    });
    for (const [word, message] of [
      ['a.b', 'expected KEY=TYPE:VALUE'],
      ['a.b=i32:3', 'expected KEY=TYPE:VALUE'],
      ['a.b=int:x', 'expected an int, got "a.b=int:x"'],
      ['a.b=int:-3', 'expected an int'],
      ['a.b=bool:yes', 'expected a bool'],
      ['a.b=float:', 'expected a float'],
      ['general.alignment=int:64', 'general.alignment: expected nothing, got { int: 64 }: it follows from the layout'],
      ['general.name=int:64', 'general.name: expected a string as in file'],
    ] as const) {
      const outcome = await run(['m.gguf', '--to', 'Q8_0', '--override-kv', word]);
      expect(outcome).toMatchObject({ code: 2, stderr: expect.stringContaining('--override-kv') });
      expect(outcome.stderr).toContain(message);
    }
    const twice = await run(['m.gguf', '--to', 'Q8_0', '--name', 'a', '--override-kv', 'general.name=str:b']);
    expect(twice).toMatchObject({
      code: 2,
      stderr: expect.stringContaining('expected no duplicates, got "general.name"'),
    });
    const missing = await run(['m.gguf', '--to', 'Q8_0', '--chat-template', 'none']);
    expect(missing).toMatchObject({
      code: 1,
      stderr: expect.stringContaining('scalepoint: cannot read "none": no such file'),
    });
    expect(await readdir(path())).toEqual(['m.gguf', 'out.gguf', 't.jinja']);
  });
});
