/**
 * Reads all of a model and looks for what is wrong with it. Offsets, sizes and types were checked when it was opened; here come the bytes
 * of the tensors, and what the format knows about how its parts go together.
 */

import type { BitCheck } from '../codecs/checks.js';
import { codecOf } from '../codecs/registry.js';
import type { ByteSource } from '../files/bytes.js';
import { type ReadStretch, readNeighbors } from '../files/neighbors.js';
import type { Finding, LogicalTensor, SourceTensor } from '../formats/format.js';
import type { ModelFormat } from '../formats/registry.js';
import { indexOf } from '../pipeline/logical-tensor.js';
import { reportTimes } from '../pipeline/progress.js';
import type { WorkOptions } from '../pipeline/start.js';
import type { Opened } from './open.js';

/** What was found in a model. */
export interface VerifyReport {
  /** What kind of file it is. */
  readonly format: ModelFormat;
  /** Size of its files in bytes. All of them were read. */
  readonly bytes: number;
  /** Names of its files; empty if a file has none. */
  readonly files: readonly string[];
  /** Number of tensors. */
  readonly tensors: number;
  /** What is wrong. Empty if nothing is. */
  readonly problems: readonly Finding[];
  /** What its users should know, and may be intended, such as NaN among floats. */
  readonly notes: readonly Finding[];
}

type VerifyOptions = Pick<WorkOptions, 'onProgress' | 'signal'>;

/** Bytes that are read at once. A multiple of every unit. */
const pieceBytes = 4 * 2 ** 20;

/** Stretches that are shorter are read together with their neighbors. */
const smallBytes = 1 << 14;

/** A check on its way through a part. */
interface Running {
  readonly check: BitCheck;
  count: number;
  /** Where the first wrong unit is in the part. */
  first: number;
}

/** The units of a piece. Its begin is a multiple of every unit. */
function unitsOf(bytes: Uint8Array<ArrayBuffer>, unit: 1 | 2 | 4): Uint8Array | Uint16Array | Uint32Array {
  const count = Math.floor(bytes.length / unit);
  if (unit === 1) return bytes;
  return unit === 2
    ? new Uint16Array(bytes.buffer, bytes.byteOffset, count)
    : new Uint32Array(bytes.buffer, bytes.byteOffset, count);
}

/** Looks at the units of a piece that begins at a position of the part. */
function look(running: Running, bytes: Uint8Array<ArrayBuffer>, begin: number): void {
  const { unit, at, stride, mask, wrong } = running.check;
  const units = unitsOf(bytes, unit);
  const step = stride / unit;
  // The first unit of the check that is not before the piece.
  const skipped = Math.max(0, Math.ceil((begin - at) / stride));
  const wanted = wrong === 'all' ? mask | 0 : 0;
  const isAll = wrong === 'all';
  for (let i = (at + skipped * stride - begin) / unit; i < units.length; i += step) {
    if ((((units[i] as number) & mask) === wanted) !== isAll) continue;
    if (running.count === 0) running.first = begin + i * unit;
    running.count++;
  }
}

/** What a check found, if it found something. */
function findingOf({ check, count, first }: Running, tensor: SourceTensor): Finding[] {
  if (count === 0) return [];
  const { kind, at, stride, one, many, container, isProblem } = check;
  const index = Math.floor((first - at) / stride);
  const where = container === undefined ? indexOf(index, tensor.shape) : `${container} ${index}`;
  const text = count === 1 ? `1 ${one}, ${where}` : `${count} ${many}, the first at ${where}`;
  const offset = tensor.rearranged ? {} : { byteOffset: tensor.byteOffset + first };
  return [{ severity: isProblem ? 'problem' : 'note', kind, text, tensor: tensor.name, count, index, ...offset }];
}

