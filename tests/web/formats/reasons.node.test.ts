// The words of every reason to keep a tensor. Other tests look at the data.
import { describe, expect, it } from 'vitest';
import { diffusionReasonText } from '../../../web/src/architectures/diffusion/detect.js';
import { ggufReasonText } from '../../../web/src/formats/gguf/reasons.js';
import { type Reason, sharedReasonText } from '../../../web/src/formats/reason.js';
import { safetensorsReasonText } from '../../../web/src/formats/safetensors/reasons.js';

const shared: readonly (readonly [Reason, string])[] = [
  [{ kind: 'rule' }, 'by a rule'],
  [{ kind: 'copy' }, 'copy'],
  [{ kind: 'sameType' }, 'same type'],
  [{ kind: 'rank', rank: 0 }, 'a single number'],
  [{ kind: 'rank', rank: 1 }, 'a vector'],
  [{ kind: 'rank', rank: 4 }, '4 dimensions'],
  [{ kind: 'empty' }, 'empty'],
  [{ kind: 'dtype', dtype: 'F64' }, 'F64 is not converted'],
  [{ kind: 'nonFloat', dtype: 'I64' }, 'not a float'],
  [{ kind: 'notDivisible', dimension: 100, by: 128 }, 'row length 100 is not a multiple of group size 128'],
  [{ kind: 'notSmaller' }, 'not smaller'],
  [{ kind: 'bias' }, 'bias'],
  [{ kind: 'embedding' }, 'embedding'],
  [{ kind: 'norm' }, 'norm'],
  [{ kind: 'router' }, 'router'],
  [{ kind: 'notWeight' }, 'name does not end in .weight'],
];

const safetensors: readonly (readonly [Reason, string])[] = [
  [{ kind: 'lmHead' }, 'lm_head'],
  [{ kind: 'scale' }, 'scale'],
  [{ kind: 'zeroPoint' }, 'zero point'],
  [{ kind: 'conv1D' }, 'Conv1D'],
  [{ kind: 'smallFloat', bits: 8 }, 'float8 already'],
  [{ kind: 'complex' }, 'complex'],
  [{ kind: 'nameTaken', role: 'data' }, 'packed name taken'],
  [{ kind: 'nameTaken', role: 'scale' }, 'scale name taken'],
  [{ kind: 'nameTaken', role: 'zeroPoint' }, 'zero point name taken'],
  [{ kind: 'nameTaken', role: 'shape' }, 'shape name taken'],
];

const gguf: readonly (readonly [Reason, string])[] = [
  [{ kind: 'output' }, 'output'],
  [{ kind: 'smallWeight' }, 'small weight'],
  [{ kind: 'perLayerProjection' }, 'per-layer projection'],
  [{ kind: 'positionEmbedding' }, 'position embedding'],
  [{ kind: 'tokenTypeEmbedding' }, 'token type embedding'],
  [{ kind: 'convolution' }, 'convolution'],
  [{ kind: 'timeMixing' }, 'time mixing'],
  [{ kind: 'positionBias' }, 'position bias'],
  [{ kind: 'vision' }, 'vision'],
  [{ kind: 'codebook' }, 'codebook'],
];

const diffusion: readonly (readonly [Reason, string])[] = [
  [{ kind: 'parameter' }, 'a parameter'],
  [{ kind: 'architecture' }, 'kept in floats'],
];

describe('the words of a reason', () => {
  it.each([
    ['several formats', sharedReasonText, shared],
    ['safetensors', safetensorsReasonText, safetensors],
    ['GGUF', ggufReasonText, gguf],
    ['diffusion models', diffusionReasonText, diffusion],
  ])('of %s', (_, text, table) => {
    expect(table.map(([reason]) => text(reason))).toEqual(table.map(([, words]) => words));
    expect(text({ kind: 'toString' })).toBeUndefined();
  });

  it('is said by one room', () => {
    const kinds = [shared, safetensors, gguf, diffusion].map((table) => new Set(table.map(([{ kind }]) => kind)));
    expect(new Set(kinds.flatMap((set) => [...set])).size).toBe(kinds.reduce((sum, { size }) => sum + size, 0));
  });
});
