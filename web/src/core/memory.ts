// An instance of the wasm core and its memory: fixed places for tiles, allocations, records of the door, and views. Only files that talk to
// the core see addresses.
import {
  type BlockSearchId,
  type BlockTypeId,
  type CoreModule,
  ErrorSumsRecord,
  type ModelsModule,
  type RecordType,
  StatusId,
  stepSize,
} from './door.js';
import { disposedError, outOfMemory } from './errors.js';

/** Element types of arrays in wasm memory. */
export type WasmDType = 'float32' | 'int8' | 'uint8' | 'int16' | 'uint16' | 'int32';
/** Typed arrays over arrays in wasm memory. */
export type WasmView = Float32Array | Int8Array | Uint8Array | Int16Array | Uint16Array | Int32Array;

/** The typed array of each element type. */
export const arrayTypes = {
  float32: Float32Array,
  int8: Int8Array,
  uint8: Uint8Array,
  int16: Int16Array,
  uint16: Uint16Array,
  int32: Int32Array,
} as const;

/** Bytes of an element of each type. */
export const elementBytes: Readonly<Record<WasmDType, number>> = {
  float32: 4,
  int8: 1,
  uint8: 1,
  int16: 2,
  uint16: 2,
  int32: 4,
};

/**
 * Floats that the scratch memory holds: the longest run whose range and codes are made in one pass, and the rows that a layer takes from
 * arrays without memory of their own.
 */
export const tileSize = 1 << 17;
/** Scales and zero points that the scratch memory takes at a time. */
export const tileParameters = 1 << 14;

/** Memory for tiles, allocated once. All are addresses, in bytes. */
export interface Scratch {
  /** tileSize. */
  readonly elements: number;
  /** tileSize floats. */
  readonly x: number;
  /** tileSize floats, or that many codes. */
  readonly y: number;
  /** tileSize 16-bit values. */
  readonly bits: number;
  /** tileParameters floats. */
  readonly scale: number;
  /** tileParameters 32-bit integers. */
  readonly zeroPoint: number;
  /** One record ErrorSums. */
  readonly sums: number;
}

/** Bytes for records of nested calls: room for ten of the largest. Further records are allocated. */
const recordBytes = 1024;

/** The next multiple of 16, which suits every record and vector of the core. */
export function align(address: number): number {
  return Math.ceil(address / 16) * 16;
}

/** True for the large module, which has the codecs of model files. */
export function isModelsModule(module: CoreModule): module is ModelsModule {
  return 'encodeGgml' in module;
}

/** One instance of the wasm module with its memory. */
export class Core {
  #module: CoreModule | undefined;
  #lastView: { dtype: WasmDType; address: number; buffer: ArrayBufferLike; view: WasmView } | undefined;
  /** Known answers of `hasBlocks`. */
  readonly #blocks = new Map<number, boolean>();
  /** Address of the next record. */
  #record: number;
  readonly #recordsEnd: number;
  /** Allocated at the start, because growing memory would empty the views that callers hold. */
  readonly scratch: Scratch;

  constructor(module: CoreModule) {
    this.#module = module;
    const x = align(this.allocate(tileSize * 10 + tileParameters * 8 + ErrorSumsRecord.bytes + recordBytes + 32));
    const y = x + tileSize * 4;
    const bits = y + tileSize * 4;
    const scale = bits + tileSize * 2;
    const zeroPoint = scale + tileParameters * 4;
    const sums = zeroPoint + tileParameters * 4;
    this.scratch = { elements: tileSize, x, y, bits, scale, zeroPoint, sums };
    this.#record = align(sums + ErrorSumsRecord.bytes);
    this.#recordsEnd = this.#record + recordBytes;
  }

