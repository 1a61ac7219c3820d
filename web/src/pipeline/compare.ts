/** Holds two models against each other: pairs their tensors, reads what the bytes stand for, adds up the errors. */
import { ScalepointError } from '../core/errors.js';
import { addSums, type ErrorMeasures, measuresOf, sumCount } from '../core/measure.js';
import type { ByteSource } from '../files/bytes.js';
import { interruptible, type Progress } from './engine.js';
import type { OpenModel } from './open.js';
import type { CastType, SourceTensor } from './plan.js';
import { elementsOf } from './steps.js';
import {
  bytesOf,
  type Encoding,
  type InputRange,
  isDecodable,
  packedRowBytes,
  type TileResult,
  tileElements,
} from './tile.js';
import type { TileRunner } from './workers.js';

/** A tensor that both models have. */
export interface ComparedTensor {
  readonly name: string;
  readonly shape: readonly number[];
  /** Types in a and in b; of packed codes I4 or I8. */
  readonly a: string;
  readonly b: string;
  /** How far b is from a. */
  readonly error: ErrorMeasures;
}

/** What two models have in common. */
export interface CompareReport {
  /** In the order of a. */
  readonly tensors: readonly ComparedTensor[];
  /** Over all of them. */
  readonly total: ErrorMeasures;
  /** Tensors of both that were not compared, with the reason. */
  readonly skipped: readonly { readonly name: string; readonly reason: string }[];
  /** Names of tensors that only one of them has. */
  readonly onlyInA: readonly string[];
  readonly onlyInB: readonly string[];
}

/** A tensor with all that is needed to read its values. */
interface LogicalTensor {
  readonly name: string;
  readonly shape: readonly number[];
  readonly type: string;
  readonly encoding: Encoding;
  readonly data: SourceTensor;
  readonly scale?: SourceTensor;
  readonly zeroPoint?: SourceTensor;
}

const scaleTypes: readonly string[] = ['F32', 'F16', 'BF16'];

/** The tensors of a model, codes together with their scales. */
async function logicalTensors(model: OpenModel): Promise<Map<string, LogicalTensor>> {
  const stored = new Map(model.tensors.map((tensor) => [tensor.name, tensor]));
  const found = new Map<string, LogicalTensor>();
  const parts = new Set<string>();
  for (const tensor of model.tensors) {
    const isPlain = tensor.dtype === 'I8' || tensor.dtype === 'F8_E4M3';
    const base = isPlain ? tensor.name : /^(.*)_packed$/s.exec(tensor.name)?.[1];
    if (model.format !== 'safetensors' || base === undefined) continue;
    const scale = stored.get(`${base}_scale`);
    if (scale === undefined || !scaleTypes.includes(scale.dtype)) continue;
    const zeroPoint = stored.get(`${base}_zero_point`);
    const logical = isPlain
      ? plainCodes(tensor, scale, zeroPoint)
      : await packedCodes(model, base, tensor, scale, zeroPoint, stored.get(`${base}_shape`));
    if (logical === undefined) continue;
    found.set(base, logical);
    for (const name of [tensor.name, scale.name, `${base}_zero_point`, `${base}_shape`]) parts.add(name);
  }
  for (const tensor of model.tensors) {
    if (parts.has(tensor.name)) continue;
    const { name, shape, dtype } = tensor;
    found.set(name, { name, shape, type: dtype, encoding: { kind: 'plain', dtype }, data: tensor });
  }
  return found;
}

