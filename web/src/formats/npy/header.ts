/**
 * Reads .npy files. Each holds one numpy array: the bytes `\x93NUMPY`, a version, the length of the header, the header, and the elements.
 * The header is a Python dict with dtype, order and shape.
 * Reference: numpy.lib.format, versions 1.0 to 3.0 of the format.
 */

import { ScalepointError } from '../../core/errors.js';
import { show } from '../../core/show.js';
import { type ByteSource, fillFrom, readsInto, swapBytes } from '../files/bytes.js';
import { badFile } from '../files/errors.js';
import type { TensorDType, TensorInfo } from '../safetensors/header.js';
import { columnMajorStrides, StridedReader } from '../strided.js';
import { elementCount } from '../tensors.js';
import { npyMagic } from './signature.js';

/**
 * An array in a .npy file. It is read in row-major, little-endian order, by positions among its elements that are multiples of their size.
 */
export interface NpyFile extends Pick<ByteSource, 'size' | 'read' | 'readInto'> {
  /** Named after the file without its extension, or `array` if the file has no name. */
  readonly tensor: TensorInfo;
  /** True if the elements are stored in row-major, little-endian order. Otherwise `read` rearranges them. */
  readonly verbatim: boolean;
}

/** Largest header. Those of plain arrays have about a hundred bytes; only record types, which are not supported, need more. */
const maxHeaderBytes = 2 ** 20;
/** Largest rank accepted, at least that of numpy. */
const maxRank = 64;
/** Largest column-major array. At this size its bytes are read up to 32 times. */
const maxColumnMajorBytes = 2 ** 29;

/** The dtypes of safetensors, by numpy's kind and size. */
const dtypes = new Map<string, TensorDType>([
  ['b1', 'BOOL'],
  ['i1', 'I8'],
  ['u1', 'U8'],
  ['i2', 'I16'],
  ['u2', 'U16'],
  ['i4', 'I32'],
  ['u4', 'U32'],
  ['i8', 'I64'],
  ['u8', 'U64'],
  ['f2', 'F16'],
  ['f4', 'F32'],
  ['f8', 'F64'],
  ['c8', 'C64'],
]);

/** Reads a Python dict literal, keeping the position. */
class DictReader {
  readonly #text: string;
  readonly #origin: number;
  #position = 0;

  /** @param origin offset of the text in the file */
  constructor(text: string, origin: number) {
    this.#text = text;
    this.#origin = origin;
  }

  /** Offset in the file. */
  get offset(): number {
    return this.#origin + this.#position;
  }

  fail(message: string): never {
    badFile(`header: ${message}`, this.offset);
  }

