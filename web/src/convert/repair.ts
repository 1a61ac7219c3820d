/** Runs results, to fold norms, and to raise the types of tensors until outputs are as close to those of the original as was asked for. */
import { rangeError } from '../core/errors.js';
import { waitingFor } from '../core/waiting.js';
import { quoted } from '../formats/files/bytes.js';
import { openWithin } from '../formats/files/open.js';
import type { OpenModel, PlannedTensor } from '../formats/format.js';
import { type PlanChoices, type Rule, ruleFor } from '../formats/options.js';
import { rangesFile } from '../formats/ranges-file.js';
import { formats } from '../formats/registry.js';
import type { FoldedNorm, JudgedOutput, OutputJudge } from '../formats/run.js';
import { storedBytes } from './logical-tensor.js';
import { rulesFor } from './mixture-rules.js';
import { type Opened, withModel } from './open.js';
import { makerOf, type OutputBound, outputBoundOf } from './options.js';
import { planFor } from './plan.js';
import {
  type OutputFolding,
  type OutputRepair,
  QualityError,
  type Quantized,
  quantizeOpen,
  type RaisedTensor,
  type RepairStep,
  type ResultOptions,
} from './quantize.js';

// -------------------------------------------------------------------------------------------------------------------------- limits

/** Most rounds. Behind the last, everything that is left becomes as it is in the file. */
const mostRounds = 6;

/** Most groups of tensors that are raised one after the other to find the gain of each. A group is a tensor if there are no more. */
const mostGroups = 16;

// ------------------------------------------------------------------------------------------------------------------------- tensors

/** A type that a tensor may have. */
interface Rung {
  /** Its name in rules; `keep` for the type of the file. */
  readonly to: string;
  readonly bytes: number;
}

/** A tensor, and its types from that of the target upwards. */
interface Raisable {
  readonly name: string;
  readonly rungs: readonly Rung[];
  /** Index of its type. */
  at: number;
}

/** Tensors that may be raised: those that the target converts, and that no rule is about. */
async function raisablesOf(opened: Opened, choices: PlanChoices): Promise<Raisable[]> {
  const { rules = [], to } = choices;
  const base = await planFor(opened, choices);
  const open = base.tensors.flatMap(({ source: { name }, kept }) =>
    kept === undefined && ruleFor(rules, name) === undefined ? [name] : [],
  );
  const rungs = new Map([...new Set(open)].map((name) => [name, [] as Rung[]]));
  const add = (rung: string, tensors: readonly PlannedTensor[]) => {
    for (const tensor of tensors) {
      const list = rungs.get(tensor.source.name);
      if (list === undefined || list.at(-1)?.to === 'keep') continue;
      // A type that the tensor cannot have, or that is not smaller than the file's, is no step.
      const { source, parts, kept } = tensor;
      const made = parts.reduce((sum, part) => sum + part.bytes, 0);
      const bytes = kept === undefined ? made : storedBytes(source);
      const isKept = kept !== undefined || bytes >= storedBytes(source);
      if (isKept && rung !== 'keep' && list.length > 0) continue;
      list.push({ to: rung, bytes: rung === 'keep' ? storedBytes(tensor.source) : bytes });
    }
  };
  add(to, base.tensors);
  // Go up from target to target, and at last to the types of the file.
  for (let rung = to; rung !== 'keep'; ) {
    rung = opened.format.targets.find(({ name }) => name === rung)?.raised ?? 'keep';
    const raised = [...rules, ...rulesFor(open.map((name) => [name, rung] as const))];
    add(rung, (await planFor(opened, { ...choices, rules: raised })).tensors);
  }
  return [...rungs].map(([name, list]) => ({ name, rungs: list, at: 0 }));
}

/** Bytes that the next type takes more. */
const nextBytes = ({ at, rungs }: Raisable) => (rungs[at + 1] as Rung).bytes - (rungs[at] as Rung).bytes;

// ---------------------------------------------------------------------------------------------------------------------------- loss

