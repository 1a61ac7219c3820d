/**
 * Cuts tensors into tiles. How a tensor is cut depends on its form and its source alone, so that the same sums are added in the same order
 * with every runner and every output.
 */
import type {
  ByteRuns,
  Form,
  RangeCut,
  Rectangle,
  Role,
  SetsCut,
  TileCut,
  ValueRange,
} from '../formats/codecs/codec.js';
import { elementsOf } from '../formats/codecs/elements.js';
import { codecOf, float32Form } from '../formats/codecs/registry.js';
import type { ByteSource } from '../formats/files/bytes.js';
import type { LogicalTensor, PlannedTensor } from '../formats/format.js';
import type { WeightMoments } from '../formats/statistics.js';
import { gridOf, rectangleInput } from './logical-tensor.js';
import {
  type CachedRows,
  type CacheRequest,
  type CompareTask,
  type EncodeTask,
  equalForms,
  type OutputPart,
  type TileInput,
} from './task.js';

/** Where a part of a tensor begins: in a file of the result, or in memory that is written later. */
export interface OutputPlace {
  readonly role: Role;
  /** Index of the file of the result; `nowhere` for parts that are not written. */
  readonly file: number;
  /** The memory, if the part goes there first. */
  readonly into: Uint8Array<ArrayBuffer> | undefined;
  readonly at: number;
}

/** In place of a file: the part is made and dropped. */
export const nowhere = -1;

/** Where the bytes of a part that a tile makes go. */
export interface Destination extends Omit<ByteRuns, 'offset'>, Omit<OutputPlace, 'at'> {
  readonly position: number;
}

/** A tile, and where its parts go. */
export interface TileStep {
  readonly kind: 'tile';
  readonly tensor: PlannedTensor;
  /** Index of the tensor. */
  readonly index: number;
  /** The outputs are filled in when the memory of the batch is laid out. */
  readonly task: (EncodeTask & { readonly outputs: OutputPart[] }) | CompareTask;
  readonly destinations: readonly Destination[];
  /** Bytes of the source that this tile finishes. */
  readonly sourceBytes: number;
  readonly rectangle: Rectangle;
}

/** A question of a codec about a tensor, which is answered before the next tile. */
export interface QuestionStep {
  readonly kind: 'question';
  readonly tensor: PlannedTensor;
  readonly cut: RangeCut | SetsCut;
  /** Requests to cache the rectangles of the cut, in their order. */
  readonly requests: readonly CacheRequest[] | undefined;
}

/** The answer to a question: a range, or the pairs of all sets. */
export type Reply = ValueRange | Float32Array<ArrayBuffer>;

/** Tiles in order. A QuestionStep is answered, a tile with undefined. */
type TileSteps = Generator<TileStep | QuestionStep, void, Reply | undefined>;

/** A tile without the addresses of its tensor. Tensors of one shape and form share it. */
interface TilePattern extends Pick<TileCut, 'rectangle' | 'pieceRows'> {
  readonly ranges: TileCut['ranges'] | undefined;
  readonly form: Form;
  readonly reads: boolean | undefined;
  readonly measures: boolean;
  readonly sourceBytes: number;
  /** For each part of the source. Empty for gathered tensors, whose input depends on where each of their parts is. */
  readonly inputs: readonly (ByteRuns & { readonly role: Role })[];
  readonly outputs: readonly (ByteRuns & { readonly role: Role })[];
}

const isSameList = <T>(a: readonly T[], b: readonly T[]) => a.length === b.length && a.every((x, i) => x === b[i]);

/** The second moments of a matrix's inputs, as a task reads them. @param file index of the file that holds them */
function momentsInput({ byteOffset, heldBackOffset, columns }: WeightMoments, file: number): TileInput {
  const bytes = 4 * columns * columns;
  const part = (role: Role, begin: number) => ({ role, file, begin, bytes, count: 1, stride: bytes });
  const heldBack = heldBackOffset === undefined ? [] : [part('heldBack', heldBackOffset)];
  return { form: float32Form, parts: [part('data', byteOffset), ...heldBack] };
}

/** A rectangle of a tensor that is observed and then encoded. */
interface CachedRectangle {
  readonly rectangle: Rectangle;
  readonly id: number;
  readonly bytes: number;
}

/** The last id that was given. Ids are unique in this thread, since several measurements may share workers. */
let lastId = 0;

/** The rectangles to cache, in the order of a cut; empty unless each is one contiguous run of whole rows. */
function cachedRectangles(source: LogicalTensor, cut: RangeCut | SetsCut): CachedRectangle[] {
  const rectangles = cut.kind === 'range' ? cut.rectangles : cut.observed.map(({ rectangle }) => rectangle);
  if (source.gathered !== undefined) return [];
  const found: CachedRectangle[] = [];
  for (const rectangle of rectangles) {
    const [first, ...others] = rectangleInput(source, rectangle).parts;
    if (first === undefined || others.length > 0 || first.count !== 1 || first.bytes % rectangle.rows !== 0) return [];
    found.push({ rectangle, id: ++lastId, bytes: first.bytes });
  }
  return found;
}

