/** Opens files of torch.save, and models in several of them, as tensors with places in files. */
import { ScalepointError } from '../../core/errors.js';
import { type Note, noteOf } from '../../core/note.js';
import { type ByteSource, grouped, quoted, quotedNames, readsInto, swapBytes } from '../files/bytes.js';
import { badTensor } from '../files/errors.js';
import type { OpenFile, OpenInput, OpenModel } from '../format.js';
import { type TensorInfo, tensorBytes } from '../safetensors/header.js';
import { openShards, type ShardContents } from '../safetensors/shards.js';
import { rowMajorStrides, StridedReader } from '../strided.js';
import type { InflatedSource } from '../zip.js';
import { isPytorchIndex, shardNames } from './signature.js';
import { type State, stateOf } from './state.js';
import { openSaved, type SavedFile } from './storages.js';
import type { TensorValue } from './values.js';

/** An open model, with notes about what a result lacks or holds twice. */
export interface PytorchModel extends OpenModel {
  readonly notes: readonly Note[];
}

/** Largest tensor in bytes whose elements are rearranged: its bytes may be read up to 32 times. */
const mostRearranged = 2 ** 29;

/** Bytes that a tensor may have beyond those of its storage, by repeating elements. */
const mostRepeated = 2 ** 24;

/** A tensor and its bytes. */
interface PlacedTensor {
  readonly name: string;
  readonly value: TensorValue;
  readonly dtype: TensorInfo['dtype'];
  readonly bytes: number;
  /** The packed entry that it is in; undefined for the file itself. */
  readonly inflated: InflatedSource | undefined;
  /** Offset of its first element. */
  readonly begin: number;
  /** True if its elements follow each other in the file as in the tensor. */
  readonly isVerbatim: boolean;
}

/** Locates a tensor, and checks that its storage holds all of it. */
function placedTensor(name: string, value: TensorValue, file: SavedFile): PlacedTensor {
  const { type, shape, strides, offset, storage, at } = value;
  const { dtype } = type;
  const bytes = tensorBytes(dtype, shape);
  if (bytes === undefined) return badTensor(name, 'it is too large', at);
  const place = file.place(storage);
  // Check the last element. Numbers beyond 2^53 are rounded, and are too large in any case.
  const reach = shape.includes(0)
    ? 0
    : shape.reduce((sum, dimension, i) => sum + (dimension - 1) * (strides[i] as number), 1);
  const first = storage.first * storage.type.bytes + offset * type.bytes;
  if (!(first + reach * type.bytes <= place.bytes)) {
    badTensor(name, `it ends ${first + reach * type.bytes} bytes into a storage of ${place.bytes}`, at);
  }
  // Strides of axes without a second index do not matter.
  const expected = rowMajorStrides(shape);
  const isOrdered = shape.includes(0) || shape.every((n, i) => n === 1 || strides[i] === expected[i]);
  if (!isOrdered && bytes > mostRearranged) {
    const message = `the tensor ${quoted(name)} is not contiguous and larger than ${mostRearranged} bytes; save its contiguous()`;
    throw new ScalepointError('UNSUPPORTED_DTYPE', message, { tensor: name, byteOffset: at });
  }
  if (bytes > place.bytes + mostRepeated) badTensor(name, 'it repeats the elements of a far smaller storage', at);
  const { inflated } = place;
  const isVerbatim = isOrdered && inflated === undefined && (type.bytes === 1 || !file.isBigEndian);
  return { name, value, dtype, bytes, inflated, begin: place.begin + first, isVerbatim };
}

/** Readers that are kept, each with a band of its tensor. */
const mostReaders = 4;

/** Tensors one after the other, whose elements lie elsewhere in a file, or in packed entries of it. */
class Rearranged {
  readonly size: number;
  readonly #source: ByteSource;
  /** Tensors, and the bytes that are swapped in each. */
  readonly #parts: { begin: number; end: number; swap: number; tensor: PlacedTensor }[] = [];
  /** The readers of the tensors that were read last. */
  readonly #readers = new Map<PlacedTensor, StridedReader>();

  constructor(source: ByteSource, tensors: readonly PlacedTensor[], isBigEndian: boolean) {
    this.#source = source;
    let at = 0;
    for (const tensor of tensors) {
      // Halves of complex numbers have an order each.
      const swap = !isBigEndian ? 1 : tensor.dtype === 'C64' ? 4 : tensor.value.type.bytes;
      this.#parts.push({ begin: at, end: at + tensor.bytes, swap, tensor });
      at += tensor.bytes;
    }
    this.size = at;
  }

