/**
 * Carries out tasks in the memory of one core. Runs in a worker, or in the caller's thread for small models. A task needs nothing but its
 * own bytes, so tasks can be carried out anywhere and in any order, and the results are the same.
 */
import { Arena } from '../codecs/arena.js';
import { errorsOf, observe } from '../codecs/calls.js';
import type { Encoded, Form, Stored } from '../codecs/codec.js';
import { codecOf } from '../codecs/registry.js';
import type { Core } from '../core/wasm.js';
import type { EncodeTask, Piece, TileResult, TileTask } from './tasks.js';

/** What a task gives, before it is copied out of wasm memory. */
type Outcome = Encoded & Pick<TileResult, 'range'>;

const aligned = (address: number) => Math.ceil(address / 16) * 16;

/** Elements that the core reads by itself: their type and address. */
function elements(core: Core, arena: Arena, form: Form, stored: Stored): { type: string; source: number } {
  const codec = codecOf(form);
  const type = codec.elementType?.(form);
  const [first = 0] = Object.values(stored.parts);
  if (type !== undefined) return { type, source: first };
  return { type: 'F32', source: floats(core, arena, form, stored) };
}

function floats(core: Core, arena: Arena, form: Form, stored: Stored): number {
  const codec = codecOf(form);
  if (codec.decode === undefined) throw new Error(`${codec.id} cannot be read as floats`);
  return codec.decode(core, stored, form, arena);
}

/** Converts tiles in the memory of one core. */
export class TileConverter {
  readonly #core: Core;
  #memory: { readonly base: number; readonly size: number } | undefined;

  constructor(core: Core) {
    this.#core = core;
  }

  /**
   * Takes all memory that a task needs, and shows where its inputs go. The views are good until the next call.
   * @throws ScalepointError `OUT_OF_MEMORY`
   */
  prepare(task: TileTask): Uint8Array[] {
    const { places, size } = this.#placesOf(task, 0);
    const counting = new Arena();
    this.#carryOut(task, places, counting);
    const start = this.#reserve(size + counting.size);
    // Only now: taking memory may have moved all of it.
    const { buffer } = this.#core.module.HEAPU8;
    return task.pieces.flatMap(({ inputs }, i) =>
      inputs.map(({ role, bytes, count }) => {
        return new Uint8Array(buffer, start + (places[i]?.[role] as number), bytes * count);
      }),
    );
  }

  /**
   * Carries out a task whose inputs are in place. Results go to `spare` buffers of their sizes: as garbage, each of some megabytes, they
   * would pile up until the engine collects them.
   */
  run(task: TileTask, spare: readonly ArrayBuffer[]): TileResult {
    const start = this.#start();
    const { places, size } = this.#placesOf(task, start);
    const { parts, ...rest } = this.#carryOut(task, places, new Arena(start + size));
    const left = [...spare];
    const copies = Object.entries(parts).map(([role, { address, bytes }]) => {
      const fitting = left.findIndex(({ byteLength }) => byteLength === bytes);
      const copy = fitting < 0 ? new ArrayBuffer(bytes) : (left.splice(fitting, 1)[0] as ArrayBuffer);
      new Uint8Array(copy).set(this.#core.module.HEAPU8.subarray(address, address + bytes));
      return [role, copy] as const;
    });
    return { parts: Object.fromEntries(copies), ...rest };
  }

  /** Where the inputs of a task go, if its memory begins at `start`; and how much of it they take. */
  #placesOf({ pieces }: TileTask, start: number): { places: Stored['parts'][]; size: number } {
    let size = 0;
    const places = pieces.map(({ inputs }) => {
      const parts: Record<string, number> = {};
      for (const { role, bytes, count } of inputs) {
        parts[role] = start + size;
        size = aligned(size + bytes * count);
      }
      return parts;
    });
    return { places, size };
  }

  /** Address of at least so many bytes. */
  #reserve(size: number): number {
    if (this.#memory === undefined || this.#memory.size < size) {
      if (this.#memory !== undefined) this.#core.release(this.#memory.base);
      this.#memory = undefined;
      this.#memory = { base: this.#core.allocate(size + 16), size };
    }
    return this.#start();
  }

  #start(): number {
    return aligned(this.#memory?.base ?? 0);
  }

  /** Carries out a task, or counts what memory it takes beside its inputs. */
  #carryOut(task: TileTask, places: readonly Stored['parts'][], arena: Arena): Outcome {
    const { rows, columns } = task;
    const [a, b] = task.pieces.map(({ form }: Piece, i) => {
      return { form, stored: { rows, columns, parts: places[i] as Stored['parts'] } };
    }) as [{ form: Form; stored: Stored }, { form: Form; stored: Stored } | undefined];
    if (task.kind === 'encode') return this.#encode(task, a.stored, arena);
    if (task.kind === 'range') {
      const { type, source } = elements(this.#core, arena, a.form, a.stored);
      return { parts: {}, ...observe(this.#core, arena, type, rows, columns, source) };
    }
    const x = floats(this.#core, arena, a.form, a.stored);
    const y = b === undefined ? x : floats(this.#core, arena, b.form, b.stored);
    if (arena.onlyCounts) return { parts: {} };
    return { parts: {}, sums: errorsOf(this.#core, x, y, rows * columns) };
  }

  #encode(
    { pieces: [{ form, inputs }], rows, columns, roles, measures, ranges, to }: EncodeTask,
    stored: Stored,
    arena: Arena,
  ) {
    const codec = codecOf(to);
    if (codec.encode === undefined) throw new Error(`${codec.id} cannot be written`);
    // Without inputs the ranges tell everything.
    const source = inputs.length === 0 ? { type: 'F32', source: 0 } : elements(this.#core, arena, form, stored);
    return codec.encode(this.#core, { rows, columns, ...source, roles, measures, ranges }, to, arena);
  }
}
