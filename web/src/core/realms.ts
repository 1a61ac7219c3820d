// What a value is, whichever window or context made it. There, `instanceof` knows only the classes of its own. The accessors below read what
// the engine itself keeps with a value, so no code of the caller's runs.

const nameOf = Object.getOwnPropertyDescriptor(Object.getPrototypeOf(Int8Array.prototype), Symbol.toStringTag)?.get;
const lengthOf = Object.getOwnPropertyDescriptor(ArrayBuffer.prototype, 'byteLength')?.get;

/** 'Float32Array' and so on; undefined for anything that is no typed array. */
export function typedArrayName(value: unknown): string | undefined {
  return nameOf?.call(value) as string | undefined;
}

/** Whether it is an ArrayBuffer. */
export function isBuffer(value: unknown): value is ArrayBuffer {
  try {
    lengthOf?.call(value);
    return true;
  } catch {
    return false;
  }
}

/** Whether it is a Uint8Array; Node's Buffer is one. */
export function isBytes(value: unknown): value is Uint8Array {
  return typedArrayName(value) === 'Uint8Array';
}

/** Whether it is a Float64Array. */
export function isDoubles(value: unknown): value is Float64Array {
  return typedArrayName(value) === 'Float64Array';
}
