/** Plans that are saved as JSON and carried out later. */
import { checkKeys } from '../core/check.js';
import { rangeError, typeError } from '../core/errors.js';
import type { Expected } from '../core/option-problem.js';
import type { Flag } from '../core/schema.js';
import { show } from '../core/show.js';
import { NamePattern } from '../formats/name-pattern.js';
import { isMatch, type Rule } from '../formats/options.js';
import { formats } from '../formats/registry.js';
import { escapeName } from './mixture-rules.js';
import { planNames } from './options.js';
import type { PlannedTensorInfo } from './plan.js';

/** The members of a plan that its JSON depends on. */
interface SavablePlan {
  readonly tensors: readonly PlannedTensorInfo[];
  readonly options: {
    readonly rules?: readonly Rule[] | undefined;
    readonly importance?: unknown;
    readonly moments?: unknown;
    readonly ranges?: unknown;
    readonly lora?: readonly { readonly file: unknown }[] | undefined;
  };
}

/** The flags of a RegExp that change which names match. */
const meaningful = /[imsuv]/;

/** A rule with its expression as text. One that only the engine can match becomes a rule for each of the tensors that it matches. */
function textRules(rule: Rule, tensors: readonly PlannedTensorInfo[]): readonly Rule[] {
  const { match } = rule;
  if (typeof match === 'string') return [rule];
  try {
    if (!meaningful.test(match.flags)) return [{ ...rule, match: new NamePattern(match.source, 'match').source }];
  } catch {
    // The expression is beyond what is matched as text.
  }
  return tensors.flatMap(({ name }) => (isMatch(rule, name) ? [{ ...rule, match: `^${escapeName(name)}$` }] : []));
}

/**
 * A plan with its options, for JSON. Files become null, because a plan of somebody else must not choose what is read: `quantizeModel` takes
 * them beside the plan.
 */
export function planJson<Plan extends SavablePlan>(plan: Plan): Plan {
  const { rules, lora, ...options } = plan.options;
  const files = Object.keys(options).filter((name) => fileNames().has(name));
  const saved = {
    ...options,
    ...Object.fromEntries(files.map((name) => [name, null])),
    ...(rules && { rules: rules.flatMap((rule) => textRules(rule, plan.tensors)) }),
    ...(lora !== undefined && { lora: lora.map((one) => ({ ...one, file: null })) }),
  };
  return { ...plan, options: saved };
}

const form: Expected = { kind: 'onlyFor', files: 'the model that it was made of' };
const unfit = (message: string) => rangeError('plan', form, undefined, { kind: 'because', message });

/** The options of all formats that name files to read. */
function fileNames(): ReadonlySet<string> {
  const all = formats.flatMap(({ options }) => Object.entries(options.entries));
  return new Set(all.flatMap(([name, { flags }]) => (flags.some(namesFile) ? [name] : [])));
}

const namesFile = ({ value, isText = false }: Flag) => value === 'FILE' && !isText;

/**
 * Fails unless a value has the members of a plan, and options about types and sizes alone: a plan may come from somebody else, and chooses
 * no files to read or write, and no code. In the plan that `planModel` returned to this program, options are not enumerable, and may name files.
 * @throws TypeError
 */
export function checkPlan(plan: { readonly tensors: unknown; readonly options?: unknown }): void {
  const { tensors, options } = plan;
  const isList = Array.isArray(tensors) && tensors.every((tensor) => typeof tensor === 'object' && tensor !== null);
  if (!isList || typeof options !== 'object' || options === null)
    throw typeError('plan', { kind: 'returnedBy', call: 'planModel' }, plan);
  checkKeys(options, planNames(), 'plan.options');
  if (Object.getOwnPropertyDescriptor(plan, 'options')?.enumerable !== true) return;
  const given = options as Readonly<Record<string, unknown>>;
  const adapters = Array.isArray(given.lora) ? (given.lora as readonly ({ readonly file?: unknown } | null)[]) : [];
  for (const [name, value] of [
    ...[...fileNames()].map((name) => [name, given[name]] as const),
    ...adapters.map((one, i) => [`lora[${i}].file`, one?.file] as const),
  ]) {
    if (value === undefined || value === null) continue;
    const message = 'a saved plan names no files; they are given beside it';
    throw typeError(`plan.options.${name}`, { kind: 'absent' }, value, { kind: 'because', message });
  }
}

/** The facts of a tensor by which a plan is compared. */
const plannedFacts = ({ name, shape, from, to, bytesAfter }: PlannedTensorInfo) =>
  `${show(name)}: ${from} to ${to}, [${shape}], ${bytesAfter} bytes`;

/**
 * Fails unless a model would become what a plan says.
 * @param plan of `planModel`, perhaps from JSON
 * @param tensors the tensors as the model has them now
 * @throws RangeError whose option is `plan`
 */
export function checkFits(plan: Pick<SavablePlan, 'tensors'>, tensors: Iterable<PlannedTensorInfo>): void {
  let count = 0;
  for (const now of tensors) {
    const then = plan.tensors[count++];
    if (then === undefined) throw unfit(`the model also has ${show(now.name)}`);
    const [wanted, found] = [plannedFacts(then), plannedFacts(now)];
    if (wanted !== found) throw unfit(`it plans ${wanted}; the model gives ${found}`);
  }
  const missing = plan.tensors[count];
  if (missing !== undefined) throw unfit(`the model has no ${show(missing.name)}`);
}
