/**
 * Carries out tasks in the memory of one core: in a worker, or in the calling thread for small models. A task needs nothing but its own
 * bytes, so that the results are the same wherever and in whichever order tasks run.
 */

import { addSums, mismatchesOf, nonFiniteOf, sumCount } from '../core/measure.js';
import type { Core } from '../core/memory.js';
import { Arena } from '../formats/codecs/arena.js';
import { elementFloats, errorsOf, movedRows, observeElements, withOutputErrors } from '../formats/codecs/calls.js';
import type { Bytes, Encoded, Form, Observed, Role, StoredTile, Tile } from '../formats/codecs/codec.js';
import { codecOf } from '../formats/codecs/registry.js';
import { FactorCache } from './factor-cache.js';
import { InputCache } from './input-cache.js';
import type { InputReader } from './input-reader.js';
import { isAlike } from './packed-batch.js';
import {
  type Answer,
  type Batch,
  type BatchResult,
  type EncodeTask,
  type InputPart,
  pieceBytes,
  piecesOf,
  type SetsTask,
  TaskError,
  type TilePiece,
  type TileTask,
} from './task.js';

/** The result of a task, with its parts in wasm memory. */
type Outcome = Encoded & Omit<Answer, 'task'>;

/** The result of a batch, apart from its output. */
export type ConvertedBatch = Pick<BatchResult, 'done' | 'measured' | 'sums' | 'answers'>;

const noSums = new Float64Array(0);

/** Placeholder for the elements of a task without inputs. */
const nothing = { type: 'F32', source: 0 };

/** Takes bytes of a batch's output and their offset in it. The bytes are valid during the call only. */
export type Put = (offset: number, bytes: Uint8Array) => void;

/** Where the inputs of a task lie in wasm memory. */
interface InputAddresses {
  /** Addresses of the roles, for each input. */
  readonly byRole: StoredTile['parts'][];
  /** Addresses of the parts, for each input. */
  readonly byPart: number[][];
  /** The first address behind all of them. */
  readonly end: number;
}

/** Bytes of arena and input cache together, beyond which the memory of the arena is released before the cache grows. */
const mostMemory = 40 * 2 ** 20;

const aligned = (address: number) => Math.ceil(address / 16) * 16;

/** The type and address of elements, decoded first unless the core reads them as they are. */
function elements(core: Core, arena: Arena, form: Form, stored: StoredTile): { type: string; source: number } {
  const codec = codecOf(form);
  const type = codec.elementType?.(form);
  if (type !== undefined) return { type, source: firstOf(stored.parts) };
  return { type: 'F32', source: floats(core, arena, form, stored) };
}

/** The address of the first part; 0 without parts. */
function firstOf(parts: StoredTile['parts']): number {
  for (const role in parts) return parts[role] as number;
  return 0;
}

function floats(core: Core, arena: Arena, form: Form, stored: StoredTile): number {
  const codec = codecOf(form);
  if (codec.decode === undefined) throw new Error(`${codec.id} cannot be read as floats`);
  const restored = codec.decode(core, stored, form, arena);
  const { rows, columns } = stored;
  return form.headRows === undefined ? restored : movedRows(core, arena, restored, rows, 4 * columns, form.headRows);
}

/** The memory of inputs that similar tasks share. */
interface PreparedTask {
  /** The last of these tasks. Tasks of one batch share the objects of their forms, which makes comparing them fast. */
  task: TileTask;
  readonly pieces: readonly TilePiece[];
  readonly addresses: InputAddresses;
  /** Memory for the inputs of the first piece, valid until wasm memory grows. */
  readonly views: readonly Uint8Array[];
  /** The address of the whole input in the cache. Undefined: all pieces use the same memory, one after the other. */
  readonly cached: number | undefined;
}

/** The answer of a task; undefined if the outcome has only parts and sums. */
function answerOf(task: number, outcome: Outcome, cached: number | undefined): Answer | undefined {
  const { range, sets, mismatched, problem } = outcome;
  if ((range ?? sets ?? mismatched ?? problem) === undefined) return undefined;
  const { parts: _parts, sums: _sums, ...answer } = outcome;
  return cached === undefined ? { task, ...answer } : { task, ...answer, cached };
}

