/**
 * Lays out a model of MLC: parameters in shards, and the index of them.
 * Reference: github.com/apache/tvm at 0906717, python/tvm/contrib/tvmjs.py (dump_tensor_cache, TensorCacheShardingManager).
 */
import type { Role } from '../codecs/codec.js';
import { elementsOf } from '../codecs/elements.js';
import { md5Digits, type OutputFile, type PlannedTensor, type Segment } from '../format.js';
import { cacheNames } from './signature.js';

/** Most bytes of the parameters in a shard, except of one that is large. */
const shardBytes = 32 * 2 ** 20;

/** Encoding in all records that MLC-LLM writes: float32 is stored as bfloat16, and other types as they are. */
const encoding = 'f32-to-bf16';

/** Types of records by the types of parts. */
const recordTypes: Readonly<Record<string, string>> = { U32: 'uint32', F16: 'float16', BF16: 'float32' };
/** Bytes of an element in memory, by the type of the record. */
const memoryBytes: Readonly<Record<string, number>> = { uint32: 4, float16: 2, float32: 4 };

/** A parameter of a model, whose rows are those of one or several tensors, one after the other. */
export interface Parameter {
  /** The name of its module, such as `model.layers.0.self_attn.qkv_proj`. */
  readonly module: string;
  /** The tensors that it is made of, by their indices in the plan. */
  readonly tensors: readonly number[];
  /** Name and part of what is stored, such as `q_weight` and `data`. */
  readonly stored: readonly { readonly name: string; readonly role: Role }[];
}

/** A stored array in a shard. */
interface CacheRecord {
  readonly name: string;
  readonly shape: readonly number[];
  readonly dtype: string;
  readonly format: string;
  readonly nbytes: number;
  byteOffset: number;
}

/** An array, and what it is made of. */
interface Piece {
  readonly record: CacheRecord;
  readonly role: Role;
  readonly tensors: readonly number[];
}

interface Shard {
  readonly pieces: readonly Piece[];
  readonly bytes: number;
}

/** The arrays of a parameter. */
function parameterPieces({ module, tensors, stored }: Parameter, planned: readonly PlannedTensor[]): Piece[] {
  return stored.map(({ name, role }) => {
    const parts = tensors.map((index) => {
      const part = planned[index]?.parts.find((one) => one.role === role);
      if (part === undefined) throw new Error(`the plan has no part ${role} of ${module}`);
      return part;
    });
    const [{ dtype, shape }] = parts as [(typeof parts)[number]];
    const rows = parts.reduce((sum, part) => sum + (part.shape[0] ?? 0), 0);
    const record: CacheRecord = {
      name: `${module}.${name}`,
      shape: [rows, ...shape.slice(1)],
      dtype: recordTypes[dtype] as string,
      format: encoding,
      nbytes: parts.reduce((sum, { bytes }) => sum + bytes, 0),
      byteOffset: 0,
    };
    return { record, role, tensors };
  });
}

/** Packs arrays into shards. An array of half a shard or more that does not fit gets a shard of its own, before the one in the making. */
function packedShards(pieces: Iterable<Piece>): Shard[] {
  const shards: Shard[] = [];
  let pending: Piece[] = [];
  let bytes = 0;
  const close = () => {
    if (bytes === 0) return;
    shards.push({ pieces: pending, bytes });
    pending = [];
    bytes = 0;
  };
  for (const piece of pieces) {
    const { nbytes } = piece.record;
    if (bytes + nbytes >= shardBytes) {
      if (nbytes * 2 >= shardBytes) {
        shards.push({ pieces: [piece], bytes: nbytes });
        continue;
      }
      close();
    }
    piece.record.byteOffset = bytes;
    pending.push(piece);
    bytes += nbytes;
  }
  close();
  return shards;
}

const shardName = (index: number) => `params_shard_${index}.bin`;

const checksumKey = '"md5sum": "';

/** A file of known contents beside the parameters. */
export interface ModelFile {
  readonly name: string;
  readonly bytes: Uint8Array<ArrayBuffer>;
}

/**
 * The files of a model, the index first. It is there twice, because loaders look for it by two names.
 * @param elements of the original model
 */
export function modelFiles(
  parameters: readonly Parameter[],
  planned: readonly PlannedTensor[],
  elements: number,
  others: readonly ModelFile[],
): OutputFile[] {
  const shards = packedShards(parameters.flatMap((parameter) => parameterPieces(parameter, planned)));
  // Write the index, with zeros for checksums.
  const all = shards.flatMap(({ pieces }) => pieces.map(({ record }) => record));
  const inMemory = all.reduce((sum, { shape, dtype }) => sum + elementsOf(shape) * (memoryBytes[dtype] as number), 0);
  const metadata = { ParamSize: all.length, ParamBytes: inMemory, BitsPerParam: (inMemory * 8) / elements };
  const records = shards.map(({ pieces, bytes }, index) => ({
    dataPath: shardName(index),
    format: 'raw-shard',
    nbytes: bytes,
    records: pieces.map(({ record }) => record),
    md5sum: '0'.repeat(md5Digits),
  }));
  const text = JSON.stringify({ metadata, records }, undefined, 4);
  const bytes = new TextEncoder().encode(text);

  // Put the checksums of shards in place of the zeros. Quotes in names are escaped, so that the key is found nowhere else. All of the text is
  // ASCII but for names.
  const segments: Segment[] = [];
  let [from, at, file] = [0, 0, cacheNames.length + others.length];
  for (let found = text.indexOf(checksumKey); found >= 0; found = text.indexOf(checksumKey, from)) {
    const begin = found + checksumKey.length;
    const size = new TextEncoder().encode(text.slice(from, begin)).length;
    segments.push({ at, bytes: bytes.slice(at, at + size) });
    segments.push({ at: at + size, md5: file });
    file++;
    at += size + md5Digits;
    from = begin + md5Digits;
  }
  segments.push({ at, bytes: bytes.slice(at) });
  return [
    ...cacheNames.map((name) => ({ suffix: `/${name}`, size: bytes.length, segments })),
    ...others.map(({ name, bytes }) => ({ suffix: `/${name}`, size: bytes.length, segments: [{ at: 0, bytes }] })),
    ...shards.map(({ pieces, bytes: size }, index): OutputFile => {
      const segments = pieces.flatMap(({ record, role, tensors }) => {
        let at = record.byteOffset;
        return tensors.map((tensor): Segment => {
          const segment = { at, tensor, role };
          at += planned[tensor]?.parts.find((part) => part.role === role)?.bytes ?? 0;
          return segment;
        });
      });
      return { suffix: `/${shardName(index)}`, size, segments };
    }),
  ];
}
