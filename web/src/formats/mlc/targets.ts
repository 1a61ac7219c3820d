/** The targets of results for WebLLM. Reference: github.com/mlc-ai/mlc-llm at 01ced331, python/mlc_llm/quantization/quantization.py. */
import type { MlcForm } from '../codecs/mlc.js';
import type { Target } from '../format.js';
import { statisticsNames } from '../statistics.js';

interface QuantizationFacts extends Omit<Target, 'name' | 'options'> {
  /** The type that the model computes in. */
  readonly floats: MlcForm['floats'];
  /** Its name in MLC. */
  readonly quantization: string;
}

const table = {
  'mlc-q4f16_1': {
    about: 'WebLLM: 4 bits in groups of 32, float16',
    floats: 'F16',
    quantization: 'q4f16_1',
  },
  'mlc-q4f32_1': {
    about: 'WebLLM: the same for GPUs without float16',
    floats: 'F32',
    quantization: 'q4f32_1',
  },
} as const satisfies Readonly<Record<string, QuantizationFacts>>;

/** A target of a result for WebLLM. */
export type MlcTarget = keyof typeof table;

export const mlcTargets: readonly Target[] = Object.entries(table).map(([name, { about }]) => {
  return { name, about, options: ['search', ...statisticsNames, 'requantize', 'nonFinite'] };
});

/** The facts of a target. */
export function quantizationOf(to: MlcTarget): QuantizationFacts {
  return table[to];
}
