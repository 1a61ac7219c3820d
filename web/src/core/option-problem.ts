// Mistakes in arguments, as data, and the sentences about them. The package, the command line and the page make their sentences of the same
// data. Each has its own words for options and values.
import { article, show } from './show.js';

/**
 * An option inside of data, with a value where one is meant. The API and the command line write it differently: `to: 'int8'`, `--to int8`.
 */
export interface OptionMention {
  readonly kind: 'option';
  /** Path of the option: `to`, `granularity.groupSize`, `rules[2].to`. `rules[].keep` is that of any rule. */
  readonly option: string;
  /** The value, where one is meant. */
  readonly value?: unknown;
}

/** Mentions an option. */
export function mention(option: string, value?: unknown): OptionMention {
  return { kind: 'option', option, ...(value !== undefined && { value }) };
}

/** A condition that an argument has to meet beyond its type. */
export type ArgumentState =
  /** An array whose buffer is not detached. */
  | 'attached'
  /** An array that does not change during the call. */
  | 'unchanged'
  /** A stream that nothing else writes to. */
  | 'unlocked'
  /** A stream or a response from which nothing was read. */
  | 'unread'
  /** An object of the same instance. */
  | 'own'
  /** A block whose scale is finite. */
  | 'finiteScale'
  /** A matrix that equals its transpose. */
  | 'symmetric'
  /** A matrix without directions of negative squares. */
  | 'positiveDefinite';

/** The condition that an argument did not meet. */
export type Expected =
  /** A value of one of these types. */
  | {
      readonly kind: 'type';
      /** Names of types: `number`, `Float32Array`, `path`. */
      readonly types: readonly string[];
    }
  /** One of these values. */
  | {
      readonly kind: 'oneOf';
      /** The accepted values. */
      readonly values: readonly unknown[];
      /** The files in which they mean something. */
      readonly for?: string | undefined;
    }
  /** A number, or a count of something: of elements of an array, of bytes that a size means. */
  | {
      readonly kind: 'number';
      readonly whole?: true | undefined;
      readonly finite?: true | undefined;
      /** The only number. */
      readonly is?: number | undefined;
      /** The smallest number. */
      readonly min?: number | undefined;
      /** The largest number. */
      readonly max?: number | undefined;
      /** The lower bound, if the bound itself is excluded. */
      readonly above?: number | undefined;
      /** A divisor of the number. */
      readonly multipleOf?: number | undefined;
      /** Unit of a count: `elements`, `bytes`. */
      readonly unit?: string | undefined;
    }
  /** Whole numbers of at least 0. */
  | {
      readonly kind: 'shape';
      /** The dimensions, as numbers or names. */
      readonly dimensions?: readonly string[] | undefined;
      /** The product of the dimensions. */
      readonly elements?: number | undefined;
      /** The largest product of the dimensions. */
      readonly maxElements?: number | undefined;
      /** A divisor of the last dimension. */
      readonly lastMultipleOf?: number | undefined;
    }
  /** An object. */
  | {
      readonly kind: 'object';
      /** Its keys. */
      readonly keys: readonly string[];
    }
  /** A text. */
  | {
      readonly kind: 'text';
      /** Its form with an article, such as `a regular expression`. @defaultValue any text */
      readonly form?: string | undefined;
      /** Texts that would be accepted. */
      readonly examples: readonly string[];
    }
  /** Any of several conditions. */
  | {
      readonly kind: 'anyOf';
      /** The conditions, of which one is enough. */
      readonly of: readonly Expected[];
    }
  /** The object that a call returned, not a copy of it. */
  | {
      readonly kind: 'returnedBy';
      /** The name of the call. */
      readonly call: string;
    }
  /** An object in a usable state. */
  | {
      readonly kind: 'state';
      /** The state, such as an array whose buffer is not detached. */
      readonly state: ArgumentState;
    }
  /** A quantized tensor. */
  | {
      readonly kind: 'quantized';
      /** The accepted kinds of quantized tensors. */
      readonly kinds: readonly string[];
    }
  /** Memory or a file that does not overlap another argument. */
  | {
      readonly kind: 'apart';
      /** Path of the other argument. */
      readonly from: string;
    }
  /** Each value or name once. */
  | { readonly kind: 'distinct' }
  /** One of the known options. */
  | {
      readonly kind: 'knownOption';
      /** The known options; empty if there are too many to list. */
      readonly names: readonly string[];
    }
  /** Nothing: the value follows from something else. */
  | { readonly kind: 'absent' }
  /** Anything but undefined. */
  | { readonly kind: 'required' }
  /** The option needs another one. `got` is the value of the other option. */
  | {
      readonly kind: 'onlyWith';
      /** Path of the other option. */
      readonly option: string;
      /** Values of the other option; empty if any value does. */
      readonly values: readonly unknown[];
    }
  /** The option excludes another one. */
  | {
      readonly kind: 'without';
      /** The other option. */
      readonly other: OptionMention;
    }
  /** The option has a meaning for some files only. */
  | {
      readonly kind: 'onlyFor';
      /** The files, such as `GGUF files`. */
      readonly files: string;
    };

