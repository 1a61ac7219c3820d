// Errors on their way from a worker to the page.
import { ScalepointError } from 'scalepoint/model';
import { type Hint, type OptionProblem, problemOf } from '../../src/tooling.js';

/** An error as data. Error objects lose all but their messages on the way from a worker. */
export interface Failure {
  readonly message: string;
  readonly problem?: OptionProblem;
  readonly code?: ScalepointError['code'];
  readonly tensor?: string;
  readonly hint?: Hint;
}

export function failureOf(error: unknown): Failure {
  const { code, tensor, hint, statement } = error instanceof ScalepointError ? error : {};
  const message = statement ?? (error instanceof Error ? error.message : String(error));
  const problem = problemOf(error);
  return {
    message,
    ...(problem && { problem }),
    ...(code && { code }),
    ...(tensor !== undefined && { tensor }),
    ...(hint && { hint }),
  };
}

export function errorOf({ message, problem, code, tensor, hint }: Failure): Error {
  if (code !== undefined) return new ScalepointError(code, message, { tensor, hint });
  if (problem === undefined) return new Error(message);
  return Object.assign(new RangeError(message), { option: problem.option, problem });
}