/** Share of an output that is wrong, which adds up over tensors: 1 - cosine, or the noise in relation to the signal. */
function lossOf({ kind }: OutputBound, { cosine, sqnrDb, failure }: JudgedOutput): number {
  if (failure !== undefined) return Number.POSITIVE_INFINITY;
  return kind === 'cosine' ? 1 - cosine : 10 ** (-sqnrDb / 10);
}

function holdsBound({ kind, least }: OutputBound, judged: readonly JudgedOutput[]): boolean {
  return judged.every((one) => one.failure === undefined && one[kind] >= least);
}

// --------------------------------------------------------------------------------------------------------------------------- raising

/** A result in memory, and its outputs. */
interface Tried {
  readonly made: Quantized;
  readonly bytes: number;
  readonly judged: readonly JudgedOutput[];
  readonly worst: JudgedOutput;
  readonly loss: number;
}

/** A group of tensors, and the loss that raising it takes away. */
interface Measured {
  readonly group: readonly Raisable[];
  readonly gain: number;
  readonly bytes: number;
}

/** The model to raise tensors of, and the wanted quality. */
interface RepairWork {
  readonly opened: Opened;
  readonly choices: PlanChoices;
  readonly options: ResultOptions;
  readonly judge: OutputJudge<OpenModel>;
  readonly bound: OutputBound;
  readonly tensors: readonly Raisable[];
}

/** Raises tensors of a model. */
class Repair {
  readonly #work: RepairWork;
  #choices: PlanChoices;
  readonly #steps: RepairStep[] = [];
  #runs = 0;

  constructor(work: RepairWork) {
    this.#work = work;
    this.#choices = work.choices;
  }