/** int8 or float8 codes with one scale for each index of axis 0; undefined if the parts do not fit together. */
function plainCodes(
  data: SourceTensor,
  scale: SourceTensor,
  zeroPoint: SourceTensor | undefined,
): LogicalTensor | undefined {
  const { name, shape, dtype } = data;
  if (elementsOf(scale.shape) !== shape[0]) return undefined;
  if (dtype === 'F8_E4M3' && zeroPoint !== undefined) return undefined;
  if (zeroPoint !== undefined && (zeroPoint.dtype !== 'I8' || elementsOf(zeroPoint.shape) !== shape[0]))
    return undefined;
  const encoding = {
    kind: 'codes',
    type: dtype === 'I8' ? 'int' : 'float',
    bits: 8,
    symmetric: zeroPoint === undefined,
    groupSize: undefined,
    packed: false,
    scale: scale.dtype as CastType,
  } as const;
  return { name, shape, type: dtype, encoding, data, scale, ...(zeroPoint === undefined ? {} : { zeroPoint }) };
}

/** Whether any of the first words has a bit from `bit` on. */
async function reaches(model: OpenModel, { file, byteOffset, bytes }: SourceTensor, bit: number): Promise<boolean> {
  const size = Math.min(bytes, 1 << 16);
  const words = await (model.files[file] as ByteSource).read(byteOffset, byteOffset + size);
  const view = new DataView(words.buffer, words.byteOffset, size);
  for (let at = 0; at < size; at += 4) if (view.getUint32(at, true) >= 2 ** bit) return true;
  return false;
}

/** Packed codes; undefined if the parts do not fit together. */
async function packedCodes(
  model: OpenModel,
  name: string,
  data: SourceTensor,
  scale: SourceTensor,
  zeroPoint: SourceTensor | undefined,
  shapeTensor: SourceTensor | undefined,
): Promise<LogicalTensor | undefined> {
  if (data.dtype !== 'I32' || data.shape.length !== 2 || shapeTensor?.dtype !== 'I64' || shapeTensor.bytes !== 16)
    return undefined;
  const bytes = await (model.files[shapeTensor.file] as ByteSource).read(
    shapeTensor.byteOffset,
    shapeTensor.byteOffset + 16,
  );
  const view = new DataView(bytes.buffer, bytes.byteOffset, 16);
  const shape = [Number(view.getBigInt64(0, true)), Number(view.getBigInt64(8, true))] as const;
  const [rows, columns] = shape;
  const words = data.shape[1] as number;
  let bits = ([4, 8] as const).find((b) => packedRowBytes(columns, b) === words * 4);
  // Up to four codes of either width take one word; where they have 4 bits, the rest of it is 0.
  if (columns <= 4 && bits !== undefined && (await reaches(model, data, columns * 4))) bits = 8;
  const groups = scale.shape[1] as number;
  if (bits === undefined || data.shape[0] !== rows || scale.shape.length !== 2 || scale.shape[0] !== rows)
    return undefined;
  if (!(groups > 0) || columns % groups !== 0) return undefined;
  const perWord = 32 / bits;
  if (zeroPoint !== undefined) {
    const expected = [Math.ceil(rows / perWord), groups];
    if (zeroPoint.dtype !== 'I32' || zeroPoint.shape.join() !== expected.join()) return undefined;
  }
  const encoding = {
    kind: 'codes',
    type: 'int',
    bits,
    symmetric: zeroPoint === undefined,
    groupSize: groups === 1 ? undefined : columns / groups,
    packed: true,
    scale: scale.dtype as CastType,
  } as const;
  return { name, shape, type: `I${bits}`, encoding, data, scale, ...(zeroPoint === undefined ? {} : { zeroPoint }) };
}

/** A block of a matrix: rows [row, row + rows), columns [column, column + columns) of `width`. */
interface Window {
  readonly row: number;
  readonly rows: number;
  readonly column: number;
  readonly columns: number;
  readonly width: number;
}

