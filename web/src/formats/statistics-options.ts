/** Options about statistics of a model's inputs. Formats whose results look at data share their meaning, flags and check. */
import { rangeError, typeError } from '../core/errors.js';
import { mention, ofType, oneOf, onlyWith, without } from '../core/option-problem.js';
import type { OptionFile } from './files/bytes.js';
import { isFileInput, isHandle } from './files/open.js';
import type { ColumnOrder } from './format.js';
import { choiceOption, type OptionInfo, type PlanChoices } from './options.js';
import { hasImportance, hasMoments, type StatisticsName, type StatisticsOfModel } from './statistics.js';

/** Options about statistics. */
export interface StatisticsOptions {
  /**
   * safetensors (integers), GGUF and ONNX: an importance matrix of llama.cpp, in GGUF or the older form, or that of `calibrateModel`. Columns of
   * high importance get smaller errors. In GGUF, the mixture of types changes, as with llama-quantize; its keys `quantize.imatrix.*` are added.
   * Elsewhere, scales are searched for by it, as if `range` were 'mse'. Tensors of a folder have entries under their own names, or under
   * those of llama.cpp.
   * @defaultValue all columns are alike
   */
  readonly importance?: OptionFile | StatisticsOfModel | undefined;
  /**
   * safetensors (integers), GGUF and ONNX: `gptq` passes the error of each column on to those behind it, by the second moments in `moments`,
   * which takes about twice the time. A row takes these codes only if its output gets better on the data that they are fitted to. A matrix,
   * or a part of about a million weights of a larger one, takes them only if its outputs get better on held-back data, if `moments` has some.
   * The report has the errors of outputs there, before and after. Types without it, such as IQ4_XS, and weights without moments are rounded
   * to the nearest. A note names them, and in ONNX the weights of other nodes than MatMul and Gemm. Tasks take 20 K² bytes more memory for
   * K columns: 84 MB for 2,048.
   * @defaultValue 'nearest'
   */
  readonly method?: 'nearest' | 'gptq' | undefined;
  /**
   * safetensors (integers), GGUF and ONNX: statistics of `calibrateModel` with `moments`, or the file of moments, for the method `gptq`. They
   * also give the importance, unless `importance` is given.
   */
  readonly moments?: OptionFile | StatisticsOfModel | undefined;
  /**
   * safetensors (integers), GGUF and ONNX: the share of the mean of the moments' diagonal that the method `gptq` adds to it, from 0 to 10.
   * @defaultValue 0.01
   */
  readonly damping?: number | undefined;
  /**
   * safetensors (integers), GGUF and ONNX: the order in which the method `gptq` rounds the columns of a matrix. `falling`: groups with the
   * largest inputs first, and so within groups, so that more columns make up for the errors that count most. `stored`: from left to right.
   * @defaultValue 'falling'
   */
  readonly order?: ColumnOrder | undefined;
}

/** Largest value of `damping`. */
const mostDamping = 10;

/** The options, for the table of a format. */
export const statisticsEntries = {
  importance: {
    flags: [
      { name: 'imatrix', value: 'FILE', about: 'an importance matrix: columns that are used more get smaller errors' },
    ],
    check(value, name) {
      if (isFileInput(value) || isHandle(value) || hasImportance(value)) return;
      throw typeError(name, ofType('file', 'result of calibrateModel'), value);
    },
    read: ({ imatrix }) => imatrix,
  },
  method: choiceOption(['nearest', 'gptq'], {
    name: 'method',
    value: 'HOW',
    about: 'gptq: pass the error of each column on to the next ones, by --moments (default nearest)',
  }),
  moments: {
    flags: [{ name: 'moments', value: 'FILE', about: 'the moments of `calibrate --moments`, for --method gptq' }],
    check(value, name) {
      if (isFileInput(value) || isHandle(value) || hasMoments(value)) return;
      throw typeError(name, ofType('file', 'result of calibrateModel with moments'), value);
    },
    read: ({ moments }) => moments,
  },
  damping: {
    flags: [
      { name: 'damping', value: 'X', about: 'for --method gptq: added to the moments, as a share (default 0.01)' },
    ],
    check(value, name) {
      if (typeof value === 'number' && value >= 0 && value <= mostDamping) return;
      throw rangeError(name, { kind: 'number', min: 0, max: mostDamping }, value);
    },
    read({ damping: text }) {
      if (/^\d*\.?\d+(e-?\d+)?$/i.test(String(text))) return Number(text);
      throw rangeError('--damping', { kind: 'number', min: 0, max: mostDamping }, text);
    },
  },
  order: choiceOption(['falling', 'stored'], {
    name: 'order',
    value: 'ORDER',
    about: 'for --method gptq: of columns; stored: from left to right (default falling: largest inputs first)',
  }),
} as const satisfies { readonly [Name in keyof Required<StatisticsOptions> | StatisticsName]: OptionInfo };

/** Checks the options together. @throws RangeError naming the option */
export function checkStatistics({
  to,
  importance,
  method,
  moments,
  damping,
  order,
}: PlanChoices<StatisticsOptions>): void {
  if (to === 'copy' && importance !== undefined) throw rangeError('importance', without('to', 'copy'));
  if (to === 'copy' && method === 'gptq') throw rangeError('method', without('to', 'copy'), method);
  if (method === 'gptq' && moments === undefined) {
    throw rangeError('moments', { kind: 'required' }, undefined, {
      kind: 'with',
      options: [mention('method', 'gptq')],
    });
  }
  for (const [name, value] of Object.entries({ moments, damping, order })) {
    if (value !== undefined && method !== 'gptq') throw rangeError(name, onlyWith('method', 'gptq'));
  }
}

/** Checks that a given range is the one that statistics count in. @throws RangeError naming `range` */
export function checkStatisticsRange(range: unknown, { importance, moments }: StatisticsOptions): void {
  const given = importance !== undefined ? 'importance' : moments !== undefined ? 'moments' : undefined;
  if (given === undefined || range === undefined || range === 'mse') return;
  throw rangeError('range', oneOf(['mse']), range, { kind: 'with', options: [mention(given)] });
}
