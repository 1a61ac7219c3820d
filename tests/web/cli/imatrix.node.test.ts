// --imatrix, --include-weights and --exclude-weights.
import { readFile, writeFile } from 'node:fs/promises';
import { describe, expect, it } from 'vitest';
import { openSource } from '../../../web/src/formats/files/open.js';
import { readGguf } from '../../../web/src/formats/gguf/header.js';
import { quantizeModel } from '../../../web/src/model.js';
import { activationsOf, matrixFile } from '../support/importance.js';
import { tinyLlama } from '../support/tiny-llama.js';
import { path, run, useFolder } from './support.js';

useFolder();

describe('--imatrix', () => {
  const model = tinyLlama({ layers: 1, rows: 2 });

  async function files() {
    const known = activationsOf((await readGguf(await openSource(model))).tensors);
    await writeFile(path('m.gguf'), model);
    await writeFile(path('im.gguf'), matrixFile(known));
  }

  it('gives the file that the API gives', async () => {
    await files();
    const words = [
      'm.gguf',
      '--to',
      'Q4_0',
      '--imatrix',
      'im.gguf',
      '--exclude-weights',
      'attn_v',
      '--exclude-weights',
      'up',
    ];
    expect(await run([...words, '-o', 'out.gguf'])).toMatchObject({ code: 0 });
    const excludeWeights = ['attn_v', 'up'];
    const named = new File([await readFile(path('im.gguf'))], 'im.gguf');
    const result = await quantizeModel(model, { to: 'Q4_0', workers: 0, importance: named, excludeWeights });
    expect(Buffer.compare(await readFile(path('out.gguf')), await result.bytes())).toBe(0);
  });

  it('is in the plan, with a note', async () => {
    await files();
    const { code, stdout, stderr } = await run(['plan', 'm.gguf', '--to', 'Q2_K_S', '--imatrix', 'im.gguf']);
    expect(code).toBe(0);
    expect(stdout + stderr).toContain('without importance');
  });

  it('is refused where it is no matrix, and nothing is written', async () => {
    await files();
    const outcome = await run(['m.gguf', '--to', 'Q4_0', '--imatrix', 'm.gguf', '-o', 'out.gguf']);
    expect(outcome).toMatchObject({ code: 1, stderr: expect.stringContaining('not an importance matrix') });
    await expect(readFile(path('out.gguf'))).rejects.toThrow('ENOENT');
    const lacking = await run(['m.gguf', '--to', 'Q2_K_S', '-o', 'out.gguf']);
    expect(lacking).toMatchObject({ code: 2, stderr: expect.stringContaining('imatrix') });
    const both = await run([
      'm.gguf',
      '--to',
      'Q4_0',
      '--imatrix',
      'im.gguf',
      '--include-weights',
      'a',
      '--exclude-weights',
      'b',
    ]);
    expect(both).toMatchObject({ code: 2, stderr: expect.stringContaining('exclude-weights') });
  });
});
