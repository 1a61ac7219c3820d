/** Options about statistics of a model's inputs, which formats share whose results look at data. */
import { rangeError, typeError } from '../core/errors.js';
import { mention, ofType, oneOf } from '../core/option-problem.js';
import { amended, choice, numberOption, type OptionsOf, option } from '../core/schema.js';
import type { OptionFile } from './files/bytes.js';
import { isFileInput, isHandle } from './files/open.js';
import type { ColumnOrder } from './format.js';
import { notInCopies, type PlanChoices } from './options.js';
import { hasImportance, hasStatisticsFile, type StatisticsOfModel } from './statistics.js';

/** An option that is a file, or a result of `calibrateModel`. */
export function statisticsFile(
  flag: { name: string; about: string },
  isResult: (value: unknown) => boolean,
  result: string,
) {
  return option<OptionFile | StatisticsOfModel>(
    (value, name) => {
      if (!isFileInput(value) && !isHandle(value) && !isResult(value))
        throw typeError(name, ofType('file', result), value);
    },
    { ...flag, value: 'FILE' },
  );
}

/** The matrix, which in the help of GGUF comes before options about its weights. */
export const importanceEntry = {
  /**
   * safetensors (integers), GGUF and ONNX: an importance matrix of llama.cpp, in GGUF or the older form, or that of `calibrateModel`. Columns of
   * high importance get smaller errors. In GGUF, the mixture of types changes, as with llama-quantize; its keys `quantize.imatrix.*` are added.
   * Elsewhere, scales are searched for by it, as if `range` were 'mse'. Tensors of a folder have entries under their own names, or under
   * those of llama.cpp.
   * @defaultValue all columns are alike
   */
  importance: amended(
    statisticsFile(
      { name: 'imatrix', about: 'an importance matrix: columns that are used more get smaller errors' },
      hasImportance,
      'result of calibrateModel',
    ),
    notInCopies,
  ),
};

const withGptq = { needs: [{ option: 'method', value: 'gptq' }] } as const;

/** Options of error feedback. */
export const feedbackEntries = {
  /**
   * safetensors (integers), GGUF and ONNX: `gptq` passes the error of each column on to those behind it, by the second moments in `moments`,
   * which takes about twice the time. A row takes these codes only if its output gets better on the data that they are fitted to. A matrix,
   * or a part of about a million weights of a larger one, takes them only if its outputs get better on held-back data, if `moments` has some.
   * The report has the errors of outputs there, before and after. Types without it, such as IQ4_XS, and weights without moments are rounded
   * to the nearest. A note names them, and in ONNX the weights of other nodes than MatMul and Gemm. Tasks take 20 K² bytes more memory for
   * K columns: 84 MB for 2,048.
   * @defaultValue 'nearest'
   */
  method: amended(
    choice(
      ['nearest', 'gptq'],
      {
        name: 'method',
        value: 'HOW',
        about: 'gptq: pass the error of each column on to the next ones, by --moments (default nearest)',
      },
      'nearest',
    ),
    notInCopies,
  ),
  /**
   * safetensors (integers), GGUF and ONNX: statistics of `calibrateModel` with `moments`, or the file of moments, for the method `gptq`. They
   * also give the importance, unless `importance` is given.
   */
  moments: amended(
    statisticsFile(
      { name: 'moments', about: 'the moments of `calibrate --moments`, for --method gptq' },
      (value) => hasStatisticsFile('moments', value),
      'result of calibrateModel with moments',
    ),
    withGptq,
  ),
  /**
   * safetensors (integers), GGUF and ONNX: the share of the mean of the moments' diagonal that the method `gptq` adds to it, from 0 to 10.
   * @defaultValue 0.01
   */
  damping: amended(
    numberOption(
      { min: 0, max: 10 },
      { name: 'damping', value: 'X', about: 'for --method gptq: added to the moments, as a share (default 0.01)' },
    ),
    withGptq,
  ),
  /**
   * safetensors (integers), GGUF and ONNX: the order in which the method `gptq` rounds the columns of a matrix. `falling`: groups with the
   * largest inputs first, and so within groups, so that more columns make up for the errors that count most. `stored`: from left to right.
   * @defaultValue 'falling'
   */
  order: amended(
    choice<ColumnOrder>(['falling', 'stored'], {
      name: 'order',
      value: 'ORDER',
      about: 'for --method gptq: of columns; stored: from left to right (default falling: largest inputs first)',
    }),
    withGptq,
  ),
};

export interface StatisticsOptions extends OptionsOf<typeof importanceEntry>, OptionsOf<typeof feedbackEntries> {}

/**
 * Checks that the moments that GPTQ needs are given, and that a given range is the one that statistics count in.
 * @throws RangeError naming the option
 */
export function checkStatistics({
  importance,
  method,
  moments,
  range,
}: PlanChoices<StatisticsOptions & { readonly range?: unknown }>): void {
  if (method === 'gptq' && moments === undefined) {
    throw rangeError('moments', { kind: 'required' }, undefined, {
      kind: 'with',
      options: [mention('method', 'gptq')],
    });
  }
  const given = importance !== undefined ? 'importance' : moments !== undefined ? 'moments' : undefined;
  if (given === undefined || range === undefined || range === 'mse') return;
  throw rangeError('range', oneOf(['mse']), range, { kind: 'with', options: [mention(given)] });
}
