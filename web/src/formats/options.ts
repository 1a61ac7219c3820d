/** Rules, and the options that formats share; core/schema.ts says what an entry is. */

import { checkBoolean, checkKeys } from '../core/check.js';
import { rangeError, typeError } from '../core/errors.js';
import { type Hint, mention, ofType, oneOf, without } from '../core/option-problem.js';
import {
  isNamedRange,
  modelGranularityNames,
  rangeNames,
  type SearchedRange,
  searchedMembers,
  searchedRangeForm,
  searchOf,
} from '../core/range.js';
import {
  amended,
  checkTogether,
  choice,
  numberOption,
  type OptionInfo,
  type OptionsOf,
  option,
  toggle,
  type Words,
} from '../core/schema.js';
import { article } from '../core/show.js';
import type { OptionFile } from './files/bytes.js';
import { isFileInput, isHandle } from './files/open.js';
import { MatchingWork, NamePattern } from './name-pattern.js';
import { type ColumnOrder, hasImportance, hasStatisticsFile, type StatisticsOfModel } from './statistics.js';

// -------------------------------------------------------------------------------------------------------------------------- rules

/** Elements that share a scale: one index of axis 0, or `groupSize` neighbors of the last dimension. */
export type ModelGranularity =
  | { readonly kind: 'per-channel' }
  | {
      readonly kind: 'per-group';
      /** Number of neighbors in the last dimension that share a scale. */
      readonly groupSize: number;
    };

/**
 * Treatment of the tensors whose names match. The first match decides.
 *
 * `match` is a regular expression, as text or as a RegExp. A text is matched in time linear in the name, so that it may come from anywhere. It
 * has the syntax of RegExp without lookbehind, references to groups and modifiers. A RegExp is matched by the engine, which backtracks: keep
 * expressions such as `(a+)+$` out of it.
 */
export type Rule =
  | {
      /** Expression that selects tensors by name. */
      readonly match: string | RegExp;
      /** Copies the tensors. */
      readonly keep: true;
      /** Absent, because the tensors are kept. */
      readonly to?: undefined;
      /** Absent, because the tensors are kept. */
      readonly granularity?: undefined;
    }
  | {
      /** Expression that selects tensors by name. */
      readonly match: string | RegExp;
      /** The tensors are not kept. */
      readonly keep?: false | undefined;
      /** A target of the format, or a tensor type: 'int4', 'Q6_K', 'F16'. */
      readonly to: string;
      /** Elements that share a scale, if the target leaves a choice. */
      readonly granularity?: ModelGranularity | undefined;
    };

/** The patterns of rules whose expressions are text. */
const patterns = new WeakMap<Rule, NamePattern>();

function compiledPattern(rule: Rule, source: string, path: string, work?: MatchingWork): NamePattern {
  const known = patterns.get(rule);
  if (known?.source === source) {
    if (work !== undefined) known.work = work;
    return known;
  }
  const pattern = new NamePattern(source, path, work);
  patterns.set(rule, pattern);
  return pattern;
}

/** True if a rule selects a tensor. Flags g and y of a RegExp have no effect. */
export function isMatch(rule: Rule, name: string): boolean {
  const { match } = rule;
  return typeof match === 'string' ? compiledPattern(rule, match, 'match').test(name) : name.search(match) >= 0;
}

/** The rule for a name; undefined if no rule matches. */
export function ruleFor(rules: readonly Rule[], name: string): Rule | undefined {
  return rules.find((rule) => isMatch(rule, name));
}

/** The expression of a rule as text. */
export function expressionOf({ match }: Rule): string {
  return typeof match === 'string' ? match : match.source;
}

/** The hint for a tensor that cannot be converted. */
export const keepHint: Hint = { kind: 'try', option: mention('rules[].keep', true), effect: 'copies it' };

/** Members of a rule, and members of these. */
const ruleNames = ['match', 'keep', 'to', 'granularity', ...modelGranularityNames.map((name) => `granularity.${name}`)];

/**
 * Checks the parts of rules that all formats share, and calls `check` for each rule with its path, such as `rules[2]`.
 * @throws TypeError or RangeError naming the option
 */