/** True if a tensor is looked at before it is encoded, and therefore read twice. */
export function isLookedAt({ source, form, parts }: PlannedTensor): boolean {
  if (elementsOf(source.shape) === 0 || source.prepare !== undefined) return false;
  const roles = parts.map(({ role }) => role);
  const cut = codecOf(form).cuts?.(source.shape, form, roles, gridOf(source)).next().value;
  return cut !== undefined && cut.kind !== 'tile';
}

/** Options of a `TileCutter`. */
interface CutterOptions {
  /** The files of the input. If one is far away, each separate read is slow. */
  readonly files?: readonly ByteSource[] | undefined;
  /** Index of the plan's `moments` among the files. Undefined: rounding has no error feedback. */
  readonly momentsFile: number | undefined;
  /** True: also measures the errors of outputs where rounding has no feedback. */
  readonly judges?: boolean;
  /** True: NaN and infinities are problems of tensors that stay floats and that no rule keeps. */
  readonly refuses?: boolean | undefined;
}

/** Cuts tensors into tiles. */
export class TileCutter {
  readonly #options: CutterOptions;
  /** Ranges that other tensors may share. */
  readonly #ranges = new Map<LogicalTensor, ValueRange>();
  /** The last tensor that was one tile. Models often hold many consecutive tensors of the same shape. */
  #last: { readonly tensor: PlannedTensor; readonly roles: readonly Role[]; readonly pattern: TilePattern } | undefined;

  constructor(options: CutterOptions) {
    this.#options = options;
  }

