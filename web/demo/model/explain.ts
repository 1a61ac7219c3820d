// Problems of the page: errors of the library in words that name its controls.
import { ScalepointError } from 'scalepoint/model';
import { problemOf, sayHint, sayProblem } from '../../src/tooling.js';
import { isUnreadable, unreadableText } from '../shared/file-error.js';
import { FileError } from '../shared/files.js';
import {
  asSentence,
  detailsOfError,
  explainLoading,
  loadingText,
  messageOf,
  type PageProblem,
  type ProblemAction,
  sentence,
} from '../shared/problems.js';
import type { ModelChoice } from './choice.js';
import { pageWords } from './controls.js';

/** Error codes of the package, explained to someone with a file. */
const titles: Readonly<Record<string, string>> = {
  BAD_FILE: 'The file is damaged or cut off',
  CHANGED: 'The file was changed while it was read',
  NON_FINITE: 'A tensor holds NaN or infinite numbers',
  OVERFLOW: 'A tensor holds numbers that are too large',
  OUT_OF_MEMORY: 'The browser gave no more memory',
  IO: 'The file could not be read or written',
  WORKER: 'The browser ended a part of this page',
  VERSION_MISMATCH: 'The page changed on the server',
  IMPORT: 'The page changed on the server',
};

const advice: Readonly<Record<string, string>> = {
  BAD_FILE: 'Download it again and compare its size with the original.',
  CHANGED: 'Open it again.',
  OUT_OF_MEMORY: 'Close other tabs, or use the command line, which needs less.',
  IO: 'Check that there is room on the disk, then try again.',
};

/** Texts in place of the messages of the package, which name its parts. */
const texts: Readonly<Record<string, string>> = {
  WORKER: 'It may have run out of memory. Close other tabs and programs, then try again.',
  VERSION_MISMATCH: 'Parts of the page are of different versions. Load the page again.',
  IMPORT: 'A part of the page could not be loaded. Load the page again.',
};

/** The explanation of a folder of sound files that lacks one, or whose tokenizer lacks a part. */
function explainMissing(missing: string, ways: WaysOut | undefined): PageProblem {
  const instead = ways?.instead();
  const keep = { label: 'Convert it all the same', run: () => ways?.setWords({ 'missing-bytes': 'keep' }) };
  if (missing === 'byte tokens') {
    return {
      title: 'The tokenizer has no byte tokens',
      text: 'The files are sound. As GGUF, the model stops llama.cpp at the first character without a token. A type that needs no tokenizer has no such risk.',
      ...(ways && { choices: [...(instead ? [instead] : []), keep] }),
    };
  }
  return {
    title: `${missing} is missing`,
    text: `The weights are sound, but this type needs ${missing}. Drop the whole folder of the model.`,
    ...(instead && { action: instead }),
  };
}

/** The file beside a model that an error is about: those of folders begin with its name. */
function fileAtFault(error: unknown): string | undefined {
  const { code = '', statement = '' } = error instanceof ScalepointError ? error : {};
  return code === 'BAD_FILE' || code === 'UNKNOWN_FORMAT' ? /^([\w-]+\.\w+): /.exec(statement)?.[1] : undefined;
}

/** The reason for the card of a preset that is not available, in a few words. The problem above says the rest. */
export function obstacleOf(error: unknown): string {
  const { missing, code = '' } = error instanceof ScalepointError ? error : {};
  if (missing !== undefined) return `Needs ${missing}.`;
  const file = fileAtFault(error);
  if (file !== undefined) return `${file} does not fit.`;
  return Object.hasOwn(titles, code) ? `${titles[code]}.` : sentence(inPageWords(error));
}

/** True for a write error because the disk, or the quota of this page, is full. */
const isFull = ({ cause }: Error) => cause instanceof DOMException && cause.name === 'QuotaExceededError';

/** True for an error about weights that are codes already, which an option can start from. */
export function isAboutCodes(error: unknown): boolean {
  const hint = error instanceof ScalepointError ? error.hint : undefined;
  return hint?.kind === 'try' && hint.option.option === 'requantize';
}

/** Message of a package error with options named by the labels of their controls. */
export function inPageWords(error: unknown): string {
  const loading = loadingText(error);
  if (loading !== undefined) return loading;
  const problem = problemOf(error);
  if (problem !== undefined) return `${pageWords.option(problem.option)}: ${sayProblem(problem, pageWords)}`;
  if (error instanceof ScalepointError) return error.statement + sayHint(error.hint, pageWords);
  return messageOf(error);
}

/** Changes of a choice that avoid an error. */
interface WaysOut {
  /** Leaves a tensor as it is. */
  keep(name: string): void;
  /** Sets options. */
  setWords(words: ModelChoice['words']): void;
  /** The button for a type of the model's own format, if a conversion to another one fails. */
  instead(): ProblemAction | undefined;
}

