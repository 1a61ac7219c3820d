/**
 * Carries out tasks in the memory of one core: in a worker, or in the calling thread for small models. A task needs nothing but its own
 * bytes, so that the results are the same wherever and in whichever order tasks run.
 */

import { addSums, mismatchesOf, nonFiniteOf, sumCount } from '../core/measure.js';
import type { Core } from '../core/memory.js';
import { elementFloats, errorsOf, movedRows, observeElements, withOutputErrors } from '../formats/codecs/calls.js';
import { Arena, type Bytes, type Encoded, type Form, type Role, type StoredTile } from '../formats/codecs/codec.js';
import { codecOf } from '../formats/codecs/registry.js';
import { FactorCache } from './factor-cache.js';
import { InputCache } from './input-cache.js';
import type { InputReader } from './input-reader.js';
import {
  type Answer,
  type Batch,
  type BatchResult,
  type EncodeTask,
  type InputPart,
  pieceBytes,
  TaskError,
  type TilePiece,
  type TileTask,
  taskPieces,
} from './task.js';
import { isAlike } from './tile-jobs.js';

/** The result of a task, with its parts in wasm memory. */
type Outcome = Encoded & Omit<Answer, 'task'>;

/** The result of a batch, apart from its output. */
export type ConvertedBatch = Pick<BatchResult, 'done' | 'measured' | 'sums' | 'answers'>;

/** Placeholder for the elements of a task without inputs. */
const nothing = { type: 'F32', source: 0 };

/** Takes bytes of a batch's output and their offset in it. The bytes are valid during the call only. */
export type Put = (offset: number, bytes: Uint8Array) => void;

/** Bytes of arena and input cache together, beyond which the memory of the arena is released before the cache grows. */
const mostMemory = 40 * 2 ** 20;

const aligned = (address: number) => Math.ceil(address / 16) * 16;

/** Decodes elements to floats. Returns their address. */
function decodedFloats(core: Core, arena: Arena, form: Form, stored: StoredTile): number {
  const codec = codecOf(form);
  if (codec.decode === undefined) throw new Error(`${codec.id} cannot be read as floats`);
  const restored = codec.decode(core, stored, form, arena);
  const { rows, columns } = stored;
  return form.headRows === undefined ? restored : movedRows(core, arena, restored, rows, 4 * columns, form.headRows);
}

/** The type and address of elements, decoded first unless the core reads them as they are. */
function elementsIn(core: Core, arena: Arena, form: Form, stored: StoredTile): { type: string; source: number } {
  const type = codecOf(form).elementType?.(form);
  if (type === undefined) return { type: 'F32', source: decodedFloats(core, arena, form, stored) };
  return { type, source: Object.values(stored.parts)[0] ?? 0 };
}

/** Where the inputs of a task lie in wasm memory. */
interface InputPlace {
  /** Addresses of the roles, for each input. */
  readonly byRole: readonly StoredTile['parts'][];
  /** Memory of the parts, valid until wasm memory grows. */
  readonly views: readonly Uint8Array[];
}

/** The memory of inputs that similar tasks share. */
interface PreparedTask extends InputPlace {
  /** The last of these tasks. Tasks of one batch share the objects of their forms, which makes comparing them fast. */
  task: TileTask;
  readonly pieces: readonly TilePiece[];
  /** The address of each part of the first piece. */
  readonly addresses: readonly number[];
  /** True if the whole input goes into the cache, or is there. Otherwise all pieces use the same memory, one after the other. */
  readonly isCached: boolean;
}

/** Converts tiles in the memory of one core. */
export class TileConverter {
  readonly #core: Core;
  readonly #cache: InputCache;
  #factors: FactorCache | undefined;
  /** Memory of the task at hand: its inputs, which are kept, then what its codecs take. */
  readonly #arena: Arena;
  /** The layout of the last task. Models often hold many consecutive tensors of the same shape. */
  #last: PreparedTask | undefined;

