/** Plans that are saved as JSON and carried out later. */
import { rangeError, typeError } from '../core/errors.js';
import type { Expected } from '../core/option-problem.js';
import { show } from '../core/show.js';
import { NamePattern } from '../formats/name-pattern.js';
import { isMatch, type Rule } from '../formats/options.js';
import type { PlannedTensorInfo } from './plan.js';

/** The members of a plan that its JSON depends on. */
interface SavablePlan {
  readonly tensors: readonly PlannedTensorInfo[];
  readonly options: {
    readonly rules?: readonly Rule[] | undefined;
    readonly importance?: unknown;
    readonly data?: unknown;
    readonly lora?: readonly { readonly file: unknown }[] | undefined;
  };
}

/** The flags of a RegExp that change which names match. */
const meaningful = /[imsuv]/;

/** Escapes a name for a regular expression. */
const literal = (name: string) => name.replace(/[\\^$.*+?()[\]{}|]/g, '\\$&');

/** A rule with its expression as text. One that only the engine can match becomes a rule for each of the tensors that it matches. */
function textRules(rule: Rule, tensors: readonly PlannedTensorInfo[]): readonly Rule[] {
  const { match } = rule;
  if (typeof match === 'string') return [rule];
  try {
    if (!meaningful.test(match.flags)) return [{ ...rule, match: new NamePattern(match.source, 'match').source }];
  } catch {
    // The expression is beyond what is matched as text.
  }
  return tensors.flatMap(({ name }) => (isMatch(rule, name) ? [{ ...rule, match: `^${literal(name)}$` }] : []));
}

/**
 * A plan with its options, for JSON. An importance matrix, data and files of adapters become null unless they are paths, because JSON has no place for them:
 * `quantizeModel` takes them beside the plan.
 */
export function planJson<Plan extends SavablePlan>(plan: Plan): Plan {
  const { rules, importance, data, lora, ...options } = plan.options;
  const path = (value: unknown) => (typeof value === 'string' ? value : null);
  const saved = {
    ...options,
    ...(rules && { rules: rules.flatMap((rule) => textRules(rule, plan.tensors)) }),
    ...(importance !== undefined && { importance: path(importance) }),
    ...(data !== undefined && { data: path(data) }),
    ...(lora !== undefined && { lora: lora.map((one) => ({ ...one, file: path(one.file) })) }),
  };
  return { ...plan, options: saved };
}

const form: Expected = { kind: 'onlyFor', files: 'the model that it was made of' };
const unfit = (message: string) => rangeError('plan', form, undefined, { kind: 'because', message });

/** Fails unless a value has the members of a plan. @throws TypeError */
export function checkPlan(plan: { readonly tensors: unknown; readonly options?: unknown }): void {
  const { tensors, options } = plan;
  const isList = Array.isArray(tensors) && tensors.every((tensor) => typeof tensor === 'object' && tensor !== null);
  if (isList && typeof options === 'object' && options !== null) return;
  throw typeError('plan', { kind: 'returnedBy', call: 'planModel' }, plan);
}

/** The facts of a tensor by which a plan is compared. */
const factsOf = ({ name, shape, from, to, bytesAfter }: PlannedTensorInfo) =>
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
    const [wanted, found] = [factsOf(then), factsOf(now)];
    if (wanted !== found) throw unfit(`it plans ${wanted}; the model gives ${found}`);
  }
  const missing = plan.tensors[count];
  if (missing !== undefined) throw unfit(`the model has no ${show(missing.name)}`);
}
