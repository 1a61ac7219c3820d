/** Sums over samples that go on behind the last sample of an interrupted run. */
import { sha256Of } from '../../files/checksums.js';
import type { CollectRunsOptions } from '../../run.js';
import type { NamedSample } from './inputs.js';
import type { ValueRanges } from './sums-graph.js';

/** Sums of a run, as far as a state holds them. */
export interface KeptSums {
  readonly columns: number;
  rows: number;
  heldBackRows: number;
  readonly squares: Float64Array<ArrayBuffer>;
  /** Upper triangle of the sums of products, row by row; undefined if they are not wanted in this pass. */
  moments: Float64Array<ArrayBuffer> | undefined;
  /** Upper triangle of the sums of products of held-back samples. */
  heldBack: Float64Array<ArrayBuffer> | undefined;
}

/** Plain data about a state. */
interface About {
  /** Index of the pass. */
  readonly pass: number;
  /** Samples that are done in this pass, and those of all passes once they are known. */
  readonly done: number;
  readonly count: number;
  readonly rows: readonly number[];
  readonly heldBackRows: readonly number[];
  /** Digests of the samples that are done in this pass, and of those of the first pass. */
  readonly digest: string;
  readonly first: string;
}

/** The state of an interrupted run. */
interface FoundSums extends About {
  readonly squares: readonly Float64Array<ArrayBuffer>[];
  readonly ranges: ValueRanges;
  /** Moments of its pass, then those of held-back samples. */
  readonly moments: readonly Float64Array<ArrayBuffer>[];
}

/** Time between two states, as a multiple of the time that saving one takes. */
const mostSaving = 20;

/** A run with or without states in files. Passes and samples come in order. */
export class SampleRun {
  readonly #resume: CollectRunsOptions['resume'];
  /** Names of values whose ranges are found. */
  readonly #ranged: readonly string[];
  /** True if samples are held back from moments. */
  readonly #holdsBack: boolean;
  /** Where the interrupted run was. */
  readonly found: FoundSums | undefined;
  /** Sums with moments in the current pass. */
  #summed: readonly KeptSums[] = [];
  #pass = 0;
  /** Digests of the samples of the current pass so far, and of the first pass. */
  #digest = '';
  #first = '';
  /** Time before which no state is kept. */
  #nextAt = 0;

  /** @param columns of each of the sums */
  constructor(
    resume: CollectRunsOptions['resume'],
    columns: readonly number[],
    { passes, ranged, holdsBack }: { passes: number; ranged: readonly string[]; holdsBack: boolean },
  ) {
    this.#resume = resume;
    this.#ranged = ranged;
    this.#holdsBack = holdsBack;
    const state = resume?.take();
    if (resume === undefined || state === undefined) return;
    // Check what the state says, and its sizes.
    const about = (state.about ?? {}) as Partial<About>;
    const { pass, done, count, rows, heldBackRows, digest, first } = about;
    const isCount = (value: unknown): value is number => Number.isSafeInteger(value) && Number(value) >= 0;
    const areCounts = (list: unknown): list is number[] =>
      Array.isArray(list) && list.length === columns.length && list.every(isCount);
    const arrays = state.arrays.filter((array) => array instanceof Float64Array);
    const [squares, limits] = [arrays.slice(0, columns.length), arrays[columns.length]];
    const fits =
      isCount(pass) &&
      pass < passes &&
      [done, count].every(isCount) &&
      areCounts(rows) &&
      areCounts(heldBackRows) &&
      heldBackRows.every((held, i) => held <= (rows[i] as number)) &&
      typeof digest === 'string' &&
      typeof first === 'string' &&
      arrays.length === state.arrays.length &&
      columns.every((size, i) => size === squares[i]?.length) &&
      (limits?.length === 0 || limits?.length === 2 * ranged.length);
    if (!fits || limits === undefined) throw resume.damaged();
    const ranges: ValueRanges = new Map();
    for (let i = 0; 2 * i < limits.length; i++) {
      ranges.set(ranged[i] as string, [limits[2 * i] as number, limits[2 * i + 1] as number]);
    }
    this.#first = first;
    this.found = { ...(about as About), squares, ranges, moments: arrays.slice(columns.length + 1) };
  }

  /** Samples to leave out in the current pass. */
  get #left(): number {
    return this.#pass === this.found?.pass ? this.found.done : 0;
  }

  /** Begins a pass, with the moments that it had. @param summed the sums with moments */
  begin(pass: number, summed: readonly KeptSums[]): void {
    this.#pass = pass;
    this.#summed = summed;
    this.#digest = '';
    const found = this.#left > 0 ? this.found?.moments : undefined;
    if (found !== undefined && found.length !== (this.#holdsBack ? 2 : 1) * summed.length)
      throw this.#resume?.damaged();
    // Take upper triangles over, or begin new ones.
    const triangleAt = (index: number, columns: number) => {
      const entries = (columns * (columns + 1)) / 2;
      const triangle = found?.[index] ?? new Float64Array(entries);
      if (triangle.length !== entries) throw this.#resume?.damaged();
      return triangle;
    };
    for (const [i, sums] of summed.entries()) {
      sums.moments = triangleAt(i, sums.columns);
      if (this.#holdsBack) sums.heldBack = triangleAt(summed.length + i, sums.columns);
    }
  }

  /** True for a sample that the interrupted run has passed. @throws the error for samples that changed */
  async skips({ inputs }: NamedSample, index: number): Promise<boolean> {
    if (this.#resume === undefined) return false;
    // The digest of the samples so far is that of the one before, and of this sample.
    const all: unknown[] = [this.#digest];
    for (const [name, { data, shape }] of inputs) {
      const bytes = ArrayBuffer.isView(data)
        ? new Uint8Array(data.buffer, data.byteOffset, data.byteLength).slice()
        : new TextEncoder().encode(Array.from(data, String).join());
      all.push([name, shape, await sha256Of(bytes)]);
    }
    this.#digest = await sha256Of(new TextEncoder().encode(JSON.stringify(all)));
    if (index + 1 === this.#left && this.#digest !== this.found?.digest) throw this.#resume.changed(['the data']);
    return index < this.#left;
  }

  /** Ends a pass. @throws the error for samples that changed */
  end(count: number): void {
    if (this.#resume === undefined) return;
    if (this.#first === '') this.#first = this.#digest;
    if (count < this.#left || this.#first !== this.#digest) throw this.#resume.changed(['the data']);
  }

  /** Keeps the state in front of the next pass, or behind a sample unless one was kept just before. */
  async keep(
    progress: Pick<About, 'pass' | 'done' | 'count'>,
    all: readonly KeptSums[],
    ranges: ValueRanges,
  ): Promise<void> {
    const isNext = progress.pass > this.#pass;
    const begin = performance.now();
    if (this.#resume === undefined || (!isNext && begin < this.#nextAt)) return;
    const limits = ranges.size === 0 ? [] : this.#ranged.flatMap((name) => ranges.get(name) ?? [0, 0]);
    const about: About = {
      ...progress,
      rows: all.map(({ rows }) => rows),
      heldBackRows: all.map(({ heldBackRows }) => heldBackRows),
      digest: this.#digest,
      first: this.#first,
    };
    const summed = isNext ? [] : this.#summed;
    const moments = [...summed.flatMap((sums) => sums.moments ?? []), ...summed.flatMap((sums) => sums.heldBack ?? [])];
    const arrays = [...all.map(({ squares }) => squares), Float64Array.from(limits), ...moments];
    await this.#resume.save({ about, arrays });
    const end = performance.now();
    this.#nextAt = end + mostSaving * (end - begin);
  }
}
