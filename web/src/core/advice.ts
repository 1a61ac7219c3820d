// Code to write in place of a wrong argument, found from the condition and the value alone. No code of the caller's runs but getters.
import { conditionsIn, type Expected } from './option-problem.js';
import { isBuffer, tagOf, typedArrayName } from './realms.js';

const quotedText = (text: string) => `'${text}'`;

const hasMethod = (value: object, name: string) => typeof (value as Record<string, unknown>)[name] === 'function';

/** True for memory with neither a type nor a length in elements. */
const isMemory = (value: unknown) => isBuffer(value) || tagOf(value) === 'SharedArrayBuffer';

const quantizedKinds: readonly unknown[] = ['linear', 'codebook', 'blocks'];

const looksQuantized = (value: object) =>
  quantizedKinds.includes((value as { readonly kind?: unknown }).kind) && 'data' in value;

/** Code for one of several names or numbers. */
function codeForValue(values: readonly unknown[], got: unknown): string | undefined {
  if (typeof got === 'string' && got !== '' && values.includes(Number(got))) return got;
  if (typeof got === 'bigint' || typeof got === 'number') {
    if (values.includes(Number(got))) return String(got);
    // A number of bits in place of a type.
    const named = values.find((value) => typeof value === 'string' && /\d+/.exec(value)?.[0] === String(got));
    return named === undefined ? undefined : quotedText(named as string);
  }
  if (typeof got === 'boolean') {
    const named = got ? 'on' : 'off';
    return values.includes(named) ? quotedText(named) : undefined;
  }
  // Options in place of the value of one of them.
  if (typeof got !== 'object' || got === null || Array.isArray(got)) return undefined;
  const member = Object.values(got).find((value) => typeof value === 'string' && values.includes(value));
  return member === undefined ? undefined : quotedText(member as string);
}

/** Code for a number. */
function codeForNumber(path: string, expected: Expected, got: unknown): string | undefined {
  if (typeof got === 'bigint') return `Number(${path})`;
  if (typeof got === 'string' && got.trim() !== '' && Number.isFinite(Number(got))) return String(Number(got));
  if (expected.kind === 'number' && typeof got === 'number' && expected.above !== undefined && got > 0 && got < 1) {
    // A share in place of a percentage.
    const percent = Number((got * 100).toPrecision(12));
    return percent > expected.above && percent <= (expected.max ?? Infinity) ? String(percent) : undefined;
  }
  // Rows in place of their elements.
  const [, array] = /^(.*)\[\d+\]$/.exec(path) ?? [];
  if (array === undefined) return undefined;
  if (ArrayBuffer.isView(got)) return `${array}.flatMap((row) => [...row])`;
  if (!Array.isArray(got)) return undefined;
  let depth = 1;
  for (let inner: unknown = got[0]; Array.isArray(inner); inner = inner[0]) depth++;
  return `${array}.flat(${depth > 1 ? depth : ''})`;
}

/** Code for an array of floats. */
function codeForFloats(path: string, got: unknown): string | undefined {
  const array = typedArrayName(got);
  if (array?.startsWith('Big')) return `Float32Array.from(${path}, Number)`;
  // Vectors of an index may be bits, or codes with ranges.
  if (path === 'vectors' && (array === 'Uint8Array' || array === 'Int8Array')) {
    return "{ metric: 'hamming' } for bits, { ranges } for codes, or Float32Array.from(vectors)";
  }
  // Bytes are numbers, or memory with floats in it.
  if (array === 'Uint8Array') return `Float32Array.from(${path}) or new Float32Array(Uint8Array.from(${path}).buffer)`;
  if (array !== undefined) return `Float32Array.from(${path})`;
  if (isMemory(got)) return `new Float32Array(${path})`;
  if (ArrayBuffer.isView(got)) return `new Float32Array(${path}.buffer, ${path}.byteOffset, ${path}.byteLength / 4)`;
  if (typeof got === 'string') {
    if (got.trimStart().startsWith('[')) return `JSON.parse(${path})`;
    return /^[-+\d.e,;\s]+$/i.test(got) ? `${path}.split(/[,;\\s]+/).map(Number)` : undefined;
  }
  if (typeof got === 'number') return `[${path}]`;
  if (typeof got !== 'object' || got === null) return undefined;
  if (looksQuantized(got)) return `sp.dequantize(${path})`;
  if (hasMethod(got, 'arrayBuffer')) return `new Float32Array(await ${path}.arrayBuffer())`;
  if (Array.isArray(got) && typeof got[0] === 'object') return `Float32Array.from(${path}.flat())`;
  const isListed = Symbol.iterator in got || typeof (got as { length?: unknown }).length === 'number';
  return isListed ? `Float32Array.from(${path})` : undefined;
}

