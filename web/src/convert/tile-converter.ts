/**
 * Carries out tasks in the memory of one core: in a worker, or in the calling thread for small models. A task needs nothing but its own
 * bytes, so that the results are the same wherever and in whichever order tasks run.
 */

import { type Factor, factorBytes, factorOf } from '../core/factor.js';
import { addSums, mismatchesOf, nonFiniteOf, sumCount } from '../core/measure.js';
import { align, type Core } from '../core/memory.js';
import {
  elementFloats,
  errorsOf,
  movedRows,
  observeElements,
  withOutputErrors,
  wrongMoments,
} from '../formats/codecs/calls.js';
import {
  Arena,
  type Bytes,
  type Encoded,
  type Form,
  type Role,
  type StoredTile,
  type TileMoments,
} from '../formats/codecs/codec.js';
import { codecOf } from '../formats/codecs/registry.js';
import type { WriteBytes } from '../formats/files/reference.js';
import { type InputReader, pieceBytes, type TilePiece, taskPieces } from './input-reader.js';
import {
  type Answer,
  type Batch,
  type BatchResult,
  type CacheRequest,
  type EncodeTask,
  type InputPart,
  mostCached,
  TaskError,
  type TileTask,
} from './task.js';
import { isAlike } from './tile-jobs.js';

/** The result of a task, with its parts in wasm memory. */
type Outcome = Encoded & Omit<Answer, 'task'>;

/** The result of a batch, apart from its output. */
export type ConvertedBatch = Pick<BatchResult, 'done' | 'measured' | 'sums' | 'answers'>;

/** Takes bytes of a batch's output and their offset in it. The bytes are valid during the call only. */
export type Put = (offset: number, bytes: Uint8Array) => void;

/** Bytes of arena and input cache together, beyond which the memory of the arena is released before the cache grows. */
const mostMemory = 40 * 2 ** 20;

