// The script that makes the bundled sample model.
import { readFileSync } from 'node:fs';
import { expect, it } from 'vitest';
import { makeSample, samplePath } from '../../../scripts/site/digits.mjs';

it('gives the bytes of the sample model', () => {
  expect(Buffer.from(makeSample().bytes).equals(readFileSync(samplePath))).toBe(true);
});
