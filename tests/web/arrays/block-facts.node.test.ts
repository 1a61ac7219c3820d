// The table of block types (cpp/ggml/ggml_types.h) against ggml: importance of columns, and where blocks store their scales. Other tests
// hold sizes (block-types.node.test.ts, gguf/plan.node.test.ts), searches (best-blocks.node.test.ts) and layers (layers/kinds.node.test.ts).
import { blockTypeInfo, blockTypes } from 'scalepoint';
import { describe, expect, it } from 'vitest';
import { blockFacts } from '../../../web/src/core/blocks.js';
import { ImportanceId, ScaleFormId } from '../../../web/src/core/door.js';
import { ggmlDequantize, ggmlQuantize, ggmlRequiresImportance } from '../support/ggml.js';
import { needNative } from '../support/native.js';
import { isSlow } from '../support/slow-native.js';
import { Random } from '../support/support.js';

needNative();

/** Bits of float16 numbers. */
const float16 = { one: 0x3c00, two: 0x4000, nan: 0x7e00 };

describe.each(blockTypes)('%s', (type) => {
  const { elements, bytes } = blockTypeInfo(type);
  const { importance, scale } = blockFacts(type);

  it('takes the importance of columns as ggml does', () => {
    expect(importance === ImportanceId.needed).toBe(ggmlRequiresImportance(type));
    // grids.node.test.ts compares their bytes.
    if (isSlow(type)) return;
    const x = new Random(7).uniform(8 * elements);
    const made = (largest: number) =>
      ggmlQuantize(
        type,
        x,
        Float32Array.from({ length: elements }, (_, i) => (i % 3 === 0 ? largest : 1)),
      );
    const isIgnored = Buffer.from(made(1)).equals(made(1000));
    expect(importance === ImportanceId.ignored).toBe(isIgnored);
  });

  /** Stores the scale of a block or its minimum. */
  function put(block: Uint8Array, value: keyof typeof float16, at: number): void {
    const view = new DataView(block.buffer);
    const bits = float16[value];
    if (scale.form === ScaleFormId.float16) view.setUint16(at, bits, true);
    else if (scale.form === ScaleFormId.powerOfTwo) block[at] = value === 'one' ? 127 : 128;
    else {
      for (let i = 0; i < 4; i++) {
        const word = view.getUint16(at + 2 * i, true);
        view.setUint16(at + 2 * i, (word & 0xfff) | (((bits >> (4 * i)) & 15) << 12), true);
      }
    }
  }

  it('has the floats of a block where ggml reads them, and no others', () => {
    const random = new Random(8);
    const fields = scale.minimum ? [scale.at, scale.at + 2] : [scale.at];
    for (let i = 0; i < 20; i++) {
      const block = Uint8Array.from({ length: bytes }, () => random.below(256));
      for (const at of fields) put(block, 'one', at);
      const restored = ggmlDequantize(type, block);
      expect(restored.every(Number.isFinite)).toBe(true);
      const twice = block.slice();
      for (const at of fields) put(twice, 'two', at);
      expect(ggmlDequantize(type, twice)).toEqual(restored.map((v) => 2 * v));
      // ggml reads the byte of a power of two that stands for NaN as a number.
      if (scale.form === ScaleFormId.powerOfTwo) continue;
      for (const at of fields) {
        const wrong = block.slice();
        put(wrong, 'nan', at);
        expect(ggmlDequantize(type, wrong).every(Number.isNaN)).toBe(true);
      }
    }
  });
});
