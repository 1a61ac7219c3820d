// Plans that are saved, and carried out later.
import { readdir, readFile, writeFile } from 'node:fs/promises';
import { expect, it } from 'vitest';
import { path, put, putModel, run, useFolder, wave } from './support.js';

useFolder();

const quiet = { code: 0, stdout: '', stderr: '' };
const failure = async (...args: string[]) => {
  const { code, stderr } = await run(args);
  return `${code} ${stderr}`;
};

it('carries out a saved plan, with the bytes of its options', async () => {
  await putModel();
  const options = ['--to', 'int8', '--rule', 'embed=bfloat16', '--scheme', 'asymmetric'];
  expect(await run(['quantize', 'model.safetensors', ...options, '-o', 'a.safetensors', '-q'])).toEqual(quiet);
  const plan = await run(['plan', 'model.safetensors', ...options, '--save-plan', 'plan.json']);
  expect(plan).toMatchObject({ code: 0, stdout: expect.stringMatching(/\nwrote plan\.json\n$/) });
  const outcome = await run(['model.safetensors', '--plan', 'plan.json', '-o', 'b.safetensors', '-q']);
  expect(outcome).toEqual(quiet);
  expect(await readFile(path('b.safetensors'))).toEqual(await readFile(path('a.safetensors')));
  expect(await readFile(path('b.config.json'))).toEqual(await readFile(path('a.config.json')));
  // `plan` and --dry-run show a saved plan, and quantize saves the plan of its result.
  const shown = await run(['plan', 'model.safetensors', '--plan', 'plan.json', '--json']);
  expect(JSON.parse(shown.stdout).totals).toEqual(JSON.parse(await readFile(path('plan.json'), 'utf8')).totals);
  const again = ['model.safetensors', '--plan', 'plan.json', '-o', 'c.safetensors', '--save-plan', 'again.json', '-q'];
  expect(await run(again)).toEqual(quiet);
  expect(await readFile(path('again.json'))).toEqual(await readFile(path('plan.json')));
});

it('refuses a plan of another model, and writes nothing', async () => {
  await putModel();
  await put('other.safetensors', { 'layers.0.weight': [[16, 64], wave] });
  expect(await run(['plan', 'model.safetensors', '--to', 'int8', '--save-plan', 'plan.json', '-q'])).toEqual(quiet);
  expect(await failure('other.safetensors', '--plan', 'plan.json')).toMatch(
    /^2 scalepoint: --plan: only for the model that it was made of: it plans "embed_tokens\.weight": .*; see scalepoint quantize --help\n$/,
  );
  expect((await readdir(path())).sort()).toEqual(['model.safetensors', 'other.safetensors', 'plan.json']);
});

it('refuses files other than plans, and options beside a plan', async () => {
  await putModel();
  for (const text of ['', 'null', '{}', '[1]', '{"tensors":[],"totals":{}}']) {
    await writeFile(path('plan.json'), text);
    expect(await failure('model.safetensors', '--plan', 'plan.json')).toBe(
      '2 scalepoint: --plan: expected a file of --save-plan, got "plan.json"; see scalepoint quantize --help\n',
    );
  }
  expect(await failure('model.safetensors', '--plan', 'missing.json')).toMatch(
    /^1 .*cannot read "missing\.json": no such/,
  );
  for (const [flag, value] of [
    ['--to', 'int8'],
    ['--rule', 'a=keep'],
    ['--target-size', '1kB'],
    ['--scheme', 'symmetric'],
  ]) {
    expect(await failure('model.safetensors', '--plan', 'plan.json', flag as string, value as string)).toMatch(
      new RegExp(`^2 scalepoint: ${flag}: not together with --plan; see `),
    );
  }
  await writeFile(path('plan.json'), '{"tensors":[],"totals":{},"options":{"to":"int8","odd":1}}');
  expect(await failure('model.safetensors', '--plan', 'plan.json')).toMatch(
    /^1 scalepoint: odd: unknown option|^2 scalepoint: .*odd/,
  );
});

it('replaces a saved plan with --force only, and never the model', async () => {
  await putModel();
  const args = ['plan', 'model.safetensors', '--to', 'int8', '-q', '--save-plan'];
  expect(await run([...args, 'plan.json'])).toEqual(quiet);
  expect(await failure(...args, 'plan.json')).toMatch(/^1 .*"plan\.json" exists already.*--force replaces it\n$/);
  expect(await run([...args, 'plan.json', '-f'])).toEqual(quiet);
  expect(await failure(...args, 'model.safetensors', '-f')).toMatch(
    /^2 .*--save-plan: expected a name of another file, got "model\.safetensors": it is the input itself/,
  );
  expect(await failure('model.safetensors', '--to', 'int8,int4', '--save-plan', 'p.json')).toMatch(
    /^2 .*--to: expected 1 type with --save-plan, got 2/,
  );
});
