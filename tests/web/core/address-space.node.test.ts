// Processes with little address space, of which engines reserve gigabytes for a memory of WebAssembly.
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { cp, mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { build } from 'rolldown';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { safetensors, weights } from '../support/models.js';

const source = fileURLToPath(new URL('../../../web/src/', import.meta.url));
let folder = '';
beforeAll(async () => {
  folder = await mkdtemp(join(tmpdir(), 'scalepoint-space-'));
  const script = `
    import { load } from ${JSON.stringify(join(source, 'index.ts'))};
    import * as model from ${JSON.stringify(join(source, 'model.ts'))};
    const [call, workers] = process.argv.slice(2);
    const file = ${JSON.stringify(join(folder, 'model.safetensors'))};
    const calls = {
      load: () => load(),
      blocks: () => load({ blocks: true }),
      inspect: () => model.inspectModel(file),
      verify: () => model.verifyModel(file),
      quantize: () => model.quantizeModel(file, { to: 'int8', workers: Number(workers) }),
    };
    const [result, error] = await calls[call]().then((value) => [value, {}], (error) => [undefined, error]);
    const notes = result?.report?.notes.map(({ kind }) => kind);
    console.log(JSON.stringify({ done: result !== undefined, name: error.name, code: error.code, notes }));`;
  await writeFile(join(folder, 'entry.mjs'), script);
  await writeFile(join(folder, 'model.safetensors'), safetensors({ 'a.weight': weights('F32', [8, 64]) }));
  await build({
    input: join(folder, 'entry.mjs'),
    platform: 'node',
    output: { dir: join(folder, 'bundle'), format: 'esm', entryFileNames: 'entry.mjs' },
    logLevel: 'silent',
  });
  for (const name of ['arrays-simd', 'arrays-scalar', 'core-simd', 'core-scalar'])
    await cp(join(source, `core/${name}.wasm`), join(folder, `bundle/${name}.wasm`));
  await cp(join(source, 'workers/scalepoint-worker.js'), join(folder, 'bundle/scalepoint-worker.js'));
});
afterAll(() => rm(folder, { recursive: true, force: true }));

/** Makes a call in a process with that many GiB of address space. */
async function within(gibibytes: number, ...words: string[]): Promise<unknown> {
  const node = `ulimit -v ${gibibytes * 2 ** 20} && exec "$0" "$@"`;
  const child = spawn('sh', ['-c', node, process.execPath, join(folder, 'bundle/entry.mjs'), ...words]);
  let [stdout, stderr] = ['', ''];
  child.stdout.on('data', (text) => {
    stdout += text;
  });
  child.stderr.on('data', (text) => {
    stderr += text;
  });
  const [code] = await once(child, 'close');
  return code === 0 ? JSON.parse(stdout) : { code, stderr };
}

// Other systems have no such limit, and other processors reserve other sizes.
describe.runIf(process.platform === 'linux' && process.arch === 'x64')('with little address space', () => {
  it.each(['load', 'blocks', 'quantize'])('%s throws an error that can be caught', async (call) => {
    const outcome = { done: false, name: 'ScalepointError', code: 'OUT_OF_MEMORY' };
    expect(await within(3, call, '0')).toEqual(outcome);
  });

  it.each(['inspect', 'verify'])('%s works, which takes no wasm', async (call) => {
    expect(await within(3, call)).toMatchObject({ done: true });
  });

  it('the calling thread does the work of workers that have none', async () => {
    expect(await within(16, 'quantize', '2')).toEqual({ done: true, notes: ['noWorkers'] });
  });
});