/** The bytes of a window, `at` telling where its element [row, column] is. `fileShift` counts the files of a second model on. */
function inputsOf(tensor: LogicalTensor, window: Window, fileShift: number): InputRange[] {
  const { row, rows, column, columns, width } = window;
  const { encoding, data, scale, zeroPoint } = tensor;
  const whole = columns === width;
  const range = (source: SourceTensor, offset: number, rowBytes: number, stride: number, count: number): InputRange => {
    const file = source.file + fileShift;
    const begin = source.byteOffset + offset;
    return whole
      ? { file, begin, bytes: rowBytes * count, count: 1, stride: rowBytes * count }
      : { file, begin, bytes: rowBytes, count, stride };
  };
  if (encoding.kind === 'plain') {
    const bytes = (elements: number) => bytesOf(encoding.dtype, elements);
    return [range(data, bytes(row * width + column), bytes(columns), bytes(width), rows)];
  }
  const { bits, packed, groupSize } = encoding;
  const rowBytes = (n: number) => (packed ? packedRowBytes(n, bits) : n);
  const perRow = groupSize === undefined ? 1 : width / groupSize;
  const groups = groupSize === undefined ? 1 : columns / groupSize;
  const group = groupSize === undefined ? 0 : column / groupSize;
  const scaleSize = encoding.scale === 'F32' ? 4 : 2;
  const inputs = [
    range(data, row * rowBytes(width) + rowBytes(column), rowBytes(columns), rowBytes(width), rows),
    range(scale as SourceTensor, (row * perRow + group) * scaleSize, groups * scaleSize, perRow * scaleSize, rows),
  ];
  if (zeroPoint !== undefined) {
    const [perWord, size] = packed ? [32 / bits, 4] : [1, 1];
    const first = (Math.floor(row / perWord) * perRow + group) * size;
    inputs.push(range(zeroPoint, first, groups * size, perRow * size, Math.ceil(rows / perWord)));
  }
  return inputs;
}

function greatestCommonDivisor(a: number, b: number): number {
  return b === 0 ? a : greatestCommonDivisor(b, a % b);
}

/** Cuts a pair into windows that both sides can be cut at. */
function* windowsOf(a: LogicalTensor, b: LogicalTensor): Generator<Window> {
  const elements = elementsOf(a.shape);
  const codes = [a, b].filter(({ encoding }) => encoding.kind === 'codes');
  // Without rows of their own, neighbours are as good.
  const rows = codes.length === 0 ? 1 : (a.shape[0] as number);
  const width = elements / rows;
  const rowsPerWord = Math.max(
    1,
    ...codes.map(({ encoding, zeroPoint }) =>
      encoding.kind === 'codes' && encoding.packed && zeroPoint !== undefined ? 32 / encoding.bits : 1,
    ),
  );
  const rowsPerTile = Math.floor(tileElements / width / rowsPerWord) * rowsPerWord;
  if (rowsPerTile > 0) {
    for (let row = 0; row < rows; row += rowsPerTile) {
      yield { row, rows: Math.min(rowsPerTile, rows - row), column: 0, columns: width, width };
    }
    return;
  }
  // All blocks and words divide 512.
  const unit = codes.reduce((multiple, { encoding }) => {
    const size = encoding.kind === 'codes' ? (encoding.groupSize ?? 1) : 1;
    return (multiple / greatestCommonDivisor(multiple, size)) * size;
  }, 512);
  const segment = Math.max(1, Math.floor(tileElements / rowsPerWord / unit)) * unit;
  for (let row = 0; row < rows; row += rowsPerWord) {
    for (let column = 0; column < width; column += segment) {
      const columns = Math.min(segment, width - column);
      yield { row, rows: Math.min(rowsPerWord, rows - row), column, columns, width };
    }
  }
}

/** Why two tensors of one name cannot be compared; undefined if they can. */
function obstacle(a: LogicalTensor, b: LogicalTensor): string | undefined {
  if (a.shape.join() !== b.shape.join()) return `shapes ${a.shape.join('×')} and ${b.shape.join('×')}`;
  for (const { encoding } of [a, b]) {
    if (encoding.kind === 'plain' && !isDecodable(encoding.dtype))
      return `${encoding.dtype} is no float type that can be read`;
  }
  return undefined;
}

