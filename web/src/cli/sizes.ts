/** Results of a given size, and files of rules. */
import { type ModelPlan, type Rule, ScalepointError } from '../model.js';
import {
  checkPlan,
  exactly,
  type ModelFit,
  mention,
  ofType,
  oneOf,
  onlyWith,
  problemOf,
  rulesFrom,
  rulesText,
  without,
  writeSidecar,
} from '../tooling.js';
import type { quantizeFlags, ValuesOf } from './flags.js';
import { jsonText } from './json.js';
import { checkFree } from './output.js';
import { parseRule, spelledRule } from './parse.js';
import { readText } from './side-file.js';
import { checkReplaceable } from './sidecars.js';
import { printable } from './text.js';
import { usageError, wrongFlag } from './wording.js';

/** Values of flags about sizes and rules. */
type SizeValues = ValuesOf<typeof quantizeFlags>;

/** Flags of sizes. One of them is given at most. */
const sizeFlags = ['target-size', 'target-bpw', 'target-divergence'] as const;

/** True if the flags ask for a size. */
export function isSized(values: SizeValues): boolean {
  return sizeFlags.some((flag) => values[flag] !== undefined);
}

/** Checks the flags about sizes. @param types number of types of --to. @throws UsageError */
export function checkSizes(values: SizeValues, types: number): void {
  const [first, second] = sizeFlags.filter((flag) => values[flag] !== undefined);
  if (second !== undefined) throw wrongFlag(second, without(`--${first}`));
  if (values['save-rules'] !== undefined && !isSized(values) && values['min-output'] === undefined) {
    const of = ['targetSize', 'targetBitsPerWeight', 'targetDivergence', 'minOutput'].map((option) => onlyWith(option));
    throw wrongFlag('save-rules', { kind: 'anyOf', of });
  }
  const saved = (['save-plan', 'save-rules'] as const).find((flag) => values[flag] !== undefined);
  if (saved !== undefined && types > 1)
    throw wrongFlag('to', exactly(1, 'type'), types, { kind: 'with', options: [mention(`--${saved}`)] });
}

/** The rules of a command line, then those of a file of llama-quantize, then those of a file of rules. @throws UsageError */
export async function rulesOf(values: SizeValues): Promise<readonly Rule[]> {
  const { rule = [], rules: path, 'tensor-type-file': typesPath } = values;
  // NAME=TYPE with spaces or new lines between them. Names are in lower case.
  const types = typesPath === undefined ? [] : (await readText(typesPath)).split(/\s+/).filter((word) => word !== '');
  const typeRules = types.map((word) => {
    const [, name, type] = /^([^=]+)=(.+)$/.exec(word) ?? [];
    if (name === undefined) throw wrongFlag('tensor-type-file', oneOf(['NAME=TYPE']), word);
    return `${name.toLowerCase()}=${type}`;
  });
  const given = [...rule, ...typeRules].map(parseRule);
  if (path === undefined) return given;
  const text = await readText(path);
  try {
    return [...given, ...rulesFrom(text).map(spelledRule)];
  } catch (error) {
    const problem = problemOf(error);
    if (problem === undefined) throw error;
    throw usageError({ ...problem, option: `--rules: ${problem.option}` });
  }
}

/** The files of rules and plans that a command line asks for. */
const savedPaths = (values: SizeValues) => [values['save-rules'], values['save-plan']].flatMap((path) => path ?? []);

/** Fails if the file of rules or that of the plan exists and must not be replaced. @throws ScalepointError `EXISTS` or `IO` */
export async function checkSavedFree(values: SizeValues, force: boolean): Promise<void> {
  for (const path of savedPaths(values)) {
    await checkFree([path], force);
    await checkReplaceable(path, force);
  }
}

async function save(path: string | undefined, textOf: () => string, force: boolean, output?: string): Promise<void> {
  if (path === undefined) return;
  try {
    await writeSidecar(path, textOf(), force);
  } catch (cause) {
    if (!(cause instanceof ScalepointError) || output === undefined) throw cause;
    const message = `${cause.message}; the model was written to ${JSON.stringify(output)}`;
    throw new ScalepointError(cause.code, message, { cause, path });
  }
}

/**
 * Writes the rules of a result, if that was asked for.
 * @param output path of the written model, if there is one
 * @throws ScalepointError `EXISTS` or `IO`
 */
export function saveRules(
  { 'save-rules': path }: SizeValues,
  rules: readonly Rule[],
  force: boolean,
  output?: string,
): Promise<void> {
  return save(path, () => rulesText(rules), force, output);
}

/** Writes a plan as JSON, if that was asked for. The arguments are those of `saveRules`. */
export function savePlan(
  { 'save-plan': path }: SizeValues,
  plan: ModelPlan,
  force: boolean,
  output?: string,
): Promise<void> {
  return save(path, () => `${jsonText(plan)}\n`, force, output);
}

/** The largest file that is taken for a plan. One tensor takes some 300 bytes. */
const mostPlanBytes = 256 * 2 ** 20;

/** Reads a plan of --save-plan. @throws UsageError or ScalepointError */
export async function planIn(path: string): Promise<ModelPlan> {
  const text = await readText(path, mostPlanBytes);
  let plan: ModelPlan;
  try {
    plan = JSON.parse(text) as ModelPlan;
    checkPlan(plan);
  } catch (error) {
    const option = problemOf(error)?.option;
    const isForeign = option?.startsWith('plan.options.');
    const hint = { kind: 'because', message: `${option} is no part of a plan, which names no files` } as const;
    throw wrongFlag('plan', ofType('file of --save-plan'), path, isForeign ? hint : undefined);
  }
  return plan;
}

/** A fit for --json: the rules as texts. */
export function fitJson(fit: ModelFit | undefined): object {
  return fit === undefined ? {} : { fit: { ...fit, rules: fit.rules.map((rule) => rulesText([rule]).trimEnd()) } };
}

/** The lines about files of rules and plans. */
export function savedLine(values: SizeValues): string[] {
  return savedPaths(values).map((path) => `wrote ${printable(path)}`);
}
