/** Values of a pickle. Nothing of it is carried out: a call gives data, or is refused. */
import type { TensorDType } from '../safetensors/header.js';

/** An element type of PyTorch. */
interface ElementType {
  /** Name in PyTorch, such as `float32`. */
  readonly name: string;
  /** Bytes of an element. */
  readonly bytes: number;
  /** Name in safetensors. Types that it has not got are not read. */
  readonly dtype: TensorDType;
}

/** Memory that tensors share. */
export interface StorageValue {
  readonly kind: 'storage';
  /** Name of its bytes in the file. */
  readonly key: string;
  readonly type: ElementType;
  /** Number of its elements. */
  readonly count: number;
  /** The element of the memory that a view begins with; 0 without a view. */
  readonly first: number;
  /** Offset of the opcode in the pickle. */
  readonly at: number;
}

/** A tensor: elements of a storage. */
export interface TensorValue {
  readonly kind: 'tensor';
  readonly storage: StorageValue;
  readonly type: ElementType;
  /** Its first element, counted from the beginning of the storage in elements of its type. */
  readonly offset: number;
  readonly shape: readonly number[];
  /** Elements between two indices of each axis. */
  readonly strides: readonly number[];
  readonly at: number;
}

/** A dictionary. */
export interface DictValue {
  readonly kind: 'dict';
  readonly entries: Map<PickleValue, PickleValue>;
}

/** A list, tuple or set. */
export interface ListValue {
  readonly kind: 'list';
  readonly items: PickleValue[];
}

/** A name that the pickle asks for. */
export interface GlobalValue {
  readonly kind: 'global';
  /** Such as `torch._utils._rebuild_tensor_v2`. */
  readonly path: string;
  readonly meaning: Meaning;
}

/** Another object, whose contents are not needed, such as an array of numpy. */
interface OtherValue {
  readonly kind: 'other';
  readonly path: string;
}

export type PickleValue =
  | null
  | boolean
  | number
  | bigint
  | string
  | Uint8Array
  | StorageValue
  | TensorValue
  | DictValue
  | ListValue
  | GlobalValue
  | OtherValue;

/** The meaning of a name. */
export type Meaning =
  /** A dictionary, made of pairs or empty. */
  | { readonly kind: 'dict' }
  /** A list, tuple or set. */
  | { readonly kind: 'list' }
  /** A tensor of a storage; `typed` if an argument has the element type. */
  | { readonly kind: 'tensor'; readonly typed: boolean }
  /** A tensor, given as the first argument. */
  | { readonly kind: 'parameter' }
  /** A tensor of a subclass, made by the first argument. */
  | { readonly kind: 'fromType' }
  | { readonly kind: 'storage'; readonly type: ElementType }
  | { readonly kind: 'elementType'; readonly type: ElementType }
  /** An object whose contents are not needed. */
  | { readonly kind: 'other' };

const elementTypes = (
  [
    ['float64', 8, 'F64'],
    ['float32', 4, 'F32'],
    ['float16', 2, 'F16'],
    ['bfloat16', 2, 'BF16'],
    ['float8_e4m3fn', 1, 'F8_E4M3'],
    ['float8_e5m2', 1, 'F8_E5M2'],
    ['float8_e4m3fnuz', 1, 'F8_E4M3FNUZ'],
    ['float8_e5m2fnuz', 1, 'F8_E5M2FNUZ'],
    ['float8_e8m0fnu', 1, 'F8_E8M0'],
    ['int64', 8, 'I64'],
    ['int32', 4, 'I32'],
    ['int16', 2, 'I16'],
    ['int8', 1, 'I8'],
    ['uint64', 8, 'U64'],
    ['uint32', 4, 'U32'],
    ['uint16', 2, 'U16'],
    ['uint8', 1, 'U8'],
    ['bool', 1, 'BOOL'],
    ['complex64', 8, 'C64'],
  ] as const
).map(([name, bytes, dtype]): ElementType => ({ name, bytes, dtype }));

const typeNamed = new Map(elementTypes.map((type) => [type.name, type]));

/** Types of storages by the names of their classes, which new types have not got. */
const storageTypes = {
  DoubleStorage: 'float64',
  FloatStorage: 'float32',
  HalfStorage: 'float16',
  BFloat16Storage: 'bfloat16',
  LongStorage: 'int64',
  IntStorage: 'int32',
  ShortStorage: 'int16',
  CharStorage: 'int8',
  ByteStorage: 'uint8',
  BoolStorage: 'bool',
  ComplexFloatStorage: 'complex64',
  UntypedStorage: 'uint8',
  _UntypedStorage: 'uint8',
} as const;

const builtin = (names: readonly string[]) => names.flatMap((name) => [`builtins.${name}`, `__builtin__.${name}`]);

const others: readonly string[] = [
  // Protocol 2 stores bytes as a text that is encoded.
  '_codecs.encode',
  ...builtin(['bytes', 'bytearray', 'complex']),
  'torch.device',
  'torch.serialization._get_layout',
  'torch.strided',
  'argparse.Namespace',
  'numpy.dtype',
  'numpy.ndarray',
  ...['numpy.core.multiarray', 'numpy._core.multiarray'].flatMap((module) => [
    `${module}.scalar`,
    `${module}._reconstruct`,
  ]),
  // Keys of a dictionary in checkpoints of Lightning.
  'pytorch_lightning.callbacks.model_checkpoint.ModelCheckpoint',
  'lightning.pytorch.callbacks.model_checkpoint.ModelCheckpoint',
];

/**
 * Every name that may occur, with its module. Reference: what torch.load accepts with weights_only, torch/_weights_only_unpickler.py of
 * github.com/pytorch/pytorch at 00f730b, apart from sparse, quantized and distributed tensors; and classes of plain data.
 */
const meanings: ReadonlyMap<string, Meaning> = new Map<string, Meaning>([
  ...['collections.OrderedDict', 'collections.defaultdict', 'collections.Counter', ...builtin(['dict'])].map(
    (name): [string, Meaning] => [name, { kind: 'dict' }],
  ),
  ...['torch.Size', 'collections.deque', ...builtin(['list', 'tuple', 'set', 'frozenset'])].map(
    (name): [string, Meaning] => [name, { kind: 'list' }],
  ),
  ['torch._utils._rebuild_tensor', { kind: 'tensor', typed: false }],
  ['torch._utils._rebuild_tensor_v2', { kind: 'tensor', typed: false }],
  ['torch._utils._rebuild_tensor_v3', { kind: 'tensor', typed: true }],
  ...[
    'torch._utils._rebuild_parameter',
    'torch._utils._rebuild_parameter_with_state',
    'torch.nn.parameter.Parameter',
    'torch.nn.parameter.Buffer',
    'torch.Tensor',
  ].map((name): [string, Meaning] => [name, { kind: 'parameter' }]),
  ['torch._tensor._rebuild_from_type_v2', { kind: 'fromType' }],
  ...Object.entries(storageTypes).flatMap(([name, type]) =>
    ['torch', 'torch.cuda', 'torch.storage'].map((module): [string, Meaning] => [
      `${module}.${name}`,
      { kind: 'storage', type: typeNamed.get(type) as ElementType },
    ]),
  ),
  ...elementTypes.map((type): [string, Meaning] => [`torch.${type.name}`, { kind: 'elementType', type }]),
  ...others.map((name): [string, Meaning] => [name, { kind: 'other' }]),
]);

/** The meaning of a name; undefined if it is not read. */
export function meaningOf(path: string): Meaning | undefined {
  return meanings.get(path);
}