/** What the stored tensors are, by name: of whole tensors and of their parts. */
function checksByName(tensors: readonly LogicalTensor[]): Map<string, readonly BitCheck[]> {
  const found = new Map<string, readonly BitCheck[]>();
  for (const { shape, form, parts } of tensors) {
    for (const { role, tensor } of parts) {
      const checks = codecOf(form).checks?.(shape, form, role) ?? [];
      found.set(
        tensor.name,
        checks.filter(({ mask }) => mask !== 0),
      );
    }
  }
  return found;
}

/** Reads a stretch of a file piece by piece, into memory that is used again for the next piece. */
class Pieces {
  readonly #memory = new Uint8Array(pieceBytes);
  readonly #neighbors: ReadonlyMap<ByteSource, ReadStretch>;
  readonly #signal: AbortSignal | undefined;

  constructor(files: readonly ByteSource[], signal: AbortSignal | undefined) {
    this.#neighbors = new Map(files.map((file) => [file, readNeighbors(file)]));
    this.#signal = signal;
  }

  async *of(source: ByteSource, begin: number, end: number): AsyncGenerator<Uint8Array<ArrayBuffer>> {
    const small = this.#neighbors.get(source);
    if (end - begin < smallBytes && begin < end && small !== undefined) {
      this.#signal?.throwIfAborted();
      const piece = this.#memory.subarray(0, end - begin);
      // It may lie anywhere in what was read.
      piece.set(await small(begin, end));
      yield piece;
      return;
    }
    for (let at = begin; at < end; at += pieceBytes) {
      this.#signal?.throwIfAborted();
      const piece = this.#memory.subarray(0, Math.min(pieceBytes, end - at));
      if (source.readInto === undefined) piece.set(await source.read(at, at + piece.length));
      else await source.readInto(at, piece);
      yield piece;
    }
  }
}

/** Tells how far the reading is. */
function progressReporter(count: number, bytesTotal: number, { onProgress }: VerifyOptions) {
  let bytesDone = 0;
  const isTime = reportTimes();
  return (tensor: string, index: number, bytes: number, isEnd: boolean) => {
    bytesDone += bytes;
    if (!isTime(isEnd)) return;
    onProgress?.({ phase: 'verify', tensor, index, count, bytesDone, bytesTotal });
  };
}

/** Checks an open model. See `verifyModel`. */
export async function verifyOpen(
  { format, model }: Opened,
  sidecars: object,
  options: VerifyOptions,
): Promise<VerifyReport> {
  const tensors = await format.tensors(model);
  const findings: Finding[] = [...(format.verify?.(model, tensors, sidecars) ?? [])];
  const checks = checksByName(tensors);
  const pieces = new Pieces(model.files, options.signal);
  const report = progressReporter(
    model.tensors.length,
    model.tensors.reduce((sum, { bytes }) => sum + bytes, 0),
    options,
  );
  const fileName = (file: number) => (model.files.length > 1 ? { file: model.files[file]?.name ?? '' } : {});
  for (const [index, tensor] of model.tensors.entries()) {
    const running = (checks.get(tensor.name) ?? []).map((check): Running => ({ check, count: 0, first: 0 }));
    let done = 0;
    const { byteOffset, bytes } = tensor;
    for await (const piece of pieces.of(model.files[tensor.file] as ByteSource, byteOffset, byteOffset + bytes)) {
      for (const one of running) look(one, piece, done);
      done += piece.length;
      report(tensor.name, index, piece.length, false);
    }
    report(tensor.name, index, 0, true);
    findings.push(
      ...running.flatMap((one) => findingOf(one, tensor)).map((one) => ({ ...one, ...fileName(tensor.file) })),
    );
  }
  for (const file of model.files) await file.verify();
  return {
    format: format.name as ModelFormat,
    bytes: model.bytes,
    files: model.files.map(({ name }) => name ?? ''),
    tensors: model.tensors.length,
    problems: findings.filter(({ severity }) => severity === 'problem'),
    notes: findings.filter(({ severity }) => severity === 'note'),
  };
}
