// The targets of libFuzzer (tests/fuzz/cpp): their seeds, for which both kinds of lanes give the same results, and a number of inputs made from
// these, the same in each run. `npm run fuzz:core` searches for longer, and sees which paths of the core an input takes.
import { mkdirSync, rmSync } from 'node:fs';
import { beforeAll, describe, expect, it } from 'vitest';
import { digestIn, families, limits, writeSeeds } from '../../scripts/fuzz_core.mjs';
import { build, root, run } from './native.js';

beforeAll(() => build('scalepoint_fuzzers'));

describe.each(families)('inputs for %s', (family) => {
  const folder = `${root}/build/test/fuzz-${family}`;
  const fuzz = async (tier: string, ...args: string[]) => {
    const prefix = `-artifact_prefix=${root}/build/test/`;
    const { stderr } = await run(`build/native/fuzz_${family}_${tier}`, [prefix, ...limits, ...args]);
    return digestIn(stderr);
  };
  beforeAll(() => {
    rmSync(folder, { recursive: true, force: true });
    writeSeeds(family, `${folder}/seeds`);
    mkdirSync(`${folder}/found`);
  });

  it('have the same results with both kinds of lanes', async () => {
    const digest = await fuzz('simd', '-runs=0', `${folder}/seeds`);
    expect(digest).toMatch(/ of [1-9]\d* inputs$/);
    expect(await fuzz('scalar', '-runs=0', `${folder}/seeds`)).toBe(digest);
  });

  it('stay inside of their memory', async () => {
    expect(
      await fuzz('simd', '-runs=5000', '-seed=1', '-use_cmp=0', `${folder}/found`, `${folder}/seeds`),
    ).toBeDefined();
  });
});