  /** The functions of the core, and the views of its memory. Never keep a view, because memory that grows gets new ones. */
  get module(): CoreModule {
    if (this.#module === undefined) throw disposedError('the instance');
    return this.#module;
  }

  /** The large module, for codecs of model files, whose core is made by `instantiateCore('core', …)`. */
  get models(): ModelsModule {
    const { module } = this;
    if (!isModelsModule(module)) throw new Error('scalepoint: codecs need the large module');
    return module;
  }

  get disposed(): boolean {
    return this.#module === undefined;
  }

  /** Drops the instance. Wasm memory can only be freed as a whole. */
  dispose(): void {
    this.#module = undefined;
    this.#lastView = undefined;
  }

  /** True if the module restores blocks of a type of ggml, and makes them with that search. */
  hasBlocks(type: BlockTypeId, search: BlockSearchId): boolean {
    const key = type * 2 + search;
    const known = this.#blocks.get(key);
    if (known !== undefined) return known;
    const has = this.module.hasBlocks(type, search);
    this.#blocks.set(key, has);
    return has;
  }

  /** Allocates memory. Returns its address, or 0 if memory is full. */
  tryAllocate(bytes: number): number {
    return bytes < 2 ** 32 ? this.module.allocate(Math.max(bytes, 1)) : 0;
  }

  /** @throws ScalepointError `OUT_OF_MEMORY` */
  allocate(bytes: number): number {
    const address = this.tryAllocate(bytes);
    if (address === 0) throw outOfMemory(`${bytes} more bytes`);
    return address;
  }

  release(address: number): void {
    this.#module?.release(address);
  }

  /** Allocates `bytes`, calls f with their address, a multiple of 16, then frees them. */
  withMemory<T>(bytes: number, f: (address: number) => T): T {
    const address = this.allocate(bytes + 15);
    try {
      return f(align(address));
    } finally {
      this.release(address);
    }
  }

  /**
   * Makes room for a record of the door, writes it unless the core fills it, and returns its address, which is valid until `popRecord`. Records are popped in reverse order, also
   * after errors; `withRecord` does that.
   */
  pushRecord<T>(type: RecordType<T>, record: T): number;
  pushRecord(type: { readonly bytes: number }): number;
  pushRecord<T>(type: Pick<RecordType<T>, 'bytes'> & Partial<RecordType<T>>, record?: T): number {
    const address = this.#record;
    const end = address + type.bytes + (-type.bytes & 7);
    if (end > this.#recordsEnd) throw new Error('scalepoint: too many records are nested');
    this.#record = end;
    if (record !== undefined) type.write?.(this.module, address, record);
    return address;
  }

  /** Frees the memory of a record and of all records after it. */
  popRecord(address: number): void {
    this.#record = address;
  }

  /**
   * Calls f with the address of a record of the door, which is valid until f returns. Such calls may nest, ten deep and more.
   *
   * A record with a longer life goes into memory of the caller's: `LinearJobRecord.write(core.module, address, job)`, where address is a multiple
   * of 8 with LinearJobRecord.bytes of room. In calls on small arrays, write all fields in one literal: object spread takes some microseconds.
   */
  withRecord<T, R>(type: RecordType<T>, record: T, f: (address: number) => R): R {
    const address = this.pushRecord(type, record);
    try {
      return f(address);
    } finally {
      this.#record = address;
    }
  }

  /** A typed array over wasm memory, good until memory grows. */
  view(dtype: WasmDType, address: number, length: number): WasmView {
    const make: new (buffer: ArrayBufferLike, address: number, length: number) => WasmView = arrayTypes[dtype];
    return new make(this.module.HEAPU8.buffer, address, length);
  }

  /** Like view, but caches the last one: loops ask for the same view, and making one takes as long as copying 1 kB. */
  viewAgain(dtype: WasmDType, address: number, length: number): WasmView {
    let last = this.#lastView;
    if (
      last === undefined ||
      last.dtype !== dtype ||
      last.address !== address ||
      last.view.length !== length ||
      last.buffer !== this.module.HEAPU8.buffer
    ) {
      last = { dtype, address, buffer: this.module.HEAPU8.buffer, view: this.view(dtype, address, length) };
      this.#lastView = last;
    }
    return last.view;
  }

  /** All of wasm memory as elements of a type. */
  heap(dtype: WasmDType): WasmView {
    const { module } = this;
    switch (dtype) {
      case 'float32':
        return module.HEAPF32;
      case 'int8':
        return module.HEAP8;
      case 'uint8':
        return module.HEAPU8;
      case 'int16':
        return module.HEAP16;
      case 'uint16':
        return module.HEAPU16;
      case 'int32':
        return module.HEAP32;
    }
  }
}

/** Checks the status of a call whose arguments are right. Any status but kOk is a bug of this package. */
export function checkStatus(status: StatusId): void {
  if (status !== StatusId.ok) throw new Error(`scalepoint: the core refused checked arguments with status ${status}`);
}

/** Calls f for consecutive tiles of n elements. @param whole true: one tile holds all of them */
export function forEachTile(
  n: number,
  whole: boolean,
  f: (start: number, count: number) => void,
  size = stepSize,
): void {
  const step = whole ? n : size;
  for (let start = 0; start < n; start += step) f(start, Math.min(step, n - start));
}
