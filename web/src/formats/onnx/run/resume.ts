/** Runs over samples that go on behind the last sample of an interrupted run, with the same sums. */
import { sha256Of } from '../../files/sha256.js';
import type { CollectResume, InputArray, SumsState } from '../../run.js';
import type { NamedSample } from './samples.js';

/** Sums of a run, as far as a state holds them. */
interface KeptSums {
  readonly columns: number;
  rows: number;
  heldBackRows: number;
  readonly squares: Float64Array<ArrayBuffer>;
  moments: Float64Array<ArrayBuffer> | undefined;
  heldBack: Float64Array<ArrayBuffer> | undefined;
}

/** Ranges of values by name. */
type Ranges = Map<string, readonly [least: number, largest: number]>;

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

/** Time between two states, as a multiple of the time that saving one takes. */
const mostSaving = 20;

/** The elements of an array as bytes. */
function bytesOf({ data }: InputArray): Uint8Array<ArrayBuffer> {
  if (ArrayBuffer.isView(data)) return new Uint8Array(data.buffer, data.byteOffset, data.byteLength).slice();
  return new TextEncoder().encode(Array.from(data, String).join());
}

/** The digest of a sample behind others. */
async function digestAfter(before: string, { inputs }: NamedSample): Promise<string> {
  const all: unknown[] = [before];
  for (const [name, array] of inputs) all.push([name, array.shape, await sha256Of(bytesOf(array))]);
  return sha256Of(new TextEncoder().encode(JSON.stringify(all)));
}

/** The upper triangle of a square, by its number of columns. */
const triangle = (columns: number): Float64Array<ArrayBuffer> => new Float64Array((columns * (columns + 1)) / 2);

const isCount = (value: unknown): value is number => Number.isSafeInteger(value) && (value as number) >= 0;

/** The plain data of a state; undefined if no run has written them. */
function aboutOf({ about }: SumsState, sums: number): About | undefined {
  const { pass, done, count, rows, heldBackRows, digest, first } = (about ?? {}) as Partial<About>;
  const areRows = (list: unknown): list is number[] =>
    Array.isArray(list) && list.length === sums && list.every(isCount);
  const areCounts = [pass, done, count].every(isCount) && areRows(rows) && areRows(heldBackRows);
  const areTexts = typeof digest === 'string' && typeof first === 'string';
  const fits = areCounts && areTexts && heldBackRows.every((held, i) => held <= (rows[i] as number));
  return fits ? (about as About) : undefined;
}

/** A run with or without states in files. Passes and samples come in order. */
export class SampleRun {
  readonly #resume: CollectResume | undefined;
  readonly #all: readonly KeptSums[];
  readonly #ranged: readonly string[];
  readonly #ranges: Ranges;
  /** True if samples are held back from moments. */
  readonly #holdsBack: boolean;
  /** Where the interrupted run was. */
  readonly #begin: About | undefined;
  /** Moments of its pass, then those of held-back samples. */
  readonly #found: readonly Float64Array<ArrayBuffer>[] = [];
  /** Sums with moments in the current pass. */
  #summed: readonly KeptSums[] = [];
  #pass = 0;
  /** Digests of the samples of the current pass so far, and of the first pass. */
  #digest = '';
  #first = '';
  /** Time before which no state is kept. */
  #nextAt = 0;

  /**
   * @param passes number of all
   * @param ranged names of values whose ranges are found
   * @param ranges filled with those of the interrupted run
   * @param holdsBack true if samples are held back from moments
   */
  constructor(
    resume: CollectResume | undefined,
    passes: number,
    all: readonly KeptSums[],
    ranged: readonly string[],
    ranges: Ranges,
    holdsBack: boolean,
  ) {
    this.#resume = resume;
    this.#all = all;
    this.#ranged = ranged;
    this.#ranges = ranges;
    this.#holdsBack = holdsBack;
    const found = resume?.found;
    if (resume === undefined || found === undefined) return;
    // Check the sizes, and take the sums over.
    const about = aboutOf(found, all.length);
    const { arrays } = found;
    const limits = arrays[all.length];
    const fits =
      about !== undefined &&
      about.pass < passes &&
      all.every(({ squares }, i) => squares.length === arrays[i]?.length) &&
      arrays.every((array) => array instanceof Float64Array) &&
      (limits?.length === 0 || limits?.length === 2 * ranged.length);
    if (!fits || limits === undefined) throw resume.refused('state');
    for (const [i, sums] of all.entries()) {
      sums.rows = about.rows[i] as number;
      sums.heldBackRows = about.heldBackRows[i] as number;
      sums.squares.set(arrays[i] as Float64Array);
    }
    for (let i = 0; 2 * i < limits.length; i++) {
      ranges.set(ranged[i] as string, [limits[2 * i] as number, limits[2 * i + 1] as number]);
    }
    this.#begin = about;
    this.#first = about.first;
    this.#found = arrays.slice(all.length + 1);
  }

