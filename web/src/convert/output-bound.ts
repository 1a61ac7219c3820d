/** The option `minOutput`: how close outputs have to be to those of the original. */
import { rangeError, typeError } from '../core/errors.js';
import type { Expected } from '../core/option-problem.js';

/** The least quality of each output. */
export interface OutputBound {
  /** Its measure: the cosine to the output of the original, or the SQNR in dB. */
  readonly kind: 'cosine' | 'sqnrDb';
  /** The least number. */
  readonly least: number;
}

const expected: Expected = {
  kind: 'anyOf',
  of: [
    { kind: 'number', above: 0, max: 1 },
    { kind: 'text', form: 'a number of decibels', examples: ['40dB'] },
  ],
};

/** Reads the option. @throws TypeError, RangeError */
export function outputBoundOf(minOutput: unknown): OutputBound {
  if (typeof minOutput === 'number') {
    if (minOutput > 0 && minOutput <= 1) return { kind: 'cosine', least: minOutput };
    throw rangeError('minOutput', expected, minOutput);
  }
  if (typeof minOutput !== 'string') throw typeError('minOutput', expected, minOutput);
  const [, decibels] = /^\s*([-+]?(?:\d+\.?\d*|\.\d+))\s*dB\s*$/i.exec(minOutput) ?? [];
  if (decibels === undefined) throw rangeError('minOutput', expected, minOutput);
  return { kind: 'sqnrDb', least: Number(decibels) };
}