  /** Rules of the present types, with some tensors a type higher. */
  #rules(raised: ReadonlySet<Raisable>): Rule[] {
    const named = this.#work.tensors.flatMap((tensor) => {
      const at = tensor.at + (raised.has(tensor) ? 1 : 0);
      return at === 0 ? [] : [[tensor.name, (tensor.rungs[at] as Rung).to] as const];
    });
    return [...(this.#choices.rules ?? []), ...rulesFor(named)];
  }

  /** Makes a result in memory, with some tensors a type higher, and runs it. @param only the only backend to run it on */
  async #try(raised: readonly Raisable[], only?: JudgedOutput['backend']): Promise<Tried> {
    const { output: _, minSqnrDb: __, overwrite: ___, ...work } = this.#work.options;
    const choices = { ...this.#choices, rules: this.#rules(new Set(raised)) };
    const made = await quantizeOpen(this.#work.opened, choices, work);
    const files = await Promise.all(
      (made.memory ?? []).map(async (sink, i) => new File([await sink.blob()], made.files[i]?.name ?? '')),
    );
    const judged = await withModel(files, work, ({ model }) => this.#work.judge.judge(model, only));
    work.signal?.throwIfAborted();
    this.#runs++;
    const worst = judged.reduce((most, one) =>
      lossOf(this.#work.bound, one) > lossOf(this.#work.bound, most) ? one : most,
    );
    const bytes = made.files.reduce((sum, file) => sum + file.bytes, 0);
    return { made, bytes, judged, worst, loss: lossOf(this.#work.bound, worst) };
  }

  /**
   * Raises groups of neighbors, each alone, and measures the loss on the backend that is worst now. Returns those with a gain, the largest gain
   * of the worst output per byte first.
   */
  async #measure(all: readonly Raisable[], now: Tried): Promise<Measured[]> {
    const found: Measured[] = [];
    const count = Math.min(mostGroups, all.length);
    for (let i = 0; i < count; i++) {
      const group = all.slice(Math.floor((i * all.length) / count), Math.floor(((i + 1) * all.length) / count));
      const { loss } = await this.#try(group, now.worst.backend);
      // The difference of two infinities is NaN.
      const gain = loss === now.loss ? 0 : now.loss - loss;
      if (gain > 0) found.push({ group, gain, bytes: group.reduce((sum, tensor) => sum + nextBytes(tensor), 0) });
    }
    const perByte = ({ gain, bytes }: Measured) => gain / Math.max(1, bytes);
    return found.sort((a, b) => (perByte(b) > perByte(a) ? 1 : -1));
  }

  /** The first groups whose gains add up to what is wanted. */
  #enough(ordered: readonly Measured[], wanted: number): number {
    let [sum, count] = [0, 0];
    while (count < ordered.length && sum < wanted) sum += (ordered[count++] as Measured).gain;
    return count;
  }

  /** Takes a result over, and reports the step. */
  #take(raised: readonly Measured[], before: Tried, after: Tried): void {
    const tensors = raised.flatMap(({ group }) =>
      group.map((tensor): RaisedTensor => {
        const from = (tensor.rungs[tensor.at] as Rung).to;
        const bytes = nextBytes(tensor);
        tensor.at++;
        return { name: tensor.name, from, to: (tensor.rungs[tensor.at] as Rung).to, bytes };
      }),
    );
    const worst = ({ worst: output, bytes }: Tried) => ({ ...output, bytes });
    this.#steps.push({ tensors, before: worst(before), after: worst(after) });
  }

  /** Raises tensors in one round. */
  async #round(open: readonly Raisable[], before: Tried): Promise<Tried> {
    const { bound } = this.#work;
    const limit = bound.kind === 'cosine' ? 1 - bound.least : 10 ** (-bound.least / 10);
    const wanted = before.loss - limit;
    // Choose groups to raise, in order. Look into those that would be raised, if they hold several tensors.
    let chosen = await this.#measure(open, before);
    const first = chosen.slice(0, this.#enough(chosen, wanted));
    if (first.some(({ group }) => group.length > 1)) {
      const parts = first.flatMap(({ group }) => group);
      const better = await this.#measure(parts, before);
      if (better.length > 0) chosen = [...better, ...chosen.slice(first.length)];
    }
    // Nothing helps alone: raise all.
    if (chosen.length === 0) {
      const all = await this.#try(open);
      this.#take([{ group: open, gain: 0, bytes: 0 }], before, all);
      return all;
    }
    // Raise as many as should be enough, then twice as many more each time.
    let count = this.#enough(chosen, wanted);
    for (let more = 1; ; more *= 2) {
      const raised = chosen.slice(0, count);
      const after = await this.#try(raised.flatMap(({ group }) => group));
      const isLast = count === chosen.length;
      if (holdsBound(bound, after.judged) || isLast) {
        this.#take(raised, before, after);
        return after;
      }
      const rest = chosen.slice(count);
      count = Math.min(chosen.length, count + Math.max(more, this.#enough(rest, after.loss - limit)));
    }
  }

  /** The report so far. */
  #report({ judged }: Tried): OutputRepair {
    return {
      bound: this.#work.bound,
      outputs: judged,
      steps: [...this.#steps],
      rules: rulesFor(
        this.#work.tensors.flatMap(({ at, name, rungs }) => (at === 0 ? [] : [[name, (rungs[at] as Rung).to]])),
      ),
      runs: this.#runs,
    };
  }

  /** Folds norms, if that brings the worst output closer. */
  async fold(
    norms: readonly FoldedNorm[],
  ): Promise<{ readonly choices: PlanChoices; readonly folding: OutputFolding }> {
    const withFolds = (foldOutliers: readonly FoldedNorm[]) => ({ ...this.#choices, foldOutliers }) as PlanChoices;
    this.#choices = withFolds([]);
    if (norms.length === 0) return { choices: this.#choices, folding: { norms } };
    const before = await this.#try([]);
    this.#choices = withFolds(norms);
    const after = await this.#try([]);
    const isCloser = after.loss < before.loss;
    if (!isCloser) this.#choices = withFolds([]);
    const judged = { before: before.worst, after: after.worst };
    return { choices: this.#choices, folding: { norms: isCloser ? norms : [], judged } };
  }

  /** Raises tensors until the bound holds. @throws QualityError */
  async run(): Promise<{ readonly choices: PlanChoices; readonly repair: OutputRepair }> {
    let now = await this.#try([]);
    let [best, bestReport] = [now, this.#report(now)];
    const settled = () => ({ ...this.#choices, rules: this.#rules(new Set()) });
    for (let round = 0; !holdsBound(this.#work.bound, now.judged); round++) {
      const open = this.#work.tensors.filter(({ at, rungs }) => at + 1 < rungs.length);
      if (open.length === 0) throw this.#missed(best, bestReport);
      if (round < mostRounds) now = await this.#round(open, now);
      else {
        // Leave everything as it is in the file.
        const before = now;
        const last = open.map((tensor) => ({ name: tensor.name, from: tensor.at, tensor }));
        for (const { tensor } of last) tensor.at = tensor.rungs.length - 1;
        now = await this.#try([]);
        const tensors = last.map(({ name, from, tensor: { rungs, at } }): RaisedTensor => {
          const [low, high] = [rungs[from] as Rung, rungs[at] as Rung];
          return { name, from: low.to, to: high.to, bytes: high.bytes - low.bytes };
        });
        this.#steps.push({
          tensors,
          before: { ...before.worst, bytes: before.bytes },
          after: { ...now.worst, bytes: now.bytes },
        });
      }
      if (now.loss < best.loss) [best, bestReport] = [now, this.#report(now)];
    }
    return { choices: settled(), repair: this.#report(now) };
  }

  #missed({ made, worst }: Tried, repair: OutputRepair): QualityError {
    const raised = new Set(this.#steps.flatMap(({ tensors }) => tensors.map(({ name }) => name))).size;
    const how = raised === 0 ? '' : `, with ${raised} ${raised === 1 ? 'tensor' : 'tensors'} raised as far as possible`;
    const { kind, least } = this.#work.bound;
    const { backend, output, cosine, sqnrDb, failure } = worst;
    const named = output === '' ? backend : `${quoted(output)} on ${backend}`;
    const found = failure ?? (kind === 'cosine' ? cosine.toFixed(6) : `${sqnrDb.toFixed(2)} dB`);
    const bound = kind === 'cosine' ? `a cosine of ${least}` : `${least} dB`;
    const message = `outputs below ${bound}, nothing was written: the best reached is ${named} (${found})${how}`;
    return new QualityError(message, undefined, { ...made.report, repair });
  }
}

/** True if the norms to fold are to be found. */
export const findsFolds = (choices: object) => (choices as { readonly foldOutliers?: unknown }).foldOutliers === true;

/**
 * Finds norms to fold, and types of tensors with which outputs hold a bound, if one is given.
 * @throws QualityError; RangeError for formats that cannot be run
 */
export async function repairOpen(
  opened: Opened,
  choices: PlanChoices,
  options: ResultOptions,
): Promise<{ readonly choices: PlanChoices; readonly repair?: OutputRepair; readonly folding?: OutputFolding }> {
  const { signal, run = {}, minOutput } = options;
  const { format, model, readOptionFile } = opened;
  if (format.judge === undefined || makerOf(format, choices.to)?.format !== format) {
    const labels = formats.flatMap(({ judge, label }) => (judge === undefined ? [] : [label]));
    const option = minOutput === undefined ? 'foldOutliers' : 'minOutput';
    throw rangeError(option, { kind: 'onlyFor', files: `${labels.join(' and ')} files` }, minOutput);
  }
  const waiting = waitingFor(signal);
  try {
    const judge = await format.judge(model, run, {
      readOptionFile,
      open: (input) => openWithin(waiting, input),
      signal,
    });
    // Measured ranges decide, unless the caller has given some.
    const isGiven = (choices as { readonly ranges?: unknown }).ranges !== undefined;
    const ranges = isGiven ? undefined : await judge.ranges?.(choices.to);
    const all = ranges === undefined ? choices : { ...choices, ranges: rangesFile(ranges, 1) };
    const hasBound = minOutput !== undefined;
    const bound = hasBound ? outputBoundOf(minOutput) : ({ kind: 'sqnrDb', least: -Infinity } as const);
    const tensors = hasBound ? await raisablesOf(opened, all) : [];
    const repair = new Repair({ opened, choices: all, options, judge, bound, tensors });
    const folded = findsFolds(all) ? await repair.fold((await judge.folds?.()) ?? []) : { choices: all };
    return hasBound ? { ...folded, ...(await repair.run()) } : folded;
  } finally {
    waiting.end();
  }
}