/** A condition on a number. */
export type NumberForm = Expected & { readonly kind: 'number' };

/** The conditions of which one is enough. */
export const conditionsIn = (expected: Expected): readonly Expected[] =>
  expected.kind === 'anyOf' ? expected.of.flatMap(conditionsIn) : [expected];

/** A value of one of these types. */
export const ofType = (...types: string[]): Expected => ({ kind: 'type', types });

/** One of these values. @param files in which they mean something */
export const oneOf = (values: readonly unknown[], files?: string): Expected => ({
  kind: 'oneOf',
  values,
  ...(files !== undefined && { for: files }),
});

/** This number of elements, bytes or the like. */
export const exactly = (is: number, unit: string): Expected => ({ kind: 'number', is, unit });

/** A whole number within these bounds. */
export const whole = (min?: number, max?: number): NumberForm => ({
  kind: 'number',
  whole: true,
  ...(min !== undefined && { min }),
  ...(max !== undefined && { max }),
});

/** The option needs another one, with one of these values if any are listed. */
export const onlyWith = (option: string, ...values: unknown[]): Expected => ({ kind: 'onlyWith', option, values });

/** The option excludes another one. */
export const without = (option: string, value?: unknown): Expected => ({
  kind: 'without',
  other: mention(option, value),
});

/** Advice about an error. */
export type Hint =
  /** A similar name may have been meant. */
  | {
      readonly kind: 'didYouMean';
      /** Similar names. */
      readonly names: readonly string[];
    }
  /** Another call takes the option or the value. */
  | {
      readonly kind: 'takenBy';
      /** The name of the call. */
      readonly call: string;
      /** The option or the value, as that call has it. */
      readonly name: string;
    }
  /** The argument has to match another one. */
  | {
      readonly kind: 'as';
      /** Path of the other argument. */
      readonly option: string;
    }
  /** The condition follows from other options. */
  | {
      readonly kind: 'with';
      /** The other options. */
      readonly options: readonly OptionMention[];
    }
  /** Another option avoids the error. */
  | {
      readonly kind: 'try';
      /** The other option. */
      readonly option: OptionMention;
      /** Its effect, as the rest of the sentence: `copies it`. */
      readonly effect: string;
    }
  /** Code that makes the accepted value. */
  | {
      readonly kind: 'write';
      /** The code, in JavaScript, in which the path of the option stands for the given value: `await file`. */
      readonly code: string;
    }
  /** Another instance supports the call. */
  | {
      readonly kind: 'load';
      /** The option of `load` that makes such an instance. */
      readonly option: OptionMention;
    }
  /** The error has a cause that can be named. */
  | {
      readonly kind: 'because';
      /** The cause, or the message of the engine or the system. Mentions no option. */
      readonly message: string;
    };

/** A mistake in an argument. */
export interface OptionProblem {
  /** Path of the option or argument: `dtype`, `rules[2].to`. */
  readonly option: string;
  /** The condition that it did not meet. */
  readonly expected: Expected;
  /** The given value, or its count if a count is expected. */
  readonly got: unknown;
  /** Advice, if there is any. */
  readonly hint?: Hint | undefined;
}

/** The way in which the API, the command line or the page writes options and values. */
export interface OptionWords {
  /** The name of an option. */
  option(path: string): string;
  /** An option with one of these values. */
  withValues(path: string, values: readonly unknown[]): string;
  /** A value that was expected. */
  value(value: unknown): string;
  /** The value that was given. @defaultValue as code */
  given?(value: unknown): string;
  /** True if the name of an option implies its value. */
  isSwitch?(path: string): boolean;
}

/** A value as code. */
const quote = (value: unknown) => (typeof value === 'string' ? `'${value}'` : show(value).replaceAll('"', "'"));

/** The words of the API: `to: 'int8'`. */
const apiWords: OptionWords = {
  option: (path) => path,
  withValues: (path, values) => `${path.replace(/^rules\[\]\./, 'a rule with ')}: ${orList(values.map(quote))}`,
  value: quote,
};

/** A list: `a, b or c`. */
export function orList(items: readonly string[]): string {
  return items.length < 2 ? items.join('') : `${items.slice(0, -1).join(', ')} or ${items.at(-1)}`;
}

/** An option, with its value if it has one. */
export function sayMention({ option, value }: OptionMention, words: OptionWords = apiWords): string {
  return value === undefined ? words.option(option) : words.withValues(option, [value]);
}

const states: Readonly<Record<ArgumentState, string>> = {
  attached: 'an array whose buffer is not detached',
  unchanged: 'an array that does not change during the call',
  unlocked: 'a stream that is not locked',
  unread: 'a stream that was not read before',
  own: 'an object of this instance',
  finiteScale: 'a block with a finite scale',
  symmetric: 'a symmetric matrix',
  positiveDefinite: 'a positive definite matrix',
};