/** Decodes elements to floats. Returns their address. */
function decodedFloats(arena: Arena, form: Form, stored: StoredTile): number {
  const codec = codecOf(form);
  if (codec.decode === undefined) throw new Error(`${codec.id} cannot be read as floats`);
  const restored = codec.decode(arena.core, stored, form, arena);
  const { rows, columns } = stored;
  if (form.headRows === undefined) return restored;
  return movedRows(arena, restored, { rows, bytes: 4 * columns, head: form.headRows });
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

/** A stretch of wasm memory with cached inputs. */
class InputCache {
  readonly #core: Core;
  /** The stretch; undefined before the first input. */
  #room: { readonly base: number; readonly size: number } | undefined;
  #used = 0;
  /** Addresses of the inputs, by the ids of their requests. */
  readonly #addresses = new Map<number, number>();

  constructor(core: Core) {
    this.#core = core;
  }

  /**
   * Bytes that the stretch takes, or would take for a request: twice its total, since the last tiles of one tensor still wait when the next
   * tensor is observed.
   */
  sizeFor({ total }: CacheRequest): number {
    return Math.max(this.#room?.size ?? 0, Math.min(2 * total, mostCached));
  }

  /** Reserves memory for the bytes of an input. Returns its address; undefined if there is no room. */
  add(request: CacheRequest, bytes: number): number | undefined {
    const size = this.sizeFor(request);
    if (this.#addresses.size === 0 && (this.#room?.size ?? 0) < size) {
      this.releaseIdle();
      // The cache is optional: tasks work without it.
      const base = this.#core.tryAllocate(size + 16);
      if (base === 0) return undefined;
      this.#room = { base, size };
    }
    const room = this.#room;
    if (room === undefined || this.#used + bytes > room.size) return undefined;
    const address = align(room.base + this.#used);
    this.#used = address + bytes - room.base;
    this.#addresses.set(request.id, address);
    return address;
  }

  /** The address of a cached input. */
  find(id: number): number {
    const address = this.#addresses.get(id);
    if (address === undefined) throw new Error(`no input was cached as ${id}`);
    return address;
  }

  /** Removes an input. */
  drop(id: number): void {
    this.#addresses.delete(id);
    if (this.#addresses.size === 0) this.#used = 0;
  }

  /** Releases the memory if it holds no inputs. */
  releaseIdle(): void {
    if (this.#room === undefined || this.#addresses.size > 0) return;
    this.#core.release(this.#room.base);
    this.#room = undefined;
    this.#used = 0;
  }
}

/** Converts tiles in the memory of one core. */
export class TileConverter {
  readonly #core: Core;
  #cache: InputCache | undefined;
  #factors: FactorCache | undefined;
  /** Memory of the task at hand: its inputs, which are kept, then what its codecs take. */
  readonly #arena: Arena;
  /** The layout of the last task. Models often hold many consecutive tensors of the same shape. */
  #last: PreparedTask | undefined;

  constructor(core: Core) {
    this.#core = core;
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
          const isFirst = piece.row === 0 && prepared.views[0]?.buffer === this.#core.module.HEAPU8.buffer;
          const { byRole, views } = isFirst ? prepared : this.#placeOf(task, piece, prepared);
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
          if (task.cached?.isLast) this.#cache?.drop(task.cached.id);
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
      this.#cache ??= new InputCache(this.#core);
      cachedAt = this.#cache.find(task.cached.id) + task.cached.row * ((part.bytes * part.count) / task.rows);
    } else if ('cache' in task && task.cache !== undefined && part !== undefined && inputs.paysToCache(part.file)) {
      this.#cache ??= new InputCache(this.#core);
      if (this.#arena.capacity + this.#cache.sizeFor(task.cache) > mostMemory) this.#arena.release();
      cachedAt = this.#cache.add(task.cache, part.bytes * part.count);
    }
    // Lay out the other inputs. Parts of one role lie side by side.
    let size = 0;
    const offsets: number[] = [];
    for (const { parts } of cachedAt === undefined ? task.inputs : []) {
      for (const [i, part] of parts.entries()) {
        if (parts[i - 1]?.role !== part.role) size = align(size);
        offsets.push(size);
        size += pieceBytes(task, part, first);
      }
    }
    size = align(size);
    if (this.#arena.capacity < size) this.#cache?.releaseIdle();
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

  /** Where the inputs of a piece lie, if it is a later one or memory has moved. Those of a later piece in the cache follow those of the pieces before. */
  #placeOf(task: TileTask, piece: TilePiece, prepared: PreparedTask): InputPlace {
    const { addresses, byRole, isCached } = prepared;
    const [part] = task.inputs[0].parts;
    if (!isCached || piece.row === 0 || part === undefined)
      return { byRole, views: this.#viewsAt(task, piece, addresses) };
    const at = (addresses[0] as number) + pieceBytes(task, part, { row: 0, rows: piece.row });
    return { byRole: [{ [part.role]: at }], views: this.#viewsAt(task, piece, [at]) };
  }

  /** Carries out a task for a piece whose inputs are in place. */
  #convert(task: TileTask, { row, rows }: TilePiece, addresses: readonly StoredTile['parts'][]): Outcome {
    const [core, arena] = [this.#core, this.#arena];
    const { columns } = task;
    const n = rows * columns;
    const [parts, second] = addresses as [StoredTile['parts'], StoredTile['parts']?];
    const stored: StoredTile = { rows, columns, parts };
    if (task.kind === 'compare') {
      const [a, b] = task.inputs;
      const x = decodedFloats(arena, a.form, stored);
      const y = decodedFloats(arena, b.form, { rows, columns, parts: second ?? {} });
      const sums = errorsOf(core, x, y, n);
      if (nonFiniteOf(sums) === 0) return { parts: {}, sums };
      const { buffer } = core.module.HEAPU8;
      const mismatched = mismatchesOf(new Float32Array(buffer, x, n), new Float32Array(buffer, y, n));
      return mismatched === 0 ? { parts: {}, sums } : { parts: {}, sums, mismatched };
    }
    const [{ form, parts: inputParts }] = task.inputs;
    if (task.kind === 'encode') {
      const codec = codecOf(task.to);
      if (codec.recode !== undefined && codec.recodes?.(task.to) === true) {
        const made = { roles: task.outputs.map(({ role }) => role), measures: task.measures };
        return codec.recode(core, stored, form, made, arena);
      }
    }
    // Read the elements. Without inputs, the parts of a tile follow from the ranges.
    let [type, source] = ['F32', 0];
    if (inputParts.length > 0) {
      const plain = codecOf(form).elementType?.(form);
      type = plain ?? type;
      source = plain === undefined ? decodedFloats(arena, form, stored) : (Object.values(parts)[0] ?? 0);
    }
    if (task.kind === 'range') return { parts: {}, ...observeElements(arena, { type, source, rows, columns }) };
    const { to } = task;
    const codec = codecOf(to);
    const piece = rows < task.rows ? { row, of: task.rows } : undefined;
    if (task.kind === 'sets') {
      if (codec.observe === undefined) throw new Error(`${codec.id} observes no sets`);
      const tile = { rows, columns, type, source, roles: ['data'], measures: false, ranges: undefined, piece };
      const { problem, ...observed } = codec.observe(core, tile, to, arena);
      if (problem === undefined) return { parts: {}, ...observed };
      return { parts: {}, problem: { ...problem, index: problem.index + row * columns } };
    }
    if (codec.encode === undefined) throw new Error(`${codec.id} cannot be written`);
    const { outputs, measures, ranges, refuses } = task;
    const roles = outputs.map(({ role }) => role);
    const plain = { rows, columns, type, source, roles, measures, ranges, piece };
    if (second !== undefined && !task.judges) {
      this.#factors ??= new FactorCache(core);
      return codec.encode(core, { ...plain, moments: this.#factors.momentsOf(task, second) }, to, arena);
    }
    const encoded = codec.encode(core, plain, to, arena);
    if (encoded.sums === undefined || encoded.problem !== undefined) return encoded;
    if (second !== undefined) {
      // Add the errors of outputs to the sums of the tile.
      const [[role, { address }]] = Object.entries(encoded.parts) as [[Role, Bytes]];
      const x = elementFloats(arena, { type, source, rows, columns });
      const y = decodedFloats(arena, to, { rows, columns, parts: { [role]: address } });
      const moments = second.heldBack ?? second.data ?? 0;
      return { ...encoded, sums: withOutputErrors(arena, encoded.sums, { x, y, rows, columns, moments }) };
    }
    if (refuses === undefined || nonFiniteOf(encoded.sums) === 0) return encoded;
    // Make the first NaN of plain elements a problem, or the first infinity, too.
    const { address } = encoded.parts.data as Bytes;
    const label = codec.label(to);
    const at = label === 'F64' ? address : elementFloats(arena, { type: label, rows, columns, source: address });
    const { buffer } = core.module.HEAPU8;
    const values = label === 'F64' ? new Float64Array(buffer, at, n) : new Float32Array(buffer, at, n);
    const isRefused = (x: number) => Number.isNaN(x) || (refuses === 'nonFinite' && !Number.isFinite(x));
    const index = values.findIndex(isRefused);
    if (index < 0) return encoded;
    return { parts: {}, problem: { kind: 'non-finite', index, value: values[index] as number } };
  }
}

/** Takes the output of one batch. */
export interface BatchOutput {
  readonly put: Put;
  /** Ends the batch. Returns the output that is in memory. */
  end(): ArrayBuffer;
}

/**
 * Collects an output in memory.
 * @param spare memory of an earlier output, reused if its size fits, because garbage of megabytes for each batch would pile up
 */
export function memoryOutput({ outputBytes }: Batch, spare: ArrayBuffer | undefined): BatchOutput {
  const output = spare?.byteLength === outputBytes ? spare : new ArrayBuffer(outputBytes);
  const memory = new Uint8Array(output);
  return { put: (offset, bytes) => memory.set(bytes, offset), end: () => output };
}

/** Writes an output into files, as the batch says. The output of a single task is written from where it lies, that of several at once. */
export function fileOutput(batch: Batch, writes: Float64Array, files: readonly WriteBytes[]): BatchOutput {
  const write = (offset: number, bytes: Uint8Array) => {
    const end = offset + bytes.length;
    for (let i = 0; i < writes.length; i += 4) {
      const from = writes[i + 2] as number;
      const first = Math.max(offset, from);
      const last = Math.min(end, from + (writes[i + 3] as number));
      if (first >= last) continue;
      try {
        const write = files[writes[i] as number] as WriteBytes;
        write((writes[i + 1] as number) + first - from, bytes.subarray(first - offset, last - offset));
      } catch (cause) {
        // Name the task that makes the first of these bytes.
        const task = batch.tasks.findIndex(
          (one) =>
            one.kind === 'encode' &&
            one.outputs.some((part) => part.offset <= first && first < part.offset + part.bytes),
        );
        throw new TaskError(Math.max(0, task), cause, true);
      }
    }
  };
  const [first, ...others] = batch.tasks;
  const made = first?.kind === 'encode' ? first.outputs.reduce((sum, { bytes }) => sum + bytes, 0) : 0;
  if (others.length === 0 && made === batch.outputBytes) return { put: write, end: () => new ArrayBuffer(0) };
  const memory = memoryOutput(batch, undefined);
  return {
    put: memory.put,
    end() {
      write(0, new Uint8Array(memory.end()));
      return new ArrayBuffer(0);
    },
  };
}

/** Memory of factors that stay besides the last one. Enough for the queries and keys of 2,048 columns, with another matrix between them. */
const mostBytes = 48 * 2 ** 20;

/** Keeps the last factors. For K columns each takes 4 K² bytes, and 8 K² more while it is made. */
export class FactorCache {
  readonly #core: Core;
  /** By their inputs and settings. The last one that was used comes last. */
  readonly #kept = new Map<string, Factor>();

  constructor(core: Core) {
    this.#core = core;
  }

  /**
   * The moments of a task with their factor. @param parts addresses of the second input of the task, by role
   * @throws ScalepointError `BAD_FILE` for numbers that cannot be moments, `OUT_OF_MEMORY`
   */
  momentsOf({ inputs: [, input], damping = 0, order, to }: EncodeTask, parts: StoredTile['parts']): TileMoments {
    const { data: moments = 0, heldBack = 0 } = parts;
    // They are the square of the number of inputs, in float32.
    const columns = Math.sqrt((input?.parts[0]?.bytes ?? 0) / 4);
    const groups = order === 'falling' ? codecOf(to).feedbackGroups?.(this.#core, to) : undefined;
    const [part, held] = input?.parts ?? [];
    const key = [part?.file, part?.begin, held?.begin, damping, groups?.group, groups?.outer].join();
    let factor = this.#kept.get(key);
    if (factor === undefined) {
      const n = columns * columns;
      if (heldBack !== 0 && this.#core.module.firstNonFinite(heldBack, n) < n) throw wrongMoments();
      // Free old factors until this one has room.
      let sum = factorBytes(columns);
      for (const { bytes } of this.#kept.values()) sum += bytes;
      for (const [old, { feedback, bytes }] of this.#kept) {
        if (sum <= mostBytes) break;
        this.#kept.delete(old);
        this.#core.release(feedback);
        sum -= bytes;
      }
      factor = factorOf(this.#core, moments, columns, damping, groups);
      if (factor === undefined) throw wrongMoments();
    }
    this.#kept.delete(key);
    this.#kept.set(key, factor);
    const { feedback, weights, damping: used, order: columnsOrder } = factor;
    return { moments, feedback, weights, damping: used, order: columnsOrder, heldBack };
  }
}