  constructor(core: Core) {
    this.#core = core;
    this.#cache = new InputCache(core);
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
    let sums = new Float64Array(0);
    const answers: Answer[] = [];
    let done = 0;
    for (let i = 0; i < tasks.length; i++) {
      const task = tasks[i] as TileTask;
      let outcome: Outcome = { parts: {} };
      let isCached = false;
      try {
        const prepared = this.#prepare(task, inputs);
        isCached = prepared.isCached;
        // Read and convert the task piece by piece, and add up the sums.
        for (const piece of prepared.pieces) {
          const { byRole, views } = this.#placeOf(task, piece, prepared);
          // Awaiting an input that is already here costs as much as a small task.
          const filled = inputs.fill(task, views, piece);
          if (filled !== undefined) await filled;
          if (pause !== undefined) await pause();
          this.#arena.rewind();
          const { sums: before } = outcome;
          outcome = this.#convert(task, piece, byRole);
          if (outcome.sums !== undefined && before !== undefined) addSums(outcome.sums, before);
          if (outcome.problem !== undefined) break;
        }
        // Hand over the parts, and free the cached input after its last use.
        if (task.kind === 'encode') {
          const { HEAPU8 } = this.#core.module;
          for (const { role, offset, bytes } of outcome.problem === undefined ? task.outputs : []) {
            const part = outcome.parts[role];
            if (part?.bytes !== bytes)
              throw new Error(`the ${role} of a tile has ${part?.bytes} bytes instead of ${bytes}`);
            put(offset, HEAPU8.subarray(part.address, part.address + bytes));
          }
          if (task.cached?.isLast) this.#cache.drop(task.cached.id);
        }
      } catch (cause) {
        throw cause instanceof TaskError ? cause : new TaskError(i, cause);
      }
      // Collect sums and answers.
      const { sums: found, range, sets, mismatched, problem } = outcome;
      if (found !== undefined) {
        if (sums.length === 0) sums = new Float64Array(tasks.length * sumCount);
        sums.set(found, i * sumCount);
        measured[i] = 1;
      }
      if ((range ?? sets ?? mismatched ?? problem) !== undefined) {
        const { parts: _parts, sums: _sums, ...answer } = outcome;
        const id = isCached && 'cache' in task ? task.cache?.id : undefined;
        answers.push({ task: i, ...answer, ...(id === undefined ? {} : { cached: id }) });
      }
      done++;
      if (problem !== undefined) break;
    }
    return { done, measured, sums, answers };
  }

  /** Lays out the inputs of a task in the arena, unless the layout of the last task fits. @throws ScalepointError `OUT_OF_MEMORY` */
  #prepare(task: TileTask, inputs: InputReader): PreparedTask {
    const last = this.#last;
    if (last !== undefined && last.views[0]?.buffer === this.#core.module.HEAPU8.buffer && isAlike(task, last.task)) {
      last.task = task;
      return last;
    }
    this.#last = undefined;
    const pieces = taskPieces(task);
    const [first] = pieces as [TilePiece];
    // Find the input in the cache, or a place for it.
    let cachedAt: number | undefined;
    const [part] = task.inputs[0].parts;
    if (task.kind === 'encode' && task.cached !== undefined && part !== undefined) {
      cachedAt = this.#cache.find(task.cached.id) + task.cached.row * ((part.bytes * part.count) / task.rows);
    } else if ('cache' in task && task.cache !== undefined && part !== undefined && inputs.paysToCache(part.file)) {
      if (this.#arena.capacity + this.#cache.sizeFor(task.cache) > mostMemory) this.#arena.release();
      cachedAt = this.#cache.add(task.cache, part.bytes * part.count);
    }
    // Lay out the other inputs. Parts of one role lie side by side.
    let size = 0;
    const offsets: number[] = [];
    for (const { parts } of cachedAt === undefined ? task.inputs : []) {
      for (const [i, part] of parts.entries()) {
        if (parts[i - 1]?.role !== part.role) size = aligned(size);
        offsets.push(size);
        size += pieceBytes(task, part, first);
      }
    }
    size = aligned(size);
    if (this.#arena.capacity < size) this.#cache.releaseIdle();
    const start = this.#arena.start(size);
    const addresses = cachedAt === undefined ? offsets.map((offset) => start + offset) : [cachedAt];
    let at = 0;
    const byRole = task.inputs.map(({ parts }) => {
      const roles: Record<Role, number> = {};
      for (const [i, { role }] of parts.entries()) {
        const address = addresses[at++] as number;
        if (parts[i - 1]?.role !== role) roles[role] = address;
      }
      return roles;
    });
    const views = this.#viewsAt(task, first, addresses);
    this.#last = { task, pieces, addresses, byRole, views, isCached: cachedAt !== undefined };
    return this.#last;
  }

  #viewsAt(task: TileTask, piece: TilePiece, addresses: readonly number[]): Uint8Array[] {
    const { buffer } = this.#core.module.HEAPU8;
    const parts = task.inputs.flatMap((input) => input.parts);
    return addresses.map((at, i) => new Uint8Array(buffer, at, pieceBytes(task, parts[i] as InputPart, piece)));
  }

