/** Reads JSON of a folder, whose values may have any type. */
import { whyNoJson } from '../../formats/files/json.js';
import { badFolderFile } from './errors.js';

/** An object of a JSON file. */
export type Json = Readonly<Record<string, unknown>>;

/** True for objects other than arrays. */
export function isObject(value: unknown): value is Json {
  return typeof value === 'object' && value !== null && !Array.isArray(value);
}

/** Decodes text. @throws ScalepointError `BAD_FILE` for invalid UTF-8 */
export function decodeText(file: string, bytes: Uint8Array): string {
  try {
    return new TextDecoder('utf-8', { fatal: true }).decode(bytes);
  } catch {
    return badFolderFile(file, 'it is not UTF-8');
  }
}

/** Parses an object. @throws ScalepointError `BAD_FILE` */
export function parseObject(file: string, bytes: Uint8Array): Json {
  const value = parseJson(file, bytes);
  return isObject(value) ? value : badFolderFile(file, 'it holds no object');
}

/** Parses JSON. @throws ScalepointError `BAD_FILE` */
export function parseJson(file: string, bytes: Uint8Array): unknown {
  const text = decodeText(file, bytes);
  try {
    return JSON.parse(text) as unknown;
  } catch {
    return badFolderFile(file, `it is not JSON: ${whyNoJson(text) ?? 'nested too deeply'}`);
  }
}

/** An own property; inherited ones do not count. A null counts as missing, as in the converters of llama.cpp. */
export function member(object: Json | undefined, name: string): unknown {
  if (object === undefined || !Object.hasOwn(object, name)) return undefined;
  return object[name] ?? undefined;
}

/** A member that is an object, else undefined. */
export function objectMember(object: Json | undefined, name: string): Json | undefined {
  const value = member(object, name);
  return isObject(value) ? value : undefined;
}

/** A member that is an array, else an empty one. */
export function arrayMember(object: Json | undefined, name: string): readonly unknown[] {
  const value = member(object, name);
  return Array.isArray(value) ? value : [];
}