  /** Index of the first pass to run. */
  get pass(): number {
    return this.#begin?.pass ?? 0;
  }

  /** Samples of each pass; 0 if they are not known yet. */
  get count(): number {
    return this.#begin?.count ?? 0;
  }

  /** Samples to leave out in the current pass. */
  get #left(): number {
    return this.#begin !== undefined && this.#pass === this.#begin.pass ? this.#begin.done : 0;
  }

  /** Begins a pass, with the moments that it had. @param summed the sums with moments */
  begin(pass: number, summed: readonly KeptSums[]): void {
    this.#pass = pass;
    this.#summed = summed;
    this.#digest = '';
    const goesOn = this.#left > 0;
    const arrays = (this.#holdsBack ? 2 : 1) * summed.length;
    if (goesOn && this.#found.length !== arrays) throw this.#resume?.refused('state');
    // Take the sums of an index over, or begin new ones.
    const sumsAt = (index: number, columns: number) => {
      if (!goesOn) return triangle(columns);
      const found = this.#found[index] as Float64Array<ArrayBuffer>;
      if (found.length !== (columns * (columns + 1)) / 2) throw this.#resume?.refused('state');
      return found;
    };
    for (const [i, sums] of summed.entries()) {
      sums.moments = sumsAt(i, sums.columns);
      if (this.#holdsBack) sums.heldBack = sumsAt(summed.length + i, sums.columns);
    }
  }

  /** True for a sample that the interrupted run has passed. @throws the error for samples that changed */
  async skips(sample: NamedSample, index: number): Promise<boolean> {
    if (this.#resume === undefined) return false;
    this.#digest = await digestAfter(this.#digest, sample);
    if (index + 1 === this.#left && this.#digest !== this.#begin?.digest) throw this.#resume.refused('samples');
    return index < this.#left;
  }

  /** Keeps the state behind a sample, unless one was kept just before. */
  async passed(done: number, count: number): Promise<void> {
    if (performance.now() >= this.#nextAt) await this.#save(this.#pass, done, count);
  }

  /** Ends a pass. @throws the error for samples that changed */
  end(done: number): void {
    if (this.#resume === undefined) return;
    if (this.#first === '') this.#first = this.#digest;
    if (done < this.#left || this.#first !== this.#digest) throw this.#resume.refused('samples');
  }

  /** Keeps the state in front of the next pass. */
  async finished(count: number): Promise<void> {
    this.#summed = [];
    await this.#save(this.#pass + 1, 0, count);
  }

  async #save(pass: number, done: number, count: number): Promise<void> {
    if (this.#resume === undefined) return;
    const limits = this.#ranges.size === 0 ? [] : this.#ranged.flatMap((name) => this.#ranges.get(name) ?? [0, 0]);
    const about: About = {
      pass,
      done,
      count,
      rows: this.#all.map(({ rows }) => rows),
      heldBackRows: this.#all.map(({ heldBackRows }) => heldBackRows),
      digest: this.#digest,
      first: this.#first,
    };
    const moments = this.#summed.flatMap((sums) => sums.moments ?? []);
    const heldBack = this.#summed.flatMap((sums) => sums.heldBack ?? []);
    const begin = performance.now();
    await this.#resume.save({
      about,
      arrays: [...this.#all.map(({ squares }) => squares), Float64Array.from(limits), ...moments, ...heldBack],
    });
    const end = performance.now();
    this.#nextAt = end + mostSaving * (end - begin);
  }
}