const cacheRequestOf = (task: TileTask) => (task.kind === 'sets' || task.kind === 'range' ? task.cache : undefined);
const cachedRowsOf = (task: TileTask) => (task.kind === 'encode' ? task.cached : undefined);

/** The only part of a task with one input of one part. */
const onlyPartOf = ({ inputs: [{ parts }] }: TileTask) => parts[0] as InputPart;

/** Converts tiles in the memory of one core. */
export class TileConverter {
  readonly #core: Core;
  readonly #cache: InputCache;
  readonly #factors: FactorCache;
  /** Memory of the task at hand: its inputs, which are kept, then what its codecs take. */
  readonly #arena: Arena;
  /** The layout of the last task. Models often hold many consecutive tensors of the same shape. */
  #last: PreparedTask | undefined;

  constructor(core: Core) {
    this.#core = core;
    this.#cache = new InputCache(core);
    this.#factors = new FactorCache(core);
    this.#arena = new Arena(core);
  }

  /**
   * Carries out a batch, one task after the other.
   * @param inputs reads the inputs; `begin` was called for this batch
   * @param put takes the output
   * @param pause awaited before each task, after its inputs were read
   * @throws TaskError
   */
  async run({ tasks }: Batch, inputs: InputReader, put: Put, pause?: () => Promise<void>): Promise<ConvertedBatch> {
    const measured = new Uint8Array(tasks.length);
    let sums = noSums;
    const answers: Answer[] = [];
    let done = 0;
    for (let i = 0; i < tasks.length; i++) {
      const task = tasks[i] as TileTask;
      let outcome: Outcome | undefined;
      let isCached = false;
      try {
        const prepared = this.#prepare(task, inputs);
        isCached = prepared.cached !== undefined;
        // Read and convert the task piece by piece.
        for (const piece of prepared.pieces) {
          // Awaiting an input that is already here costs as much as a small task.
          const filled = inputs.fill(task, this.#views(task, piece, prepared), piece);
          if (filled !== undefined) await filled;
          if (pause !== undefined) await pause();
          outcome = this.#convert(task, piece, prepared, outcome?.sums);
          if (outcome.problem !== undefined) break;
        }
        // Hand over the parts, and free the cached input after its last use.
        const { parts, problem } = outcome as Outcome;
        if (task.kind === 'encode' && problem === undefined) this.#handOver(task, parts, put);
        const taken = cachedRowsOf(task);
        if (taken?.isLast) this.#cache.drop(taken.id);
      } catch (cause) {
        throw cause instanceof TaskError ? cause : new TaskError(i, cause);
      }
      // Collect sums and answers.
      const { sums: found, problem } = outcome as Outcome;
      if (found !== undefined) {
        if (sums.length === 0) sums = new Float64Array(tasks.length * sumCount);
        sums.set(found, i * sumCount);
        measured[i] = 1;
      }
      const answer = answerOf(i, outcome as Outcome, isCached ? cacheRequestOf(task)?.id : undefined);
      if (answer !== undefined) answers.push(answer);
      done++;
      if (problem !== undefined) break;
    }
    return { done, measured, sums, answers };
  }

  /** Lays out the inputs of a task in the arena, unless the layout of the last task fits. @throws ScalepointError `OUT_OF_MEMORY` */
  #prepare(task: TileTask, inputs: InputReader): PreparedTask {
    const { buffer } = this.#core.module.HEAPU8;
    const last = this.#last;
    if (last !== undefined && last.views[0]?.buffer === buffer && isAlike(task, last.task)) {
      last.task = task;
      return last;
    }
    this.#last = undefined;
    const pieces = piecesOf(task);
    const [first] = pieces as [TilePiece];
    const cached = this.#cachedAt(task, inputs);
    const { end: size } = this.#addressesOf(task, first, 0, cached);
    if (this.#cache.isIdle && this.#arena.capacity < size) this.#cache.release();
    const addresses = this.#addressesOf(task, first, this.#arena.start(size), cached);
    const views = this.#viewsAt(task, first, addresses);
    this.#last = { task, pieces, addresses, views, cached };
    return this.#last;
  }

  /** The address of a task's input in the cache, whether it is there already or is to be put there. */
  #cachedAt(task: TileTask, inputs: InputReader): number | undefined {
    const taken = cachedRowsOf(task);
    if (taken !== undefined) {
      const { bytes, count } = onlyPartOf(task);
      return this.#cache.find(taken.id) + taken.row * ((bytes * count) / task.rows);
    }
    const request = cacheRequestOf(task);
    if (request === undefined || !inputs.paysToCache(onlyPartOf(task).file)) return undefined;
    if (this.#arena.capacity + this.#cache.sizeFor(request) > mostMemory) this.#arena.release();
    const { bytes, count } = onlyPartOf(task);
    return this.#cache.add(request, bytes * count);
  }

  /** The addresses of a task's inputs if its memory begins at `start`. All pieces share them. */
  #addressesOf(task: TileTask, first: TilePiece, start: number, cached: number | undefined): InputAddresses {
    if (cached !== undefined) return { byRole: [{ [onlyPartOf(task).role]: cached }], byPart: [[cached]], end: start };
    let size = 0;
    const byPart: number[][] = [];
    const byRole = task.inputs.map(({ parts }) => {
      const roles: Record<string, number> = {};
      const addresses: number[] = [];
      for (const [i, part] of parts.entries()) {
        // Parts of one role lie side by side.
        if (parts[i - 1]?.role !== part.role) {
          size = aligned(size);
          roles[part.role] = start + size;
        }
        addresses.push(start + size);
        size += pieceBytes(task, part, first);
      }
      byPart.push(addresses);
      return roles;
    });
    return { byRole, byPart, end: start + aligned(size) };
  }

