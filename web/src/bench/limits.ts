// The memory limit: wasm loops that move as many bytes as the operations of the library, without their arithmetic (limits.cpp).
import { limits as base64 } from './limits-wasm.mjs';

interface LimitExports {
  readonly memory: WebAssembly.Memory;
  limit_read(x: number, n: number): number;
  limit_four_to_one(x: number, codes: number, n: number): void;
  limit_one_to_four(codes: number, x: number, n: number): void;
  limit_divide(by: number, n: number): number;
}

/** The loops, with arrays of their own. */
export interface Limits {
  /** Allocates n floats and n codes, and fills them: systems provide memory only when it is written. */
  prepare(n: number): void;
  /** Reads n floats. */
  read(n: number): void;
  /** Reads n floats and writes n bytes, as quantizing does. */
  fourToOne(n: number): void;
  /** Reads n bytes and writes n floats, as dequantizing does. */
  oneToFour(n: number): void;
  /** Makes n exact float32 divisions. */
  divide(n: number): void;
}

/** Address at which the arrays begin. */
const start = 1 << 16;
const pageBytes = 1 << 16;

/** An instance of the loops. */
export async function makeLimits(): Promise<Limits> {
  const bytes = Uint8Array.from(atob(base64), (character) => character.charCodeAt(0));
  const { instance } = await WebAssembly.instantiate(bytes, {});
  const { memory, limit_read, limit_four_to_one, limit_one_to_four, limit_divide } =
    instance.exports as unknown as LimitExports;
  return {
    prepare(n) {
      const missing = start + 5 * n - memory.buffer.byteLength;
      if (missing > 0) memory.grow(Math.ceil(missing / pageBytes));
      new Float32Array(memory.buffer, start, n).fill(1.25);
      new Uint8Array(memory.buffer, start + 4 * n, n).fill(3);
    },
    read: (n) => void limit_read(start, n),
    fourToOne: (n) => limit_four_to_one(start, start + 4 * n, n),
    oneToFour: (n) => limit_one_to_four(start + 4 * n, start, n),
    divide: (n) => void limit_divide(1.0000001, n),
  };
}