  /** Where the inputs of a piece lie. Those of a later piece in the cache follow those of the pieces before. */
  #placeOf(task: TileTask, piece: TilePiece, prepared: PreparedTask): InputPlace {
    const { addresses, byRole, views, isCached } = prepared;
    if (piece.row === 0 && views[0]?.buffer === this.#core.module.HEAPU8.buffer) return prepared;
    const [part] = task.inputs[0].parts;
    if (!isCached || piece.row === 0 || part === undefined)
      return { byRole, views: this.#viewsAt(task, piece, addresses) };
    const at = (addresses[0] as number) + pieceBytes(task, part, { row: 0, rows: piece.row });
    return { byRole: [{ [part.role]: at }], views: this.#viewsAt(task, piece, [at]) };
  }

  /** Carries out a task for a piece whose inputs are in place. */
  #convert(task: TileTask, piece: TilePiece, addresses: readonly StoredTile['parts'][]): Outcome {
    const [core, arena] = [this.#core, this.#arena];
    const { columns } = task;
    const { row, rows } = piece;
    const [parts, second] = addresses as [StoredTile['parts'], StoredTile['parts']?];
    const stored: StoredTile = { rows, columns, parts };
    if (task.kind === 'encode') return this.#encode(task, piece, stored, second);
    if (task.kind === 'compare') {
      const [a, b] = task.inputs;
      const x = decodedFloats(core, arena, a.form, stored);
      const y = decodedFloats(core, arena, b.form, { rows, columns, parts: second ?? {} });
      const n = rows * columns;
      const sums = errorsOf(core, x, y, n);
      if (nonFiniteOf(sums) === 0) return { parts: {}, sums };
      const { buffer } = core.module.HEAPU8;
      const mismatched = mismatchesOf(new Float32Array(buffer, x, n), new Float32Array(buffer, y, n));
      return mismatched === 0 ? { parts: {}, sums } : { parts: {}, sums, mismatched };
    }
    const elements = elementsIn(core, arena, task.inputs[0].form, stored);
    if (task.kind === 'range')
      return { parts: {}, ...observeElements(core, arena, elements.type, rows, columns, elements.source) };
    const { to } = task;
    const codec = codecOf(to);
    if (codec.observe === undefined) throw new Error(`${codec.id} observes no sets`);
    const of = rows < task.rows ? { row, of: task.rows } : undefined;
    const tile = { rows, columns, ...elements, roles: ['data'], measures: false, ranges: undefined, piece: of };
    const { problem, ...observed } = codec.observe(core, tile, to, arena);
    if (problem === undefined) return { parts: {}, ...observed };
    return { parts: {}, problem: { ...problem, index: problem.index + row * columns } };
  }

  /** @param second the addresses of the task's moments, if it has them */
  #encode(
    task: EncodeTask,
    { row, rows }: TilePiece,
    stored: StoredTile,
    second: StoredTile['parts'] | undefined,
  ): Encoded {
    const [core, arena] = [this.#core, this.#arena];
    const { inputs, columns, outputs, measures, ranges, to, refuses } = task;
    const [{ form, parts }] = inputs;
    const codec = codecOf(to);
    if (codec.encode === undefined) throw new Error(`${codec.id} cannot be written`);
    const roles = outputs.map(({ role }) => role);
    if (codec.recode !== undefined && codec.recodes?.(to) === true)
      return codec.recode(core, stored, form, { roles, measures }, arena);
    // Without inputs, the parts follow from the ranges.
    const { type, source } = parts.length === 0 ? nothing : elementsIn(core, arena, form, stored);
    const piece = rows < task.rows ? { row, of: task.rows } : undefined;
    const plain = { rows, columns, type, source, roles, measures, ranges, piece };
    if (second !== undefined && !task.judges) {
      this.#factors ??= new FactorCache(core);
      const moments = this.#factors.momentsOf(task, second);
      return codec.encode(core, { ...plain, moments }, to, arena);
    }
    const encoded = codec.encode(core, plain, to, arena);
    if (encoded.sums === undefined || encoded.problem !== undefined) return encoded;
    if (second !== undefined) {
      // Add the errors of outputs to the sums of the tile.
      const [[role, { address }]] = Object.entries(encoded.parts) as [[Role, Bytes]];
      const x = elementFloats(core, arena, type, rows, columns, source);
      const y = decodedFloats(core, arena, to, { rows, columns, parts: { [role]: address } });
      const moments = second.heldBack ?? second.data ?? 0;
      return { ...encoded, sums: withOutputErrors(core, arena, encoded.sums, { x, y, rows, columns, moments }) };
    }
    if (refuses === undefined || nonFiniteOf(encoded.sums) === 0) return encoded;
    // Make the first NaN of plain elements a problem, or the first infinity, too.
    const { address } = encoded.parts.data as Bytes;
    const [label, n] = [codec.label(to), rows * columns];
    const at = label === 'F64' ? address : elementFloats(core, arena, label, rows, columns, address);
    const { buffer } = core.module.HEAPU8;
    const values = label === 'F64' ? new Float64Array(buffer, at, n) : new Float32Array(buffer, at, n);
    const isRefused = (x: number) => Number.isNaN(x) || (refuses === 'nonFinite' && !Number.isFinite(x));
    const index = values.findIndex(isRefused);
    if (index < 0) return encoded;
    return { parts: {}, problem: { kind: 'non-finite', index, value: values[index] as number } };
  }
}