  /** The tile of a pattern in a tensor. */
  #tileOf(
    tensor: PlannedTensor,
    index: number,
    pattern: TilePattern,
    places: readonly OutputPlace[],
    cached?: CachedRows,
  ): TileStep {
    const { source, feedback, moments } = tensor;
    const { rectangle, pieceRows, ranges, form, reads, measures, sourceBytes } = pattern;
    const { rows, columns } = rectangle;
    // Find the parts of stored tensors that the tile reads.
    let input: TileInput = { form: source.form, parts: [] };
    if (reads !== false && source.gathered !== undefined) input = rectangleInput(source, rectangle);
    else if (reads !== false) {
      // Written out because object spread is the slowest part of cutting small tensors.
      const parts = pattern.inputs.map(({ role, offset, bytes, count, stride }, i) => {
        const { file, byteOffset } = (source.parts[i] as (typeof source.parts)[number]).tensor;
        return { role, file, begin: byteOffset + offset, bytes, count, stride };
      });
      input = { form: source.form, parts };
    }
    // Add the moments of its inputs.
    const { momentsFile, judges, refuses } = this.#options;
    const isWhole = tensor.parts.length === 1 && columns === moments?.columns;
    const weighed = reads === false ? undefined : (feedback ?? (judges && isWhole ? moments : undefined));
    let task: TileStep['task'];
    if (momentsFile !== undefined && weighed !== undefined) {
      const { damping, order } = feedback ?? {};
      const inputs = [input, momentsInput(weighed, momentsFile)] as const;
      const shared = { kind: 'encode', rows, columns, to: form, measures, pieceRows } as const;
      const known = ranges === undefined ? {} : { ranges };
      task = { ...shared, ...known, outputs: [], inputs, damping, order, judges: feedback === undefined };
    } else if (ranges === undefined) {
      const isChecked = refuses && codecOf(tensor.form).isPlain === true && tensor.kept?.kind !== 'rule';
      const refused = isChecked ? (tensor.infinities ? 'nan' : 'nonFinite') : undefined;
      task = {
        kind: 'encode',
        rows,
        columns,
        inputs: [input],
        to: form,
        outputs: [],
        measures,
        refuses: refused,
        pieceRows,
      };
    } else task = { kind: 'encode', rows, columns, inputs: [input], to: form, outputs: [], measures, ranges, cached };
    const destinations = pattern.outputs.map(({ role, offset, bytes, count, stride }): Destination => {
      const place = places.find((candidate) => candidate.role === role);
      if (place === undefined) throw new Error(`the plan has no place for the ${role} of ${source.name}`);
      return { role, file: place.file, position: place.at + offset, bytes, count, stride, into: place.into };
    });
    return { kind: 'tile', tensor, index, task, destinations, sourceBytes, rectangle };
  }

  /** The only tile of a tensor, if the tensor is like the last one; else undefined. */
  again(
    tensor: PlannedTensor,
    index: number,
    roles: readonly Role[],
    places: readonly OutputPlace[],
  ): TileStep | undefined {
    if (this.#last === undefined || tensor.source.gathered !== undefined) return undefined;
    const { source, form } = this.#last.tensor;
    const isLike =
      equalForms(tensor.form, form) &&
      equalForms(tensor.source.form, source.form) &&
      isSameList(tensor.source.shape, source.shape) &&
      isSameList(roles, this.#last.roles);
    return isLike ? this.#tileOf(tensor, index, this.#last.pattern, places) : undefined;
  }

  /** A range that holds those of the tensors that share it. */
  *#withOthers(
    tensor: PlannedTensor,
    roles: readonly Role[],
    range: ValueRange,
  ): Generator<QuestionStep, ValueRange, Reply | undefined> {
    this.#ranges.set(tensor.source, range);
    let [low, high] = range;
    for (const other of tensor.sharesRangeWith ?? []) {
      let found = this.#ranges.get(other);
      if (found === undefined) {
        const grid = codecOf(other.form).grid(other.shape, other.form);
        const { value: cut } = codecOf(tensor.form).cuts?.(other.shape, tensor.form, roles, grid).next() ?? {};
        if (cut?.kind !== 'range') throw new Error(`${other.name} has no range to share`);
        found = (yield {
          kind: 'question',
          tensor: { ...tensor, source: other },
          cut,
          requests: undefined,
        }) as ValueRange;
        this.#ranges.set(other, found);
      }
      low = Math.min(low, found[0]);
      high = Math.max(high, found[1]);
    }
    return [low, high];
  }

  /** The tiles of a tensor that make the parts of some roles. */
  *tilesOf(given: PlannedTensor, index: number, roles: readonly Role[], places: readonly OutputPlace[]): TileSteps {
    if (elementsOf(given.source.shape) === 0) return;
    const { prepare } = given.source;
    const tensor = prepare === undefined ? given : yield* prepare(given);
    const { source, form } = tensor;
    const prefersWide = source.parts.some(({ tensor: { file } }) => this.#options.files?.[file]?.isFar);
    const cuts = codecOf(form).cuts?.(source.shape, form, roles, { ...gridOf(source), prefersWide });
    if (cuts === undefined) throw new Error(`tensors of ${form.codec} are only read`);
    // Cache inputs only if a later tile reads them again, and reads them alone.
    const isReadAgain = tensor.feedback === undefined && roles.includes(tensor.parts[0]?.role as Role);
    const cached: CachedRectangle[] = [];
    let count = 0;
    let reply: Reply | undefined;
    for (;;) {
      const { value: cut, done } = cuts.next(reply);
      if (done) return;
      if (cut.kind !== 'tile') {
        const wanted = isReadAgain ? cachedRectangles(source, cut) : [];
        cached.push(...wanted);
        const total = wanted.reduce((sum, { bytes }) => sum + bytes, 0);
        const requests = wanted.length === 0 ? undefined : wanted.map(({ id }) => ({ id, total }));
        reply = yield { kind: 'question', tensor, cut, requests };
        if (cut.kind === 'range') reply = yield* this.#withOthers(tensor, roles, reply as ValueRange);
        continue;
      }
      reply = undefined;
      // Find the bytes that the tile reads and makes, apart from where its tensor lies. Zeros are of no file.
      const { rectangle, roles: made, ranges, reads, pieceRows, form: to = form } = cut;
      const { rows, columns } = rectangle;
      const { shape, gathered } = source;
      const stored = codecOf(source.form);
      const inputs = (gathered === undefined ? source.parts : []).map(({ role }) => ({
        role,
        ...stored.runs(shape, source.form, role, rectangle),
      }));
      const outputs = made.map((role) => ({ role, ...codecOf(to).runs(shape, to, role, rectangle) }));
      const measures = made.includes(tensor.parts[0]?.role as Role);
      let sourceBytes = 0;
      if (measures) {
        const read =
          gathered === undefined ? inputs : rectangleInput(source, rectangle).parts.filter(({ file }) => file >= 0);
        sourceBytes = read.reduce((sum, { bytes, count }) => sum + bytes * count, 0);
      }
      const pattern = { rectangle, pieceRows, ranges, form: to, reads, measures, sourceBytes, inputs, outputs };
      const isOne = count++ === 0 && rows * columns === elementsOf(shape);
      const isWhole = isOne && isSameList(made, roles) && gathered === undefined;
      this.#last = isWhole && ranges === undefined ? { tensor, roles, pattern } : undefined;
      // Take rows from the cache. Tiles come in the order of the observed rectangles.
      let rowsInCache: CachedRows | undefined;
      const [first] = cached;
      if (reads !== false && first !== undefined) {
        const { rectangle: whole, id } = first;
        const [row, end] = [rectangle.row - whole.row, rectangle.row - whole.row + rows];
        if (rectangle.column !== whole.column || columns !== whole.columns || row < 0 || end > whole.rows)
          throw new Error('a tile is not the next part of what was observed');
        const isLast = end === whole.rows;
        if (isLast) cached.shift();
        rowsInCache = { id, row, isLast };
      }
      yield this.#tileOf(tensor, index, pattern, places, rowsInCache);
    }
  }
}
