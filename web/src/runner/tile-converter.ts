/**
 * Carries out tasks in the memory of one core. Runs in a worker, or in the caller's thread for small models. A task needs nothing but its
 * own bytes, so tasks can be carried out anywhere and in any order, and the results are the same.
 */
import { Arena } from '../codecs/arena.js';
import { errorsOf, observe } from '../codecs/calls.js';
import type { Encoded, Form, Observed, Stored } from '../codecs/codec.js';
import { codecOf } from '../codecs/registry.js';
import { addSums, mismatchesOf, nonFiniteOf, sumCount } from '../core/measure.js';
import type { Core } from '../core/memory.js';
import { KeptInputs } from './input-cache.js';
import type { InputReader } from './input-reader.js';
import { isAlike } from './packed-batch.js';
import {
  type Answer,
  type Batch,
  type BatchResult,
  type EncodeTask,
  type Input,
  type SetsTask,
  type Slab,
  slabBytes,
  slabsOf,
  TaskError,
  type TileTask,
} from './task.js';

/** What a task gives, in wasm memory. */
type Outcome = Encoded & Omit<Answer, 'task'>;

/** What came of a batch, beside its output. */
export type Findings = Pick<BatchResult, 'done' | 'measured' | 'sums' | 'answers'>;

const noSums = new Float64Array(0);

/** The elements of a task that reads none. */
const nothing = { type: 'F32', source: 0 };

/** Takes bytes that belong at an offset of a batch's output. They are good until it returns. */
export type Put = (offset: number, bytes: Uint8Array) => void;

/** Where the inputs of a task lie in wasm memory. */
interface Places {
  /** The parts of each piece. */
  readonly places: Stored['parts'][];
  /** All inputs of each piece. */
  readonly addresses: number[][];
  /** What comes behind them. */
  readonly end: number;
}

/** Memory is taken in units of this. */
const memoryUnit = 1 << 20;

/** Bytes of a task and of kept inputs together, beyond which the memory of an earlier task is given back first. */
const mostMemory = 40 * 2 ** 20;

const aligned = (address: number) => Math.ceil(address / 16) * 16;

/** Elements that the core reads by itself: their type and address. */
function elements(core: Core, arena: Arena, form: Form, stored: Stored): { type: string; source: number } {
  const codec = codecOf(form);
  const type = codec.elementType?.(form);
  if (type !== undefined) return { type, source: firstOf(stored.parts) };
  return { type: 'F32', source: floats(core, arena, form, stored) };
}

/** The address of the first part; 0 if there is none. */
function firstOf(parts: Stored['parts']): number {
  for (const role in parts) return parts[role] as number;
  return 0;
}

function floats(core: Core, arena: Arena, form: Form, stored: Stored): number {
  const codec = codecOf(form);
  if (codec.decode === undefined) throw new Error(`${codec.id} cannot be read as floats`);
  return codec.decode(core, stored, form, arena);
}

/** What tasks that are alike have in common. */
interface Prepared {
  /** The last one of them: those of one batch share their forms, which makes them easy to compare. */
  task: TileTask;
  readonly slabs: readonly Slab[];
  /** What calls of the core ask for, as in `Arena`. Undefined if slabs differ. */
  readonly asked: readonly number[] | undefined;
  readonly places: Places;
  /** Memory for the inputs of the first slab, good until wasm memory grows. */
  readonly views: readonly Uint8Array[];
  /** Where its only input is, or will be, that is kept: all of it. Undefined: slabs take the same places one after the other. */
  readonly kept: number | undefined;
}

/** What there is to say about a task, beside its outputs and sums; undefined if that is nothing. */
function answerOf(task: number, outcome: Outcome, kept: number | undefined): Answer | undefined {
  const { range, sets, mismatched, problem } = outcome;
  if ((range ?? sets ?? mismatched ?? problem) === undefined) return undefined;
  const { parts: _parts, sums: _sums, ...answer } = outcome;
  return kept === undefined ? { task, ...answer } : { task, ...answer, kept };
}

/** What a task is asked to keep. */
const keepOf = (task: TileTask) => (task.kind === 'sets' || task.kind === 'range' ? task.keep : undefined);
const keptOf = (task: TileTask) => (task.kind === 'encode' ? task.kept : undefined);

/** The input of a task that has one. */
const inputOf = ({ pieces: [{ inputs }] }: TileTask) => inputs[0] as Input;

/** Converts tiles in the memory of one core. */
export class TileConverter {
  readonly #core: Core;
  readonly #kept: KeptInputs;
  #memory: { readonly base: number; readonly size: number } | undefined;
  /** The last task. Small tensors come in long rows of equals. */
  #last: Prepared | undefined;

  constructor(core: Core) {
    this.#core = core;
    this.#kept = new KeptInputs(core);
  }

