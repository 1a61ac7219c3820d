// Journals of interrupted runs that another program changed: each is a typed error, or means the same.
import { mkdtemp, readFile, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import fc from 'fast-check';
import { planModel, ScalepointError } from 'scalepoint/model';
import { afterAll, beforeAll, expect, it } from 'vitest';
import { journalPath, ResumableRun } from '../../../web/src/cli/resume.js';
import { safetensors } from '../support/models.js';

let folder = '';
beforeAll(async () => {
  folder = await mkdtemp(join(tmpdir(), 'scalepoint-journal-'));
});
afterAll(() => rm(folder, { recursive: true }));

const file = safetensors({ 'a.weight': { dtype: 'F32', shape: [32, 32], data: new Float32Array(1024) } });
const facts = { model: [['model.safetensors', 1, 2]] as const, options: { to: 'int8' } };

it('is an error that names the file, whatever was changed', async () => {
  const output = join(folder, 'out.safetensors');
  const path = journalPath(output);
  const plan = await planModel(file, { to: 'int8' });
  const open = () => ResumableRun.open(output, plan, facts, false);
  const run = await open();
  await run.begin(1);
  await writeFile(output, 'result');
  await run.end(1, [output], { report: { tensors: [] } as never, contents: { config: { x: [1, Number.NaN] } } });
  const state = await readFile(path);
  const again = await open();
  expect(again.isResumed).toBe(true);
  const whole = await again.done(1, folder);
  expect(whole).toMatchObject({ contents: { config: { x: [1, Number.NaN] } } });

  const damaged = fc.oneof(
    fc.record({ at: fc.nat(state.length - 1), by: fc.integer({ min: 1, max: 127 }) }),
    fc.record({ end: fc.nat(state.length - 1) }),
    fc.constantFrom('null', '{}', '[]', '{"parts":null}', '', 'notes of somebody').map((all) => ({ all })),
  );
  await fc.assert(
    fc.asyncProperty(damaged, async (one) => {
      const bytes =
        'all' in one ? Buffer.from(one.all) : Buffer.from('end' in one ? state.subarray(0, one.end) : state);
      if ('by' in one) bytes[one.at] = (bytes[one.at] as number) ^ one.by;
      await writeFile(path, bytes);
      const error: unknown = await open().catch((reason: unknown) => reason);
      // A digit of a time may be one that its number does not hold.
      if (error instanceof ResumableRun) {
        expect(await error.done(1, folder)).toEqual(whole);
        return;
      }
      expect(error).toBeInstanceOf(ScalepointError);
      expect(error).toMatchObject({ path, code: expect.stringMatching(/^(BAD_FILE|CHANGED)$/) });
      // A file of another program is not to be removed.
      if ('all' in one) expect((error as Error).message).not.toContain('remove');
    }),
    { numRuns: 300, seed: 1 },
  );
});
