// The readings that the front page comes with, beside those of the package.
import { readFileSync, writeFileSync } from 'node:fs';
import { load } from 'scalepoint';
import { expect, it } from 'vitest';
import { drawTestDigits } from '../../../../scripts/site/digits.mjs';
import { Network, plainStorage, readSample, widths } from '../../../../web/demo/front/network.js';
import { recorded } from '../../../../web/demo/front/recorded.js';
import { recordedReadings } from '../../../../web/demo/front/state.js';
import { path, sample } from '../site.js';

/** The source of web/demo/front/recorded.ts. */
const sourceOf = (readings: typeof recorded) => `/**
 * Readings of the test digits by the network, and its bytes, by its bits. The page shows them until it has computed the same.
 * A test compares it with the package. \`SCALEPOINT_RECORD=1 npx vitest run tests/web/demo/front/recorded\` writes it anew.
 */
export const recorded: Readonly<Record<number, { readonly bytes: number; readonly read: string }>> = {
${Object.entries(readings)
  .map(([bits, { bytes, read }]) => `  ${bits}: {\n    bytes: ${bytes},\n    read: '${read}',\n  },\n`)
  .join('')}};
`;

it('comes with the readings that the package makes of the network, for each width', async () => {
  const core = await load();
  const tensors = readSample(new Uint8Array(readFileSync(sample)).buffer);
  const { images, labels, count } = drawTestDigits();
  const readings: Record<number, { bytes: number; read: string }> = {};
  const right: number[] = [];
  for (const bits of widths) {
    const network = await Network.create(core, tensors, plainStorage(bits));
    const read = network.read(images, count);
    readings[bits] = { bytes: network.bytes, read: read.join('') };
    right.push(read.reduce((sum, digit, n) => sum + Number(digit === labels[n]), 0));
  }
  if (process.env.SCALEPOINT_RECORD === '1') {
    writeFileSync(path('web/demo/front/recorded.ts'), sourceOf(readings));
    return;
  }
  expect(recorded).toEqual(readings);
  const byWidth = [...recordedReadings().values()].reverse();
  expect(byWidth.map((reading) => reading.right)).toEqual(right);
});