  /**
   * Carries out a batch, one task after the other.
   * @param inputs has begun with the batch
   * @param put takes the output
   * @param pause is waited for before each task, once its inputs are there
   * @throws TaskError
   */
  async run({ tasks }: Batch, inputs: InputReader, put: Put, pause?: () => Promise<void>): Promise<Findings> {
    const measured = new Uint8Array(tasks.length);
    let sums = noSums;
    const answers: Answer[] = [];
    let done = 0;
    for (let i = 0; i < tasks.length; i++) {
      const task = tasks[i] as TileTask;
      let outcome: Outcome | undefined;
      let isKept = false;
      try {
        const prepared = this.#prepare(task, inputs);
        isKept = prepared.kept !== undefined;
        for (const slab of prepared.slabs) {
          // To wait for nothing takes as long as a small task.
          const filled = inputs.fill(task, this.#views(task, slab, prepared), slab);
          if (filled !== undefined) await filled;
          if (pause !== undefined) await pause();
          outcome = this.#convert(task, slab, prepared, outcome?.sums);
          if (outcome.problem !== undefined) break;
        }
        const { parts, problem } = outcome as Outcome;
        if (task.kind === 'encode' && problem === undefined) this.#handOver(task, parts, put);
        const taken = keptOf(task);
        if (taken?.isLast) this.#kept.drop(taken.number);
      } catch (cause) {
        throw cause instanceof TaskError ? cause : new TaskError(i, cause);
      }
      const { sums: found, problem } = outcome as Outcome;
      if (found !== undefined) {
        if (sums.length === 0) sums = new Float64Array(tasks.length * sumCount);
        sums.set(found, i * sumCount);
        measured[i] = 1;
      }
      const answer = answerOf(i, outcome as Outcome, isKept ? keepOf(task)?.number : undefined);
      if (answer !== undefined) answers.push(answer);
      done++;
      if (problem !== undefined) break;
    }
    return { done, measured, sums, answers };
  }

  /** Takes memory for a task, and finds places in it. */
  #prepare(task: TileTask, inputs: InputReader): Prepared {
    const { buffer } = this.#core.module.HEAPU8;
    const last = this.#last;
    if (last !== undefined && last.views[0]?.buffer === buffer && isAlike(task, last.task)) {
      last.task = task;
      return last;
    }
    const slabs = slabsOf(task);
    const [first] = slabs as [Slab];
    const kept = this.#keptAt(task, inputs);
    const counting = new Arena();
    const counted = this.#placesOf(task, first, 0, kept);
    this.#carryOut(task, first, counted.places, counting);
    this.#reserve(counted.end + counting.size);
    const places = this.#placesOf(task, first, this.#start(), kept);
    const views = this.#viewsAt(task, first, places);
    this.#last = { task, slabs, asked: slabs.length === 1 ? counting.asked : undefined, places, views, kept };
    return this.#last;
  }

  /** Where the input of a task is that was kept, or is to be. */
  #keptAt(task: TileTask, inputs: InputReader): number | undefined {
    const taken = keptOf(task);
    if (taken !== undefined) {
      const { bytes, count } = inputOf(task);
      return this.#kept.find(taken.number) + taken.row * ((bytes * count) / task.rows);
    }
    const keep = keepOf(task);
    if (keep === undefined || !inputs.paysToKeep(inputOf(task).file)) return undefined;
    if (this.#memory !== undefined && this.#memory.size + this.#kept.sizeFor(keep) > mostMemory) this.#release();
    const { bytes, count } = inputOf(task);
    return this.#kept.add(keep, bytes * count);
  }

