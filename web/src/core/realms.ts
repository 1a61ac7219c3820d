// Tests for types of values from any window or context. `instanceof` knows only the classes of its own window. The accessors below read
// internal slots of the engine, so that no code of the caller's runs.

const nameOf = Object.getOwnPropertyDescriptor(Object.getPrototypeOf(Int8Array.prototype), Symbol.toStringTag)?.get;
const lengthOf = Object.getOwnPropertyDescriptor(ArrayBuffer.prototype, 'byteLength')?.get;

/** Name of a typed array's type, such as 'Float32Array'; undefined for other values. */
export function typedArrayName(value: unknown): string | undefined {
  return nameOf?.call(value) as string | undefined;
}

/** The class of an object of the engine, such as `Response`; `Object` for others. */
export function tagOf(value: unknown): string {
  try {
    return Object.prototype.toString.call(value).slice(8, -1);
  } catch {
    // A value may have a getter of its tag that throws.
    return 'Object';
  }
}

/** True for an ArrayBuffer. */
export function isBuffer(value: unknown): value is ArrayBuffer {
  try {
    lengthOf?.call(value);
    return true;
  } catch {
    return false;
  }
}

/** True for a Uint8Array, such as Node's Buffer. */
export function isBytes(value: unknown): value is Uint8Array {
  return nameOf?.call(value) === 'Uint8Array';
}

/** True for a Float64Array. */
export function isDoubles(value: unknown): value is Float64Array {
  return nameOf?.call(value) === 'Float64Array';
}
