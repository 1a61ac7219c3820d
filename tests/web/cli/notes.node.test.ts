import { writeFile } from 'node:fs/promises';
import type { Note } from 'scalepoint/model';
import { describe, expect, it } from 'vitest';
import { ggufFile, tinyLlama } from '../support/tiny-llama.js';
import { path, put, putModel, run, useFolder, wave } from './support.js';

/** Shape and values. */
type Stored = [number[], typeof wave];

useFolder();

/** The notes of a plan in words, which a run prints on stderr. */
async function notesOf(file: string, to: string, ...rules: string[]): Promise<string[]> {
  const args = [file, '--to', to, ...rules.flatMap((rule) => ['--rule', rule])];
  const { code, stderr } = await run(['plan', ...args]);
  expect(code).toBe(0);
  const { notes } = JSON.parse((await run(['plan', ...args, '--json'])).stdout) as { notes: Note[] };
  const texts = notes.map(({ text }) => text);
  expect(stderr).toBe(texts.map((text) => `scalepoint: ${text}\n`).join(''));
  const made = await run([...args, '--force']);
  expect(made.stderr).toBe(stderr);
  return texts;
}

describe('a rule without effect is a note', () => {
  it('of GGUF: what llama.cpp needs in floats, types that fit no row, and names that nobody has', async () => {
    await writeFile(path('m.gguf'), tinyLlama());
    expect(await notesOf('m.gguf', 'Q8_0', 'ffn_up=Q4_0', 'ffn_gate=keep')).toEqual([]);
    expect(await notesOf('m.gguf', 'Q8_0', 'attn_norm=Q4_0')).toEqual([
      'the rule attn_norm=Q4_0 has no effect: "blk.0.attn_norm.weight", "blk.1.attn_norm.weight" kept (a vector)',
    ]);
    expect(await notesOf('m.gguf', 'Q8_0', 'nobody=Q4_0')).toEqual(['no tensor matches the rule nobody']);
    expect(await notesOf('m.gguf', 'Q8_0', 'ffn_.*=Q4_0', 'ffn_up=Q6_K')).toEqual([
      'the rule ffn_up=Q6_K has no effect: earlier rules decide',
    ]);
    // Some of what it matches does become Q6_K.
    expect(await notesOf('m.gguf', 'Q8_0', 'blk=Q6_K')).toEqual([]);
  });

  it('of GGUF: another type that fits the rows', async () => {
    const tensors = [{ name: 'narrow.weight', dtype: 'F32', ne: [96, 4] }];
    await writeFile(path('m.gguf'), ggufFile({ pairs: [], tensors }));
    expect(await notesOf('m.gguf', 'Q8_0', 'narrow=Q4_K')).toEqual([
      'the rule narrow=Q4_K has no effect: "narrow.weight" stored as Q5_0',
    ]);
  });

  it('of safetensors: what cannot have codes', async () => {
    await putModel();
    expect(await notesOf('model.safetensors', 'int8', 'embed=int8', 'layers=float16')).toEqual([
      "packed codes with one scale a row are read by vLLM and transformers; llama.cpp's converter needs groups",
    ]);
    expect(await notesOf('model.safetensors', 'int8', 'bias$=int8')).toEqual([
      'the rule bias$=int8 has no effect: "layers.0.bias" kept (bias)',
    ]);
  });

  it('names a few tensors of many', async () => {
    const norms = Array.from({ length: 5 }, (_, i): [string, Stored] => [`n${i}.norm.weight`, [[8], wave]]);
    await put('m.safetensors', {
      'w.weight': [[8, 32], wave],
      ...Object.fromEntries(norms),
    });
    expect(await notesOf('m.safetensors', 'int8', 'norm=int8')).toEqual([
      'the rule norm=int8 has no effect: "n0.norm.weight", "n1.norm.weight", "n2.norm.weight" and 2 more kept (norm)',
    ]);
  });
});

describe('the summary', () => {
  it('does not call a cast quantized', async () => {
    await putModel();
    const summary = async (...args: string[]) => {
      const { stdout } = await run(['model.safetensors', '--force', ...args]);
      const { totals } = JSON.parse((await run(['plan', 'model.safetensors', ...args, '--json'])).stdout);
      const { quantized, cast, kept } = totals;
      return [/^model\.safetensors: (.*)$/m.exec(stdout)?.[1], quantized, cast, kept];
    };
    expect(await summary('--to', 'float16')).toEqual(['4 tensors, 3 cast, 1 kept', 0, 3, 1]);
    expect(await summary('--to', 'int8')).toEqual(['4 tensors, 1 quantized, 3 kept', 1, 0, 3]);
    expect(await summary('--to', 'int8', '--rule', 'bias=float16')).toEqual([
      '4 tensors, 1 quantized, 1 cast, 2 kept',
      1,
      1,
      2,
    ]);
    expect(await summary('--to', 'int8', '--rule', 'layers=keep')).toEqual(['4 tensors, 0 quantized, 4 kept', 0, 0, 4]);
  });

  it('mentions NaN and infinities that no error counts', async () => {
    const some = (i: number) => (i === 3 ? Number.NaN : i === 5 ? Number.POSITIVE_INFINITY : i);
    await put('one.safetensors', { w: [[4, 4], some], v: [[4, 4], wave] });
    expect((await run(['one.safetensors', '--to', 'bfloat16', '--non-finite', 'keep'])).stdout).toContain(
      '\n2 pairs left out of the errors, NaN or infinite: w\n',
    );
    await put('two.safetensors', { w: [[4, 4], some], v: [[4, 4], some] });
    expect((await run(['two.safetensors', '--to', 'bfloat16', '--non-finite', 'keep'])).stdout).toContain(
      '\n4 pairs left out of the errors, NaN or infinite: 2 tensors\n',
    );
    await put('none.safetensors', { w: [[4, 4], wave] });
    expect((await run(['none.safetensors', '--to', 'bfloat16'])).stdout).not.toContain('left out');
  });
});