  #viewsAt(task: TileTask, piece: TilePiece, { byPart }: InputAddresses): Uint8Array[] {
    const { buffer } = this.#core.module.HEAPU8;
    return task.inputs.flatMap(({ parts }, i) =>
      parts.map((part, j) => new Uint8Array(buffer, byPart[i]?.[j] as number, pieceBytes(task, part, piece))),
    );
  }

  /** Memory for the inputs of a piece. */
  #views(task: TileTask, piece: TilePiece, prepared: PreparedTask): readonly Uint8Array[] {
    const { addresses, pieces, views } = prepared;
    const isGood = piece === pieces[0] && views[0]?.buffer === this.#core.module.HEAPU8.buffer;
    return isGood ? views : this.#viewsAt(task, piece, this.#cachedAddresses(task, piece, prepared) ?? addresses);
  }

  /** Addresses of a later piece in the cache; undefined for the first piece and for inputs that are not cached. */
  #cachedAddresses(task: TileTask, piece: TilePiece, { cached, addresses }: PreparedTask): InputAddresses | undefined {
    if (cached === undefined || piece.row === 0) return undefined;
    const before = pieceBytes(task, onlyPartOf(task), { row: 0, rows: piece.row });
    return this.#addressesOf(task, piece, addresses.end, cached + before);
  }

  /** Carries out a task for a piece whose inputs are in place. Adds the sums of the pieces before. */
  #convert(task: TileTask, piece: TilePiece, prepared: PreparedTask, before: Encoded['sums']): Outcome {
    const { byRole } = this.#cachedAddresses(task, piece, prepared) ?? prepared.addresses;
    this.#arena.rewind();
    const outcome = this.#carryOut(task, piece, byRole);
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

  #carryOut(task: TileTask, piece: TilePiece, addresses: readonly StoredTile['parts'][]): Outcome {
    const { columns } = task;
    const arena = this.#arena;
    const { rows } = piece;
    const a: StoredTile = { rows, columns, parts: addresses[0] as StoredTile['parts'] };
    if (task.kind === 'encode') return this.#encode(task, piece, a, addresses[1]);
    if (task.kind === 'range') {
      const { type, source } = elements(this.#core, arena, task.inputs[0].form, a);
      return { parts: {}, ...observeElements(this.#core, arena, type, rows, columns, source) };
    }
    if (task.kind === 'sets') return { parts: {}, ...this.#observe(task, piece, a) };
    const [first, second] = task.inputs;
    const x = floats(this.#core, arena, first.form, a);
    const y = floats(this.#core, arena, second.form, { rows, columns, parts: addresses[1] as StoredTile['parts'] });
    return this.#compare(x, y, rows * columns);
  }

  #compare(x: number, y: number, n: number): Outcome {
    const sums = errorsOf(this.#core, x, y, n);
    if (nonFiniteOf(sums) === 0) return { parts: {}, sums };
    const { buffer } = this.#core.module.HEAPU8;
    const mismatched = mismatchesOf(new Float32Array(buffer, x, n), new Float32Array(buffer, y, n));
    return mismatched === 0 ? { parts: {}, sums } : { parts: {}, sums, mismatched };
  }

  #observe(task: SetsTask, { row, rows }: TilePiece, stored: StoredTile): Observed {
    const arena = this.#arena;
    const { columns, inputs, to } = task;
    const codec = codecOf(to);
    if (codec.observe === undefined) throw new Error(`${codec.id} observes no sets`);
    const source = elements(this.#core, arena, inputs[0].form, stored);
    const piece = rows < task.rows ? { row, of: task.rows } : undefined;
    const tile = { rows, columns, ...source, roles: ['data'], measures: false, ranges: undefined, piece };
    const { problem, ...observed } = codec.observe(this.#core, tile, to, arena);
    if (problem === undefined) return observed;
    return { problem: { ...problem, index: problem.index + row * columns } };
  }

  /** Makes the first NaN of plain elements a problem, or the first infinity, too. */
  #refuse(refused: 'nonFinite' | 'nan', encoded: Encoded, { rows, columns }: Tile, to: Form): Encoded {
    const { parts, sums, problem } = encoded;
    if (problem !== undefined || sums === undefined || nonFiniteOf(sums) === 0) return encoded;
    const { address } = parts.data as Bytes;
    const [type, n] = [codecOf(to).label(to), rows * columns];
    const at = type === 'F64' ? address : elementFloats(this.#core, this.#arena, type, rows, columns, address);
    const { buffer } = this.#core.module.HEAPU8;
    const values = type === 'F64' ? new Float64Array(buffer, at, n) : new Float32Array(buffer, at, n);
    const index = values.findIndex(
      (value) => Number.isNaN(value) || (refused === 'nonFinite' && !Number.isFinite(value)),
    );
    if (index < 0) return encoded;
    return { parts: {}, problem: { kind: 'non-finite', index, value: values[index] as number } };
  }

  /** Adds the errors of outputs to the sums of a tile. */
  #judge(encoded: Encoded, { rows, columns, type, source }: Tile, to: Form, moments: number): Encoded {
    const { parts, sums, problem } = encoded;
    if (sums === undefined || problem !== undefined) return encoded;
    const [core, arena] = [this.#core, this.#arena];
    const [part] = Object.entries(parts) as [[Role, Bytes]];
    const stored = { rows, columns, parts: { [part[0]]: part[1].address } };
    const x = elementFloats(core, arena, type, rows, columns, source);
    const y = floats(core, arena, to, stored);
    return { ...encoded, sums: withOutputErrors(core, arena, sums, { x, y, rows, columns, moments }) };
  }

  /** @param second the addresses of the task's moments, if it has them */
  #encode(
    task: EncodeTask,
    { row, rows }: TilePiece,
    stored: StoredTile,
    second: StoredTile['parts'] | undefined,
  ): Encoded {
    const arena = this.#arena;
    const { inputs, columns, outputs, measures, ranges, to } = task;
    const [{ form, parts }] = inputs;
    const codec = codecOf(to);
    if (codec.encode === undefined) throw new Error(`${codec.id} cannot be written`);
    const roles = outputs.map(({ role }) => role);
    if (codec.recode !== undefined && codec.recodes?.(to) === true)
      return codec.recode(this.#core, stored, form, { roles, measures }, arena);
    // Without inputs, the parts follow from the ranges.
    const { type, source } = parts.length === 0 ? nothing : elements(this.#core, arena, form, stored);
    const piece = rows < task.rows ? { row, of: task.rows } : undefined;
    const plain = { rows, columns, type, source, roles, measures, ranges, piece };
    if (second === undefined) {
      const encoded = codec.encode(this.#core, plain, to, arena);
      return task.refuses === undefined ? encoded : this.#refuse(task.refuses, encoded, plain, to);
    }
    if (task.judges)
      return this.#judge(codec.encode(this.#core, plain, to, arena), plain, to, second.heldBack ?? second.data ?? 0);
    const moments = this.#factors.momentsOf(task, second);
    return codec.encode(this.#core, { ...plain, moments }, to, arena);
  }
}