function sayNumber({ whole, finite, is, min, max, above, multipleOf, unit }: NumberForm): string {
  const counted = unit === undefined ? '' : ` ${unit}`;
  if (is !== undefined) return is + counted;
  const isRange = min !== undefined && max !== undefined;
  const most = max === undefined ? '' : `at most ${max}`;
  const least = min === undefined ? '' : `at least ${min}`;
  const bounds = isRange ? `from ${min} to ${max}` : most || least;
  if (multipleOf === undefined && counted) return (bounds || 'a number of') + counted;
  const base =
    multipleOf === undefined ? `a ${finite ? 'finite ' : whole ? 'whole ' : ''}number` : `a multiple of ${multipleOf}`;
  if (above !== undefined) return `${base} above ${above}${most && ` and ${most}`}`;
  return base + counted + (bounds && ` ${isRange ? '' : 'of '}${bounds}`);
}

function sayShape({ dimensions, elements, maxElements, lastMultipleOf }: Expected & { kind: 'shape' }): string {
  if (dimensions !== undefined) return `[${dimensions.join(', ')}]`;
  if (lastMultipleOf !== undefined) return `a shape whose last dimension is a multiple of ${lastMultipleOf}`;
  const size = elements ?? maxElements;
  if (size === undefined) return 'an array of whole numbers of at least 0';
  return `a shape of ${elements === undefined ? 'at most ' : ''}${size} elements`;
}

/** A condition as a list of alternatives; empty if it has no words of its own. */
function alternatives(expected: Expected, words: OptionWords): readonly string[] {
  switch (expected.kind) {
    case 'type':
      return expected.types.map(article);
    case 'oneOf': {
      const values = expected.values.map(words.value);
      return expected.for === undefined ? values : [`${orList(values)} for ${expected.for}`];
    }
    case 'number':
      return [sayNumber(expected)];
    case 'shape':
      return [sayShape(expected)];
    case 'object':
      return [`{ ${expected.keys.join(', ')} }`];
    case 'text':
      return [`${expected.form ?? 'a string'} such as ${orList(expected.examples.map(words.value))}`];
    case 'returnedBy':
      return [`the object that ${expected.call} returned`];
    case 'state':
      return [states[expected.state]];
    case 'quantized':
      return [`a quantized tensor of kind ${orList(expected.kinds.map(words.value))}`];
    case 'apart':
      return [`memory or a file that does not overlap ${words.option(expected.from)}`];
    case 'distinct':
      return ['no duplicates'];
    case 'absent':
      return ['nothing'];
    case 'onlyWith': {
      const { option, values } = expected;
      return [values.length === 0 ? words.option(option) : words.withValues(option, values)];
    }
    case 'without':
      return [sayMention(expected.other, words)];
    case 'onlyFor':
      return [expected.files];
    case 'anyOf':
    case 'knownOption':
    case 'required':
      return [];
  }
}

/** Beginnings of the sentences that are not about the value. */
const openings: { readonly [Kind in Expected['kind']]?: string } = {
  knownOption: 'unknown option',
  required: 'required',
  onlyWith: 'only with ',
  without: 'not together with ',
  onlyFor: 'only for ',
};

/** True for advice that ends with a question mark. */
export function isQuestion(hint: Hint | undefined): boolean {
  return hint?.kind === 'didYouMean' && hint.names.length > 0;
}

/** The advice at the end of a sentence; empty if it belongs into the middle. */
export function sayHint(hint: Hint | undefined, words: OptionWords = apiWords): string {
  if (hint?.kind === 'didYouMean') return isQuestion(hint) ? `; did you mean ${hint.names.join(' or ')}?` : '';
  // The command line and the page have no code.
  if (hint?.kind === 'write') return words === apiWords ? `; write ${hint.code}` : '';
  if (hint?.kind === 'takenBy') return `; ${hint.call} takes ${hint.name}`;
  if (hint?.kind === 'try') return `; ${sayMention(hint.option, words)} ${hint.effect}`;
  if (hint?.kind === 'load') return `; use an instance made with load({ ${sayMention(hint.option, words)} })`;
  return hint?.kind === 'because' ? `: ${hint.message}` : '';
}

/** The sentence about a mistake, without the option's name: `expected a number, got "a"`. */
export function sayProblem({ option, expected, got, hint }: OptionProblem, words: OptionWords = apiWords): string {
  const conditions = conditionsIn(expected);
  // Conditions that begin a sentence stand alone, or beside others of their kind.
  const [first = expected] = conditions;
  let text = (openings[first.kind] ?? 'expected ') + orList(conditions.flatMap((one) => alternatives(one, words)));
  if (first.kind === 'knownOption' && first.names.length > 0)
    text += `; there are ${first.names.map(words.option).join(', ')}`;
  if (hint?.kind === 'as') text += ` as in ${words.option(hint.option)}`;
  if (hint?.kind === 'with') text += ` with ${hint.options.map((one) => sayMention(one, words)).join(' and ')}`;
  // Add the given value where the sentence is about it.
  if (first.kind === 'onlyWith') {
    if (got !== undefined) text += `, got ${words.withValues(first.option, [got])}`;
  } else if (first.kind === 'without') {
    if (got !== undefined && !words.isSwitch?.(option)) text += `, got ${show(got)}`;
  } else if (openings[first.kind] === undefined) text += `, got ${words.given?.(got) ?? show(got)}`;
  return text + sayHint(hint, words);
}