  /** The reader of a tensor. The one that was not read for longest gives its memory back. */
  #readerOf(tensor: PlacedTensor): StridedReader {
    const { type, shape, strides } = tensor.value;
    const source = tensor.inflated ?? this.#source;
    const reader = this.#readers.get(tensor) ?? new StridedReader(source, tensor.begin, shape, strides, type.bytes);
    this.#readers.delete(tensor);
    this.#readers.set(tensor, reader);
    const [oldest] = this.#readers.keys();
    if (this.#readers.size > mostReaders && oldest !== undefined) {
      this.#readers.delete(oldest);
      void oldest.inflated?.close();
    }
    return reader;
  }

  async readInto(begin: number, target: Uint8Array): Promise<void> {
    const end = begin + target.length;
    for (const part of this.#parts) {
      const [from, to] = [Math.max(begin, part.begin), Math.min(end, part.end)];
      if (from >= to) continue;
      // Read whole elements.
      const unit = part.tensor.value.type.bytes;
      const first = Math.floor((from - part.begin) / unit) * unit;
      const last = Math.ceil((to - part.begin) / unit) * unit;
      const isWhole = first === from - part.begin && last === to - part.begin;
      const into = isWhole ? target.subarray(from - begin, to - begin) : new Uint8Array(last - first);
      await this.#readerOf(part.tensor).readInto(first, into);
      if (part.swap > 1) swapBytes(into, part.swap);
      if (!isWhole) target.set(into.subarray(from - part.begin - first, to - part.begin - first), from - begin);
    }
  }

  async close(): Promise<void> {
    await Promise.all([...this.#readers.keys()].map(({ inflated }) => inflated?.close()));
    this.#readers.clear();
  }
}

/** The contents of a file. @param index of the file in its model; what is rearranged has the index behind it */
async function savedContents(
  source: ByteSource,
  index: number,
): Promise<ShardContents & { state: State; shared: readonly string[] }> {
  const file = await openSaved(source);
  const stem = source.name?.replace(shardNames, '') ?? '';
  const state = stateOf(file.value, stem === '' || stem === '__metadata__' ? 'tensor' : stem);
  const all = [...state.tensors].map(([name, value]) => placedTensor(name, value, file));
  const verbatim = all.filter(({ isVerbatim }) => isVerbatim).sort((a, b) => a.begin - b.begin);
  const others = all.filter(({ isVerbatim }) => !isVerbatim);
  const infoOf = ({ name, value: { shape }, dtype, bytes }: PlacedTensor, byteOffset: number, file: number) => {
    return { name, dtype, shape, bytes, byteOffset, file };
  };
  const tensors: TensorInfo[] = verbatim.map((tensor) => infoOf(tensor, tensor.begin, index));
  const derived: ByteSource[] = [];
  if (others.length > 0) {
    const rearranged = new Rearranged(source, others, file.isBigEndian);
    derived.push({
      ...source,
      ...readsInto(rearranged.size, (begin, target) => rearranged.readInto(begin, target)),
      reference: undefined,
      close: () => rearranged.close(),
    });
    let at = 0;
    for (const tensor of others) {
      tensors.push({ ...infoOf(tensor, at, index + 1), rearranged: true } as TensorInfo);
      at += tensor.bytes;
    }
  }

  // Find tensors that are written twice.
  const byPlace = grouped(
    all.filter(({ bytes }) => bytes > 0),
    ({ begin, bytes, value }) => `${value.storage.key} ${begin} ${bytes} ${value.strides}`,
  );
  const shared = [...byPlace.values()].flatMap((some) => (some.length > 1 ? some.map(({ name }) => name) : []));
  return { tensors, metadata: { format: 'pt' }, derived, state, shared };
}

/** Opens a file, or an index and the files that it names. @throws ScalepointError `BAD_FILE`, `UNKNOWN_FORMAT`, `UNSUPPORTED_DTYPE` */
export async function openPytorch(files: readonly OpenFile[], open: OpenInput): Promise<PytorchModel> {
  const [{ input, source }, ...others] = files as [OpenFile, ...OpenFile[]];
  const states: State[] = [];
  const shared: (readonly string[])[] = [];
  const read = async (file: ByteSource, index: number) => {
    const contents = await savedContents(file, index);
    states.push(contents.state);
    shared.push(contents.shared);
    return contents;
  };
  // What is left out, and what is there twice, is known once all files are read.
  const notes = () => {
    const notes: Note[] = [];
    const leftOut = [...new Set(states.flatMap((state) => state.leftOut))];
    const twice = shared.flat();
    if (leftOut.length > 0) {
      const from = states[0]?.path.join('.') ?? '';
      const where = from === '' ? '' : `only the tensors in ${quoted(from)} are taken; `;
      notes.push(noteOf('leftOut', { keys: leftOut }, `${where}left out: ${quotedNames(leftOut)}`));
    }
    if (twice.length > 0) {
      const text = `these share their bytes in the file, and each gets its own: ${quotedNames(twice)}`;
      notes.push(noteOf('sharedBytes', { tensors: twice }, text));
    }
    return notes;
  };
  if (isPytorchIndex(await source.read(0, Math.min(1024, source.size)))) {
    const given = others.map((other) => other.source);
    const shards = await openShards(input, source, given, {
      openInput: open,
      kind: { names: shardNames, end: '.bin', read },
    });
    return { ...shards, notes: notes() };
  }
  const { tensors, metadata, derived = [] } = await read(source, 0);
  return { bytes: source.size, files: [source, ...derived], tensors, metadata, notes: notes() };
}
