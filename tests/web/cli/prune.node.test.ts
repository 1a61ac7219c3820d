// --prune-layers, --leave-output-tensor and --tensor-type-file.
import { writeFile } from 'node:fs/promises';
import type { Note } from 'scalepoint/model';
import { describe, expect, it } from 'vitest';
import { inspectModel } from '../../../web/src/model.js';
import { tinyLlama } from '../support/tiny-llama.js';
import { path, run, useFolder } from './support.js';

useFolder();

describe('options of llama-quantize', () => {
  it('leave out layers, keep the output, and read types from a file', async () => {
    await writeFile(path('m.gguf'), tinyLlama({ layers: 4, rows: 2 }));
    await writeFile(path('types.txt'), 'ATTN_V=q8_0\n  ffn_down=Q5_1 ffn=q4_k\n');
    const words = [
      'm.gguf',
      '--to',
      'Q4_0',
      '--prune-layers',
      '2,0',
      '--leave-output-tensor',
      '--tensor-type-file',
      'types.txt',
    ];
    expect(await run([...words, '-o', 'out.gguf'])).toMatchObject({ code: 0 });
    const { tensors, metadata } = await inspectModel(path('out.gguf'));
    const types = Object.fromEntries(tensors.map(({ name, dtype }) => [name, dtype]));
    expect(metadata).toMatchObject({ 'llama.block_count': 2 });
    expect(types).toMatchObject({
      'output.weight': 'F16',
      'blk.0.attn_v.weight': 'Q8_0',
      'blk.1.ffn_down.weight': 'Q5_1',
      'blk.1.ffn_up.weight': 'Q4_K',
      'blk.0.attn_q.weight': 'Q4_0',
    });
    expect(Object.keys(types).some((name) => name.startsWith('blk.2.'))).toBe(false);
  });

  it.each([
    [3, '99', 'there is no layer 99 to leave out: the model has layers 0 to 2'],
    [3, '1,7,3,7', 'there are no layers 3, 7 to leave out: the model has layers 0 to 2'],
    [1, '1,2,3,4,5,6,7', 'there are no layers 1, 2, 3, 4, 5 and 2 more to leave out: the model has layer 0 alone'],
    [3, '0,1', undefined],
  ] as const)('tell of layers that are not there: of %i, %s', async (layers, left, note) => {
    await writeFile(path('m.gguf'), tinyLlama({ layers, rows: 2 }));
    const { stdout } = await run(['plan', 'm.gguf', '--to', 'Q4_0', '--prune-layers', left, '--json']);
    const { notes } = JSON.parse(stdout) as { notes: Note[] };
    const missing = notes.filter(({ kind }) => kind === 'missingLayers');
    expect(missing.map(({ text }) => text)).toEqual(note === undefined ? [] : [note]);
  });

  it('are refused where they say nothing', async () => {
    await writeFile(path('m.gguf'), tinyLlama({ layers: 1, rows: 2 }));
    await writeFile(path('bad.txt'), 'attn_v q8_0');
    await writeFile(path('unknown.txt'), 'attn_v=q9');
    for (const [words, message] of [
      [['--prune-layers', 'all'], '--prune-layers: expected a string such as 3,4,5, got "all"'],
      [['--tensor-type-file', 'bad.txt'], '--tensor-type-file: expected NAME=TYPE, got "attn_v"'],
      [['--tensor-type-file', 'unknown.txt'], 'q9'],
    ] as const) {
      const outcome = await run(['m.gguf', '--to', 'Q4_0', ...words, '-o', 'out.gguf']);
      expect(outcome, message).toMatchObject({ code: 2, stderr: expect.stringContaining(message) });
    }
  });
});