export function checkRules(rules: unknown, check: (rule: Rule, path: string) => void): void {
  if (rules === undefined) return;
  if (!Array.isArray(rules)) throw typeError('rules', ofType('array'), rules);
  const work = new MatchingWork();
  for (const [i, rule] of rules.entries()) {
    const path = `rules[${i}]`;
    checkKeys(rule, ruleNames, path);
    const { match, keep, to } = rule as Record<string, unknown>;
    if (typeof match === 'string') compiledPattern(rule as Rule, match, `${path}.match`, work);
    else if (!(match instanceof RegExp)) throw typeError(`${path}.match`, ofType('string', 'RegExp'), match);
    if (keep === true && to !== undefined) throw rangeError(`${path}.to`, without(`${path}.keep`, true));
    if (keep !== true && to === undefined) throw rangeError(`${path}.to`, { kind: 'required' });
    if (keep !== undefined) checkBoolean(keep, `${path}.keep`);
    check(rule as Rule, path);
  }
}

/** A file of a format in a sentence. */
export function aFile(label: string): string {
  return `${article(label)} file`;
}

// ------------------------------------------------------------------------------------------------------------------------- tables

/** A JSON file beside a result. Its option holds the present content. */
export interface Sidecar {
  /** Member of a plan that shows the addition. */
  readonly planned: string;
  /** Key of the entry in the file. */
  readonly entry: string;
  /** Its purpose and place, in a sentence or two, for the help. */
  readonly about?: string;
  /** True for a file that describes one result and has nothing else. It is removed with the result that it describes. */
  readonly isWhole?: boolean;
  /** True for a file of the model that results complete: nothing is written without its content. */
  readonly isCompleted?: boolean;
  /** Name of a folder of models whose parent has the file. */
  readonly inParentOf?: string;
  /** Its name in a model's folder. */
  readonly usualName: string;
  /**
   * The content with the value added.
   * @param also further keys of the file
   * @param decoded methods of quantization that the content may name, because the weights were decoded
   * @throws TypeError or ScalepointError if that is not possible
   */
  merge(
    content: unknown,
    value: Readonly<Record<string, unknown>>,
    also?: Readonly<Record<string, unknown>>,
    decoded?: readonly string[],
  ): Record<string, unknown>;
  /** The content without the entry; undefined if it lacks the entry. */
  without(content: unknown): Record<string, unknown> | undefined;
  /** True if the entry can describe a model with tensors of these types. */
  fits(types: readonly string[]): boolean;
  /** The name of the file for an output of some name, in the same folder. */
  nameFor(output: string): string;
  /** Reads a file so that `print` gives back all of it as it was. @throws ScalepointError `BAD_FILE` */
  parse(text: string): {
    /** Content of the file. */
    readonly value: Readonly<Record<string, unknown>>;
    /** The text of a value, with the indentation and the large numbers of the file. */
    print(value: unknown): string;
  };
  /** The text of a new file. */
  print(value: unknown): string;
}

/** An option of a format. */
export interface FormatOption<T = unknown> extends OptionInfo<T> {
  /** The file beside the result, if the option describes one. Such an option does not change the result itself. */
  readonly sidecar?: Sidecar;
}

/** Choices for a result: the target, the rules, and the options of a format. */
export type PlanChoices<Options extends object = object, TargetName extends string = string> = Options & {
  /** Target of the weights. */
  readonly to: TargetName;
  /** Exceptions. The first match decides. */
  readonly rules?: readonly Rule[] | undefined;
};

/** The options of a format. */
export interface OptionTable {
  /** Heading in the help. */
  readonly title: string;
  /** Options by name. */
  readonly entries: Readonly<Record<string, FormatOption>>;
  /** Checks combinations of valid values, and the rules. @throws TypeError or RangeError naming the option */
  check(choices: PlanChoices): void;
}

/**
 * Makes a table of options.
 * @param check checks what the entries do not say about options that go together, and the rules
 */
export function optionTable<Options extends object>(
  title: string,
  entries: OptionTable['entries'],
  check: (choices: PlanChoices<Options>) => void,
): OptionTable {
  return {
    title,
    entries,
    check(choices) {
      if (choices.to === 'copy' && (choices.rules ?? []).length > 0) throw rangeError('rules', without('to', 'copy'));
      checkTogether(entries, choices);
      check(choices as PlanChoices<Options>);
    },
  };
}

/** Excludes an option from copies. */
export const notInCopies = { excludedBy: [{ option: 'to', value: 'copy' }] } as const;

