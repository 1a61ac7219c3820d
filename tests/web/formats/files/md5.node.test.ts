// MD5 beside node's.
import { createHash } from 'node:crypto';
import { expect, it } from 'vitest';
import { Md5 } from '../../../../web/src/formats/files/checksums.js';
import { xorshift } from '../../support/xorshift.js';

const ofNode = (bytes: Uint8Array) => createHash('md5').update(bytes).digest('hex');

it('equals the sums of other implementations at every length around blocks', () => {
  const random = xorshift(7);
  for (let length = 0; length < 200; length++) {
    const bytes = Uint8Array.from({ length }, () => random());
    const sum = new Md5();
    sum.update(bytes);
    expect(sum.hex(), `${length}`).toBe(ofNode(bytes));
  }
});

it('takes bytes in chunks of any length', () => {
  const random = xorshift(8);
  const bytes = Uint8Array.from({ length: 100_000 }, () => random());
  for (const most of [1, 3, 63, 64, 65, 1000, 70_000]) {
    const sum = new Md5();
    for (let at = 0; at < bytes.length; ) {
      const next = Math.min(bytes.length, at + (random() % most) + (most === 1 ? 1 : 0));
      sum.update(bytes.subarray(at, next));
      at = next;
    }
    expect(sum.hex(), `chunks of up to ${most}`).toBe(ofNode(bytes));
  }
});