/** Compares two open models. See `compareModels`. */
export async function compareOpen(
  a: OpenModel,
  b: OpenModel,
  options: { readonly signal?: AbortSignal; readonly onProgress?: (progress: Progress) => void },
  start: (elements: number, files: readonly ByteSource[]) => Promise<TileRunner>,
): Promise<CompareReport> {
  const { signal, onProgress } = options;
  const [inA, inB] = [await logicalTensors(a), await logicalTensors(b)];
  const pairs: [LogicalTensor, LogicalTensor][] = [];
  const skipped: { name: string; reason: string }[] = [];
  for (const [name, tensor] of inA) {
    const other = inB.get(name);
    if (other === undefined) continue;
    const reason = obstacle(tensor, other);
    if (reason === undefined) pairs.push([tensor, other]);
    else skipped.push({ name, reason });
  }
  const elements = pairs.reduce((sum, [{ shape }]) => sum + elementsOf(shape), 0);
  const bytesTotal = pairs.reduce((sum, [{ data }]) => sum + data.bytes, 0);
  const files = [...a.files, ...b.files];
  const runner = await start(elements, files);
  const { soon, end } = interruptible(signal);
  try {
    signal?.throwIfAborted();
    const tensors: ComparedTensor[] = [];
    const all = new Float64Array(sumCount);
    let bytesDone = 0;
    let last = performance.now();
    for (const [index, [left, right]] of pairs.entries()) {
      const { name, shape, type } = left;
      const n = elementsOf(shape);
      const report = (elementsDone: number) => {
        const now = performance.now();
        if (elementsDone < n && now - last < 50) return;
        last = now;
        const done = bytesDone + (n === 0 ? 0 : Math.floor((left.data.bytes * elementsDone) / n));
        onProgress?.({ phase: 'quantize', tensor: name, index, count: pairs.length, bytesDone: done, bytesTotal });
      };
      const sums = new Float64Array(sumCount);
      const waiting: { readonly elements: number; readonly result: Promise<TileResult> }[] = [];
      let elementsDone = 0;
      const takeOldest = async () => {
        const { elements, result } = waiting.shift() as (typeof waiting)[number];
        addSums(sums, (await soon(result)).sums as Float64Array);
        elementsDone += elements;
        if (elementsDone < n) report(elementsDone);
      };
      for (const window of n === 0 ? [] : windowsOf(left, right)) {
        const result = runner.run({
          kind: 'compare',
          inputs: [...inputsOf(left, window, 0), ...inputsOf(right, window, a.files.length)],
          encodings: [left.encoding, right.encoding],
          rows: window.rows,
          columns: window.columns,
        });
        result.catch(() => {});
        waiting.push({ elements: window.rows * window.columns, result });
        try {
          if (waiting.length > runner.concurrency) await takeOldest();
        } catch (error) {
          throw named(error, name);
        }
        signal?.throwIfAborted();
      }
      try {
        while (waiting.length > 0) await takeOldest();
      } catch (error) {
        throw named(error, name);
      }
      addSums(all, sums);
      tensors.push({ name, shape, a: type, b: right.type, error: measuresOf(sums, n) });
      report(n);
      bytesDone += left.data.bytes;
    }
    for (const file of files) await file.verify();
    signal?.throwIfAborted();
    return {
      tensors,
      total: measuresOf(all, elements),
      skipped,
      onlyInA: [...inA.keys()].filter((name) => !inB.has(name)),
      onlyInB: [...inB.keys()].filter((name) => !inA.has(name)),
    };
  } finally {
    end();
    runner.dispose();
  }
}

/** An error that says which tensor it is about. */
function named(error: unknown, name: string): unknown {
  if (!(error instanceof ScalepointError) || error.tensor !== undefined) return error;
  return new ScalepointError(error.code, `tensor ${JSON.stringify(name)}: ${error.message}`, {
    tensor: name,
    cause: error,
  });
}