  /** Steps over white space and a match of a sticky pattern. Returns undefined without a match. */
  take(pattern: RegExp): RegExpExecArray | undefined {
    while (/[ \t\r\n]/.test(this.#text[this.#position] ?? '')) this.#position++;
    pattern.lastIndex = this.#position;
    const match = pattern.exec(this.#text);
    if (match === null) return undefined;
    this.#position = pattern.lastIndex;
    return match;
  }

  need(pattern: RegExp, what: string): RegExpExecArray {
    return this.take(pattern) ?? this.fail(`expected ${what}`);
  }

  /** True if only white space is left. */
  isAtEnd(): boolean {
    this.take(/(?=$)/y);
    return this.#position === this.#text.length;
  }

  /** A string such as `<f4`. */
  descr(): string {
    if (this.take(/\[/y) !== undefined) {
      const message = 'the array holds records; save its fields as arrays of their own';
      throw new ScalepointError('UNSUPPORTED_DTYPE', message, { byteOffset: this.offset });
    }
    const descr = this.need(/'([^'\\]*)'|"([^"\\]*)"/y, 'descr, a string');
    return descr[1] ?? descr[2] ?? '';
  }

  /** A tuple of whole numbers. */
  shape(): number[] {
    const shape: number[] = [];
    this.need(/\(/y, "shape, a tuple that starts with '('");
    while (this.take(/\)/y) === undefined) {
      // Python 2 wrote long integers as 3L.
      const dimension = Number(this.need(/(0|[1-9]\d*)L?(?![\w.])/y, 'a whole number of at least 0 in shape')[1]);
      if (!Number.isSafeInteger(dimension)) this.fail('a dimension of shape is too large');
      shape.push(dimension);
      if (shape.length > maxRank) this.fail(`shape has more than ${maxRank} dimensions`);
      if (this.take(/,/y) !== undefined) continue;
      // In Python (3) is a number. A tuple of one needs a comma.
      if (shape.length === 1) this.fail("expected ',' after the only dimension of shape");
      this.need(/\)/y, "',' or ')' in shape");
      break;
    }
    return shape;
  }
}

/** Values of the dict. */
interface NpyDict {
  descr?: string;
  fortran_order?: boolean;
  shape?: number[];
}

/** Reads a dict with the keys descr, fortran_order and shape, in any order and once. */
function npyDict(text: string, origin: number): Required<NpyDict> {
  const reader = new DictReader(text, origin);
  const found: NpyDict = {};
  reader.need(/\{/y, "'{'");
  while (reader.take(/\}/y) === undefined) {
    const [, single, double] = reader.need(/'(\w*)'|"(\w*)"/y, "a key or '}'");
    const key = single ?? double;
    reader.need(/:/y, "':'");
    if (key !== undefined && Object.hasOwn(found, key)) reader.fail(`${key} occurs twice`);
    if (key === 'descr') found.descr = reader.descr();
    else if (key === 'fortran_order')
      found.fortran_order = reader.need(/True\b|False\b/y, 'fortran_order, True or False')[0] === 'True';
    else if (key === 'shape') found.shape = reader.shape();
    else reader.fail(`the key ${show(key)} is unknown`);
    if (reader.take(/,/y) !== undefined) continue;
    reader.need(/\}/y, "',' or '}'");
    break;
  }
  if (!reader.isAtEnd()) reader.fail('there is more than spaces after the closing brace');
  const { descr, fortran_order, shape } = found;
  if (descr === undefined || fortran_order === undefined || shape === undefined) {
    return badFile('header: descr, fortran_order and shape have to be there', origin);
  }
  return { descr, fortran_order, shape };
}

/**
 * Opens a .npy file, versions 1.0, 2.0 and 3.0. Big-endian and column-major (`fortran_order`) arrays are rearranged while they are read;
 * the latter up to 512 MiB.
 * @throws ScalepointError `BAD_FILE` if the file breaks the format or its length contradicts its header; `UNSUPPORTED_DTYPE` for records,
 *   objects, text, dates, long doubles and double complex numbers, and for column-major arrays that are too large
 */
export async function openNpy(source: ByteSource): Promise<NpyFile> {
  const { size } = source;
  if (size < 10) badFile(`the file has ${size} bytes, too few for the start of a .npy file`, size);
  const start = await source.read(0, Math.min(12, size));
  if (npyMagic.some((byte, i) => start[i] !== byte)) badFile('the file does not start with \\x93NUMPY', 0);
  const [major = 0, minor = 0] = start.subarray(6);
  if (major < 1 || major > 3 || minor !== 0) {
    badFile(`.npy version ${major}.${minor} is unknown; supported are 1.0, 2.0 and 3.0`, 6);
  }
  const begin = major === 1 ? 10 : 12;
  if (size < begin) badFile(`the file has ${size} bytes, too few for the length of the header`, size);
  const view = new DataView(start.buffer, start.byteOffset, start.byteLength);
  const length = major === 1 ? view.getUint16(8, true) : view.getUint32(8, true);
  if (length > maxHeaderBytes) badFile(`the header claims ${length} bytes, more than ${maxHeaderBytes}`, 8);
  const dataOffset = begin + length;
  if (dataOffset > size)
    badFile(`the header claims ${length} bytes, but the file ends after ${size - begin} of them`, size);
  const header = await source.read(begin, dataOffset);
  let text: string;
  try {
    // Versions 1 and 2 are Latin-1, but supported headers are ASCII.
    text = new TextDecoder('utf-8', { fatal: major === 3 }).decode(header);
  } catch {
    return badFile('header: it is not UTF-8', begin);
  }
  const { descr, fortran_order, shape } = npyDict(text, begin);
  const [, order = '', kind = ''] = /^([<>|=]?)(\w+)$/.exec(descr) ?? [];
  const dtype = dtypes.get(kind);
  if (dtype === undefined) {
    const message = `numpy dtype ${show(descr)} cannot be read; supported are ${[...dtypes.keys()].join(', ')}`;
    throw new ScalepointError('UNSUPPORTED_DTYPE', message, { byteOffset: begin });
  }
  // The elements are the rest of the file.
  const elementBytes = Number(kind.slice(1));
  const bytes = (elementCount(shape) ?? Number.NaN) * elementBytes;
  if (!Number.isSafeInteger(bytes)) badFile(`header: the product of shape ${show(shape)} is too large`, begin);
  const left = size - dataOffset;
  if (bytes > left)
    badFile(`shape ${show(shape)} of ${dtype} needs ${bytes} bytes, but the file has only ${left}`, size);
  if (bytes < left)
    badFile(`the array ends at byte ${dataOffset + bytes}, but the file has ${size} bytes`, dataOffset + bytes);
  const stem = source.name?.replace(/\.npy$/i, '') ?? '';
  // '__metadata__' is the one name that a tensor of a safetensors file cannot have.
  const name = stem === '' || stem === '__metadata__' ? 'array' : stem;
  // With at most one dimension other than 1, both orders are the same.
  const columnMajor = fortran_order && shape.filter((dimension) => dimension !== 1).length > 1 && bytes > 0;
  if (columnMajor && bytes > maxColumnMajorBytes) {
    const message = `the array is column-major (fortran_order) and larger than ${maxColumnMajorBytes} bytes`;
    const place = { tensor: name, byteOffset: begin };
    throw new ScalepointError('UNSUPPORTED_DTYPE', `${message}; save numpy.ascontiguousarray of it`, place);
  }
  // Byte order applies to the halves of complex numbers.
  const unit = kind === 'c8' ? 4 : elementBytes;
  const swapped = order === '>' && unit > 1;
  const rows = columnMajor
    ? new StridedReader(source, dataOffset, shape, columnMajorStrides(shape), elementBytes)
    : undefined;
  const fill = async (begin: number, target: Uint8Array) => {
    if (rows !== undefined) await rows.readInto(begin, target);
    else await fillFrom(source, dataOffset + begin, target);
    if (swapped) swapBytes(target, unit);
  };
  const tensor = { name, dtype, shape, bytes, byteOffset: dataOffset, file: 0 };
  return { ...readsInto(bytes, fill), tensor, verbatim: !columnMajor && !swapped };
}
