import { ScalepointError } from 'scalepoint/model';
import type { Failure } from '../shared/calls.js';

/** The error of the package that a worker met, as if the page had met it. */
export function packageError({ message, statement, problem, code, tensor, hint }: Failure): Error {
  if (code !== undefined) return new ScalepointError(code, statement ?? message, { tensor, hint });
  if (problem === undefined) return new Error(message);
  return Object.assign(new RangeError(message), { option: problem.option, problem });
}