/** The option for finding ranges. */
export const rangeEntry = {
  /**
   * safetensors and ONNX, integers: method to find the range of each channel or group, as for arrays. 'mse' uses the scales as stored, and
   * is never worse than 'min-max'. Channels of more than 2^20 elements (packed with zero points: 2^17) keep the range of all their values.
   * @defaultValue 'min-max'; safetensors: 'mse' for weights with statistics (`importance`, `moments`)
   */
  range: amended(
    option<'min-max' | SearchedRange>(
      (value, name) => {
        if (value === 'min-max' || searchOf(value, [searchedMembers]) !== undefined) return;
        throw rangeError(name, searchedRangeForm, value);
      },
      {
        name: 'range',
        value: 'R',
        about: 'what the codes cover: min-max (the default), mse (least squared error), entropy, or percentile:99.9',
      },
    ),
    {
      read({ range: text }: Words) {
        if (isNamedRange(text)) return text;
        const [, number] = /^percentile:(\d+(?:\.\d+)?)$/.exec(String(text)) ?? [];
        const percentile = Number(number);
        if (percentile > 50 && percentile <= 100) return { percentile };
        if (number !== undefined) throw rangeError('--range', { kind: 'number', above: 50, max: 100 }, percentile);
        throw rangeError('--range', oneOf([...rangeNames, 'percentile:P']), text);
      },
    },
  ),
};

export interface RangeOptions extends OptionsOf<typeof rangeEntry> {}

/** The option of formats with a search besides that of the usual tool. @param about its help */
export const searchEntry = (about: string) => ({
  /**
   * GGUF, MLC and integers of MLX: `best` tries more scales than llama-quantize, MLC-LLM or `range: 'mse'` and fits the stored ones, for
   * smaller errors in the same types and bytes, for GGUF and MLX weighted by the importance of columns if there is a matrix. Every reader
   * loads the result. A million weights take 0.1 to 0.5 seconds on one core, of MLX up to 2. GGUF types of one to two bits have no such
   * search.
   * @defaultValue 'usual': the bytes of llama-quantize, of MLC-LLM, or of MLX
   */
  search: amended(choice(['usual', 'best'], { name: 'search', value: 'HOW', about }, 'usual'), notInCopies),
});

export interface ScaleSearchOptions extends OptionsOf<ReturnType<typeof searchEntry>> {}

/** The option of formats that read codes of their own results as floats. */
export const requantizeEntry = {
  /**
   * GGUF, safetensors and MLC: true quantizes weights again that are quantized already, which adds to their errors. In safetensors, codes in
   * compressed-tensors' layout and other small floats with scales are read as floats, which can also be stored as float16 or bfloat16. Weights that are kept are then stored
   * as floats, too.
   * @defaultValue false: such a file is an error
   */
  requantize: amended(toggle({ name: 'requantize', about: 'also quantize what is quantized already' }), notInCopies),
};

export interface RequantizeOptions extends OptionsOf<typeof requantizeEntry> {}

/** The option of formats whose tensors hold finite numbers alone. */
export const nonFiniteEntry = {
  /**
   * NaN and infinities of tensors that stay floats. 'error': `NON_FINITE`, unless a rule keeps the tensor. 'keep': written as they are, with a
   * note. Tensors that become codes must not hold any. In ONNX models, infinities are errors in weights alone, because masks hold them.
   * @defaultValue 'error'; copies (`to: 'copy'`) keep them
   */
  nonFinite: amended(
    choice(['error', 'keep'], {
      name: 'non-finite',
      value: 'HOW',
      about: 'keep: write NaN and infinities of tensors that stay floats as they are (default error)',
    }),
    notInCopies,
  ),
};

export interface NonFiniteOptions extends OptionsOf<typeof nonFiniteEntry> {}

// --------------------------------------------------------------------------------------------------------------------- statistics

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
   * safetensors (integers, and small floats of 4 bits), GGUF and ONNX: `gptq` passes the error of each column on to those behind it, by the second moments in `moments`.
   * Groups with scales of their own are then refined, in turn by scales and by codes, which takes at most as long again. A row takes these
   * codes only if its output gets better on the data that they are fitted to. A matrix, or a part of about a million weights of a larger one, takes them only if its outputs get better on held-back data, if `moments` has some.
   * The report has the errors of outputs there, before and after. Types without it, such as IQ3_S, and weights without moments are rounded
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
   * safetensors, GGUF and ONNX: statistics of `calibrateModel` with `moments`, or the file of moments, for the method `gptq`. They
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
   * safetensors, GGUF and ONNX: the share of the mean of the moments' diagonal that the method `gptq` adds to it, from 0 to 10.
   * @defaultValue 0.01, and 2 for a table of tokens that is the output layer, too
   */
  damping: amended(
    numberOption(
      { min: 0, max: 10 },
      {
        name: 'damping',
        value: 'X',
        about:
          'for --method gptq: added to the moments, as a share (default 0.01; 2 for a table of tokens that is the output layer)',
      },
    ),
    withGptq,
  ),
  /**
   * safetensors, GGUF and ONNX: the order in which the method `gptq` rounds the columns of a matrix. `falling`: groups with the
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