/** Code for a quantized tensor. */
function codeForQuantized(path: string, got: unknown): string | undefined {
  const array = typedArrayName(got);
  if (array?.startsWith('Float')) return `sp.quantize(${path})`;
  if (Array.isArray(got)) {
    const [first] = got as unknown[];
    if (typeof first === 'number') return `sp.quantize(${path})`;
    return typeof first === 'object' && first !== null && looksQuantized(first) ? `${path}[0]` : undefined;
  }
  if (typeof got !== 'object' || got === null) return undefined;
  const isBare = array !== undefined || ('data' in got && ('scale' in got || 'scales' in got));
  if (isBare) return "{ kind: 'linear', dtype, shape, granularity, data, scale, zeroPoint }";
  return 'dims' in got || 'shape' in got ? `sp.quantize(${path})` : undefined;
}

/** Code for a typed array of one type. */
function codeForArray(path: string, type: string, got: unknown): string | undefined {
  if (isMemory(got)) return `new ${type}(${path})`;
  if (Array.isArray(got)) return `${type}.from(${path})`;
  const array = typedArrayName(got);
  if (/(^|\.)(out|data|scale|zeroPoint)$/.test(path)) {
    return array === undefined ? undefined : `new ${type}(${(got as Uint8Array).length})`;
  }
  if (array === 'Uint8Array' && type !== 'Float32Array') return `new ${type}(Uint8Array.from(${path}).buffer)`;
  return undefined;
}

/** Code for a file to read. */
function codeForFile(path: string, got: unknown): string | undefined {
  if (ArrayBuffer.isView(got)) return `new Uint8Array(${path}.buffer, ${path}.byteOffset, ${path}.byteLength)`;
  if (tagOf(got) === 'SharedArrayBuffer') return `new Uint8Array(${path})`;
  if (typeof got === 'number') return `Uint8Array.from(${path})`;
  if (typeof got !== 'object' || got === null) return undefined;
  if (tagOf(got) === 'Request') return `await fetch(${path})`;
  // The result of quantizeModel.
  if (hasMethod(got, 'bytes')) return `await ${path}.bytes()`;
  if (hasMethod(got, 'arrayBuffer')) return `await ${path}.arrayBuffer()`;
  return 'files' in got && tagOf(got.files) === 'FileList' ? `${path}.files` : undefined;
}

/** Code for a destination of a file. */
function codeForOutput(path: string, got: unknown): string | undefined {
  if (ArrayBuffer.isView(got) || isMemory(got)) return 'await result.bytes() without it';
  if (typeof got !== 'object' || got === null) return undefined;
  return hasMethod(got, 'write') && hasMethod(got, 'pipe') ? `Writable.toWeb(${path})` : undefined;
}

/** Code for a JSON object. */
function codeForObject(path: string, got: unknown): string | undefined {
  if (typeof got === 'string') {
    const isJson = got.trimStart().startsWith('{');
    return isJson ? `JSON.parse(${path})` : `JSON.parse(await readFile(${path}, 'utf8'))`;
  }
  return tagOf(got) === 'Map' ? `Object.fromEntries(${path})` : undefined;
}

/**
 * Code to write for a wrong argument.
 * @param path of the argument, which stands for it in the code
 * @returns undefined if the condition says enough
 */
export function codeFor(path: string, expected: Expected, got: unknown): string | undefined {
  if (tagOf(got) === 'Promise') return `await ${path}`;
  const conditions = conditionsIn(expected);
  const types = conditions.flatMap((one) => (one.kind === 'type' ? one.types : []));
  const values = conditions.flatMap((one) => (one.kind === 'oneOf' ? one.values : []));
  const value = values.length === 0 ? undefined : codeForValue(values, got);
  if (value !== undefined) return value;
  for (const keys of conditions.flatMap((one) => (one.kind === 'object' ? [one.keys] : []))) {
    // Two ends of a range, or a member's name.
    const isPair = Array.isArray(got) && got.length === 2 && got.every((one) => typeof one === 'number');
    if (isPair && keys.join() === 'min,max') return `{ min: ${got[0]}, max: ${got[1]} }`;
    if (keys.length === 1 && got === keys[0]) return `{ ${got} }`;
  }
  if (conditions.some(({ kind }) => kind === 'number')) return codeForNumber(path, expected, got);
  if (expected.kind === 'shape') {
    if (typeof got === 'number') return `[${got}]`;
    if (ArrayBuffer.isView(got)) return `[...${path}]`;
    const areTexts = Array.isArray(got) && got.every((one) => typeof one === 'bigint' || typeof one === 'string');
    return areTexts ? `${path}.map(Number)` : undefined;
  }
  if (expected.kind === 'quantized') return codeForQuantized(path, got);
  if (types.includes('Blob')) return codeForFile(path, got);
  if (types.includes('WritableStream')) return codeForOutput(path, got);
  if (types.includes('number[]') || types.includes('tensor of floats')) return codeForFloats(path, got);
  if (types.includes('AbortSignal')) return tagOf(got) === 'AbortController' ? 'controller.signal' : undefined;
  if (types.includes('array')) return typeof got === 'object' && got !== null ? `[${path}]` : undefined;
  if (types.includes('boolean')) return got === 'true' || got === 'false' ? got : undefined;
  const array = types.find((type) => /^(Float|Big|Ui|I)[a-zA-Z]*\d+Array$/.test(type));
  if (array !== undefined) return codeForArray(path, array, got);
  return types.some((type) => type.startsWith('object')) ? codeForObject(path, got) : undefined;
}