  /**
   * Where the inputs of a task go, and which parts they are, if its memory begins at `start`. It is the same for all of its slabs.
   */
  #placesOf(task: TileTask, first: Slab, start: number, kept: number | undefined): Places {
    if (kept !== undefined) return { places: [{ [inputOf(task).role]: kept }], addresses: [[kept]], end: start };
    let size = 0;
    const addresses: number[][] = [];
    const places = task.pieces.map(({ inputs }) => {
      const parts: Record<string, number> = {};
      const own: number[] = [];
      for (const [i, input] of inputs.entries()) {
        // Several inputs of a part are one stretch of memory.
        if (inputs[i - 1]?.role !== input.role) {
          size = aligned(size);
          parts[input.role] = start + size;
        }
        own.push(start + size);
        size += slabBytes(task, input, first);
      }
      addresses.push(own);
      return parts;
    });
    return { places, addresses, end: start + aligned(size) };
  }

  /** Takes memory for tasks of this size. @throws ScalepointError `OUT_OF_MEMORY` */
  #reserve(size: number): void {
    if (this.#memory !== undefined && this.#memory.size >= size) return;
    this.#release();
    this.#kept.shrink();
    // Tasks of a model grow from small to large ones. Rounding up keeps the number of moves low.
    const rounded = Math.ceil(size / memoryUnit) * memoryUnit;
    this.#memory = { base: this.#core.allocate(rounded + 16), size: rounded };
  }

  /** Gives memory back. */
  #release(): void {
    if (this.#memory !== undefined) this.#core.release(this.#memory.base);
    this.#memory = undefined;
    this.#last = undefined;
  }

  #start(): number {
    return aligned(this.#memory?.base ?? 0);
  }

  #viewsAt(task: TileTask, slab: Slab, { addresses }: Places): Uint8Array[] {
    const { buffer } = this.#core.module.HEAPU8;
    return task.pieces.flatMap(({ inputs }, i) =>
      inputs.map((input, j) => new Uint8Array(buffer, addresses[i]?.[j] as number, slabBytes(task, input, slab))),
    );
  }

  /** Memory for the inputs of some rows of a task. */
  #views(task: TileTask, slab: Slab, prepared: Prepared): readonly Uint8Array[] {
    const { places, slabs, views } = prepared;
    const isGood = slab === slabs[0] && views[0]?.buffer === this.#core.module.HEAPU8.buffer;
    return isGood ? views : this.#viewsAt(task, slab, this.#placesIn(task, slab, prepared) ?? places);
  }

  /** Where the input of a slab is that is kept. */
  #placesIn(task: TileTask, slab: Slab, { kept, places }: Prepared): Places | undefined {
    if (kept === undefined || slab.row === 0) return undefined;
    return this.#placesOf(task, slab, places.end, kept + slabBytes(task, inputOf(task), { row: 0, rows: slab.row }));
  }

  /** Carries out what a task is about rows whose inputs are in place. Adds the sums of those before. */
  #convert(task: TileTask, slab: Slab, prepared: Prepared, before: Encoded['sums']): Outcome {
    const { asked } = prepared;
    const { places, end } = this.#placesIn(task, slab, prepared) ?? prepared.places;
    const outcome = this.#carryOut(task, slab, places, new Arena(end, asked));
    if (outcome.sums !== undefined && before !== undefined) addSums(outcome.sums, before);
    return outcome;
  }

  /** Hands over the parts that a task makes. */
  #handOver(task: EncodeTask, parts: Outcome['parts'], put: Put): void {
    const { HEAPU8 } = this.#core.module;
    for (const { role, offset, bytes } of task.outputs) {
      const part = parts[role];
      if (part?.bytes !== bytes) throw new Error(`the ${role} of a tile has ${part?.bytes} bytes instead of ${bytes}`);
      put(offset, HEAPU8.subarray(part.address, part.address + bytes));
    }
  }

  /** Carries out a task, or counts what memory it takes beside its inputs. */
  #carryOut(task: TileTask, slab: Slab, places: readonly Stored['parts'][], arena: Arena): Outcome {
    const { columns } = task;
    const { rows } = slab;
    const a: Stored = { rows, columns, parts: places[0] as Stored['parts'] };
    if (task.kind === 'encode') return this.#encode(task, slab, a, arena);
    if (task.kind === 'range') {
      const { type, source } = elements(this.#core, arena, task.pieces[0].form, a);
      return { parts: {}, ...observe(this.#core, arena, type, rows, columns, source) };
    }
    if (task.kind === 'sets') return { parts: {}, ...this.#observe(task, slab, a, arena) };
    const [first, second] = task.pieces;
    const x = floats(this.#core, arena, first.form, a);
    const y = floats(this.#core, arena, second.form, { rows, columns, parts: places[1] as Stored['parts'] });
    if (arena.onlyCounts) return { parts: {} };
    const sums = errorsOf(this.#core, x, y, rows * columns);
    const pairs = nonFiniteOf(sums);
    const { buffer } = this.#core.module.HEAPU8;
    const values = (address: number) => new Float32Array(buffer, address, rows * columns);
    const mismatched = pairs === 0 ? 0 : mismatchesOf(values(x), values(y));
    return mismatched === 0 ? { parts: {}, sums } : { parts: {}, sums, mismatched };
  }

  #observe(task: SetsTask, { row, rows }: Slab, stored: Stored, arena: Arena): Observed {
    const { columns, pieces, to } = task;
    const codec = codecOf(to);
    if (codec.observe === undefined) throw new Error(`${codec.id} cannot be asked`);
    const source = elements(this.#core, arena, pieces[0].form, stored);
    const piece = rows < task.rows ? { row, of: task.rows } : undefined;
    const tile = { rows, columns, ...source, roles: ['data'], measures: false, ranges: undefined, piece };
    const { problem, ...observed } = codec.observe(this.#core, tile, to, arena);
    if (problem === undefined) return observed;
    return { problem: { ...problem, index: problem.index + row * columns } };
  }

  #encode(task: EncodeTask, { row, rows }: Slab, stored: Stored, arena: Arena): Encoded {
    const { pieces, columns, outputs, measures, ranges, to } = task;
    const [{ form, inputs }] = pieces;
    const codec = codecOf(to);
    if (codec.encode === undefined) throw new Error(`${codec.id} cannot be written`);
    // Without inputs the ranges tell everything.
    const { type, source } = inputs.length === 0 ? nothing : elements(this.#core, arena, form, stored);
    const roles = outputs.map(({ role }) => role);
    const piece = rows < task.rows ? { row, of: task.rows } : undefined;
    return codec.encode(this.#core, { rows, columns, type, source, roles, measures, ranges, piece }, to, arena);
  }
}