/** The button for an error about one tensor. */
function wayOut(error: unknown, ways: WaysOut | undefined): Pick<PageProblem, 'action'> {
  const { tensor, hint } = error instanceof ScalepointError ? error : {};
  if (tensor === undefined || ways === undefined) return {};
  // Some tensors stay floats of another type than their own, which no rule changes.
  if (hint?.kind === 'try' && hint.option.option === 'nonFinite') {
    const run = () => ways.setWords({ 'non-finite': 'keep' });
    return { action: { label: 'Write NaN and infinities as they are', run } };
  }
  return { action: { label: `Keep ${tensor} as it is`, run: () => ways.keep(tensor) } };
}

/** The words of the hub, as a sentence of the page. */
function hubSentence(statement: string): string {
  const said = statement
    // The page has a field in place of the variable and the command, and lists in place of flags.
    .replace('set HF_TOKEN, or run hf auth login', 'give a token below')
    .replace('run hf auth login for a new one, or unset it', 'give another one below, or none')
    .replaceAll('the option token', 'this page')
    .replace(/ \(--[\w-]+\)/, '');
  // The name of a model keeps its letters at the start of a sentence.
  return /^[\w.-]+\//.test(said) ? asSentence(said) : sentence(said);
}

/** Titles of errors of a push. */
const pushTitles: Readonly<Record<string, string>> = {
  ACCESS: 'The hub refuses the push',
  NOT_FOUND: 'There is no such place on the hub',
  EXISTS: 'Somebody else put other files there',
  CHANGED: 'The repository changed meanwhile',
  IO: 'The push did not get through',
};

/** Explains what went wrong with a push. @param replace pushes all the same, where files of others are in the way */
export function explainPush(error: unknown, replace?: () => void): PageProblem {
  if (problemOf(error)?.option === 'repository')
    return { title: 'That name cannot be used', text: 'Expected owner/name, such as me/tiny-GGUF.' };
  const { code = '', statement = '' } = error instanceof ScalepointError ? error : {};
  const title = pushTitles[code];
  if (title === undefined) {
    const isGone = /^(NotFound|NotReadable)Error$/.test(error instanceof Error ? error.name : '');
    if (!isGone) return explain(error);
    return { title: 'The saved file is gone', text: 'It was moved or changed after it was saved. Save it again.' };
  }
  if (code !== 'EXISTS') return { title, text: hubSentence(statement) };
  const [said = ''] = statement.split(';');
  const text = `${hubSentence(said)} Replacing it also writes a new README.md. The old files stay in the history.`;
  return { title, text, isExpected: true, ...(replace && { action: { label: 'Replace it', run: replace } }) };
}

/** Explains what went wrong with a model of the hub. If several files fit, a button opens each of them. @param open opens a name */
export function explainHub(error: unknown, open: (name: string) => void): PageProblem {
  const { code, hint } = error instanceof ScalepointError ? error : {};
  const isName = problemOf(error)?.option === 'file';
  const isHub = isName || code === 'ACCESS' || code === 'NOT_FOUND' || code === 'IO';
  if (!isHub || !(error instanceof Error)) return explain(error);
  const names = hint?.kind === 'didYouMean' ? hint.names : [];
  const said = isName
    ? 'expected owner/name, hf:owner/name:Q4_K_M, or the address of a model'
    : (error as ScalepointError).statement;
  const text = hubSentence(said);
  if (names.length > 0) {
    const choices = names.map((name) => ({ label: name.replace(/^hf:/, ''), run: () => open(name) }));
    return { title: 'Choose one of its models', text, choices, isExpected: true };
  }
  return { title: isName ? 'That name cannot be read' : 'The model cannot be opened', text };
}

/** Explains what went wrong with a model. If it is about one tensor, a button avoids the error. */
export function explain(error: unknown, ways?: WaysOut): PageProblem {
  if (loadingText(error) !== undefined) return explainLoading(error);
  if (error instanceof FileError) return { title: 'That cannot be opened here', text: error.message };
  if (isUnreadable(error)) return { title: 'The file cannot be read', text: unreadableText };
  if (error instanceof Error && isFull(error)) {
    return {
      title: 'There is no room for the result',
      text: 'The disk is full, or the browser gives this page no more of it. Nothing was saved. Free some room, or choose a smaller size.',
    };
  }
  const { code, byteOffset, missing } = error instanceof ScalepointError ? error : {};
  if (missing !== undefined) return explainMissing(missing, ways);
  const file = fileAtFault(error);
  if (file !== undefined) {
    const instead = ways?.instead();
    const text = `${sentence(inPageWords(error))} The weights are sound. Drop the whole folder of the model, with the ${file} that came with it.`;
    return { title: `${file} does not fit the model`, text, ...(instead && { action: instead }) };
  }
  const place = byteOffset === undefined ? '' : ` (byte ${byteOffset})`;
  const words = sentence(`${inPageWords(error).replace(/\.$/, '')}${place}`);
  const own = `${words} ${advice[code ?? ''] ?? ''}`.trim();
  const text = texts[code ?? ''] ?? own;
  return { title: titles[code ?? ''] ?? 'That does not work', text, ...detailsOfError(error), ...wayOut(error, ways) };
}
