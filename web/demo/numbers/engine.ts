// The state of the worker: the core, the visitor's data, and the last results. Only plain data leave it.

import type { Scalepoint } from 'scalepoint';
import { type Failure, failureOf } from '../shared/calls.js';
import { quantizeUneven } from './codes.js';
import { viewOf } from './compute.js';
import { type DataFacts, type DataSet, generatedData, type Statistics, statisticsOf, textData } from './data.js';
import { type Evaluation, evaluate, quantize } from './evaluate.js';
import type { TensorFile } from './files.js';
import { type Comma, type CommaQuestion, readText } from './numbers.js';
import { dtypeOf, type Settings } from './settings.js';
import type { NumbersView, ViewRequest } from './view.js';

/** Data that the engine holds, without the numbers. */
export type HeldData = DataFacts & { readonly id: number };

/** A tensor of a file that was opened. */
export interface TensorEntry {
  readonly name: string;
  readonly dtype: string;
  readonly shape: readonly number[];
  readonly bytes: number;
  /** True if it holds floats, in a type that the page reads. */
  readonly readable: boolean;
}

/** Result of reading a text. */
export type TextAnswer =
  | { readonly kind: 'data'; readonly data: HeldData }
  | { readonly kind: 'question'; readonly question: CommaQuestion }
  | { readonly kind: 'refused'; readonly why: string }
  | { readonly kind: 'none' };

/** Result of opening files. */
export type FileAnswer =
  | { readonly kind: 'data'; readonly data: HeldData }
  | { readonly kind: 'tensors'; readonly name: string; readonly tensors: readonly TensorEntry[] };

/** True if two settings give the same codes. The part on display and the scale of the counts do not matter. */
const quantizesAlike = (a: Settings, b: Settings) =>
  JSON.stringify({ ...a, part: 0, logCounts: false }) === JSON.stringify({ ...b, part: 0, logCounts: false });

/** The calls that the page may make. */
export class NumbersEngine {
  readonly #core: Scalepoint;
  readonly #held = new Map<number, DataSet>();
  #ids = 0;
  #file: TensorFile | undefined;
  #made: { readonly key: string; readonly data: DataSet } | undefined;
  #statistics: { readonly data: DataSet; readonly result: Statistics } | undefined;
  #last:
    | {
        readonly data: DataSet;
        readonly settings: Settings;
        readonly limit: number;
        readonly evaluation?: Evaluation;
        readonly failure?: Failure;
      }
    | undefined;

  constructor(core: Scalepoint) {
    this.#core = core;
  }

  #hold(data: DataSet): HeldData {
    const id = ++this.#ids;
    this.#held.set(id, data);
    const { values, ...facts } = data;
    return { ...facts, id };
  }

  /** The data to show. */
  #dataOf({ dataId, settings }: Pick<ViewRequest, 'dataId' | 'settings'>): DataSet {
    const held = dataId === undefined ? undefined : this.#held.get(dataId);
    if (held !== undefined) return held;
    const key = [settings.distribution, settings.size, settings.seed, settings.rowsDiffer].join();
    if (this.#made?.key !== key) this.#made = { key, data: generatedData(settings) };
    return this.#made.data;
  }

  #statisticsOf(data: DataSet): Statistics {
    if (this.#statistics?.data !== data) this.#statistics = { data, result: statisticsOf(data.values) };
    return this.#statistics.result;
  }

  /** Quantizes, or returns the last outcome if it used the same data, equivalent settings and enough numbers. */
  #quantized(data: DataSet, { settings, limit }: ViewRequest) {
    const enough = Math.min(limit, data.values.length);
    const last = this.#last;
    if (last?.data === data && last.limit >= enough && quantizesAlike(last.settings, settings)) return last;
    try {
      this.#last = { data, settings, limit: enough, evaluation: evaluate(this.#core, data, settings, limit) };
    } catch (error) {
      // More numbers would run into the same problem.
      this.#last = { data, settings, limit: Number.POSITIVE_INFINITY, failure: failureOf(error) };
    }
    return this.#last;
  }

  /** Computes what the page shows. */
  view(wish: ViewRequest): NumbersView {
    const data = this.#dataOf(wish);
    return viewOf(this.#core, data, this.#statisticsOf(data), this.#quantized(data, wish), wish);
  }

  /** Reads pasted numbers. */
  text(text: string, comma: Comma | undefined): TextAnswer {
    const result = readText(text, comma);
    if (result.kind !== 'numbers') return result;
    if (result.parsed.values.length === 0) return { kind: 'none' };
    return { kind: 'data', data: this.#hold(textData(result.parsed, 'Pasted numbers', 'pasted')) };
  }

  /** Opens files. */
  async files(files: readonly File[]): Promise<FileAnswer> {
    // Load the readers of model files on demand: they are most of the code, and few visits need them.
    const { openFile, floatTypes } = await import('./files.js');
    const opened = await openFile(this.#core, files);
    if (opened.kind === 'data') return { kind: 'data', data: this.#hold(opened.data) };
    this.#file = opened;
    const tensors = opened.tensors.map(({ name, dtype, shape, bytes }) => ({
      name,
      dtype,
      shape: [...shape],
      bytes,
      readable: floatTypes.includes(dtype),
    }));
    return { kind: 'tensors', name: opened.name, tensors };
  }

  /** Reads a tensor of the file that was opened last. */
  async tensor(index: number): Promise<HeldData> {
    const entry = this.#file?.tensors[index];
    if (this.#file === undefined || entry === undefined) throw new RangeError('there is no such tensor');
    return this.#hold(await this.#file.read(entry));
  }

  /** Forgets data. */
  drop(id: number): void {
    if (this.#last?.data === this.#held.get(id)) this.#last = undefined;
    if (this.#statistics?.data === this.#held.get(id)) this.#statistics = undefined;
    this.#held.delete(id);
  }

  /** The codes as bytes, for a download. */
  pack(wish: Pick<ViewRequest, 'settings' | 'dataId'>): { bytes: Uint8Array<ArrayBuffer>; name: string } {
    const { settings } = wish;
    const { values, shape, stem } = this.#dataOf(wish);
    const core = this.#core;
    if (settings.codes === 'integers') {
      return { bytes: core.pack(quantize(core, values, settings, shape)), name: `${stem}.${dtypeOf(settings)}.bin` };
    }
    if (settings.codes === 'blocks') {
      const { data } = core.quantizeBlocks(values, settings.block, { shape: [...shape] });
      return { bytes: Uint8Array.from(data as Uint8Array), name: `${stem}.${settings.block.toLowerCase()}.bin` };
    }
    const { codes, codebook } = quantizeUneven(core, values, settings, shape);
    const q = { kind: 'codebook' as const, codebook: codebook!, data: codes!, shape: [values.length] };
    const packed = core.pack({ ...q, blockSize: values.length, absmax: new Float32Array(1) });
    return { bytes: packed, name: `${stem}.${settings.codes}.bin` };
  }
}
