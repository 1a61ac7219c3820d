// Names of the types that the calls on arrays make, in one table, so that the error for a wrong one can name the call that makes it.
import { blockTypes } from '../core/blocks.js';
import { rangeError } from '../core/errors.js';
import { nearest, sameName } from '../core/nearest.js';
import { type Expected, oneOf } from '../core/option-problem.js';

/** Integers of `quantize`: those of up to 8 bits, signed first, then those of 16. */
export const integerNames = [
  'int2',
  'int3',
  'int4',
  'int5',
  'int6',
  'int7',
  'int8',
  'uint2',
  'uint3',
  'uint4',
  'uint5',
  'uint6',
  'uint7',
  'uint8',
  'int16',
  'uint16',
] as const;

/** Formats of `castFloat`. */
export const floatNames = ['float16', 'bfloat16', 'float8e4m3fn', 'float8e5m2', 'float4e2m1'] as const;

/** Codebooks of `quantizeCodebook` that have a name. */
export const codebookNames = ['nf4', 'fp4'] as const;

const namesByCall: Readonly<Record<string, readonly string[]>> = {
  quantize: integerNames,
  quantizeBlocks: blockTypes,
  castFloat: floatNames,
  quantizeCodebook: codebookNames,
};

/**
 * The error for an unknown type.
 * @param names of the types that the call makes: one of the lists above, or `blockTypes`
 * @param expected the condition, if there are other values
 */
export function typeNameError(
  option: string,
  names: readonly string[],
  got: unknown,
  expected: Expected = oneOf(names),
): RangeError {
  if (sameName(got, names) !== undefined) return rangeError(option, expected, got);
  // Find the call that makes the type: by its very name, or by a near one if no type of this call is near.
  for (const find of nearest(got, names) === undefined ? [sameName, nearest] : [sameName]) {
    for (const [call, others] of Object.entries(namesByCall)) {
      const name = others === names ? undefined : find(got, others);
      if (name !== undefined) return rangeError(option, expected, got, { kind: 'takenBy', call, name });
    }
  }
  return rangeError(option, expected, got);
}
