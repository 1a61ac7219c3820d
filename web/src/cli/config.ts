/** config.json: what loaders read to know how a model's integers are to be understood. */
import { randomUUID } from 'node:crypto';
import { open, stat } from 'node:fs/promises';
import { basename, dirname, join } from 'node:path';
import { ioError, quoted } from '../files/bytes.js';
import { pathSink } from '../files/sinks.js';
import { mergeConfig, ScalepointError } from '../model.js';

/** A config.json is a few kilobytes; a file beyond this is something else. */
const mostBytes = 16 * 2 ** 20;

/** The object of a config.json, and how to print it again. */
export interface Config {
  /** Its numbers are strings, see `readConfig`. */
  readonly value: Readonly<Record<string, unknown>>;
  /** Puts the numbers back. */
  print(value: unknown): string;
}

export function printConfig(value: unknown): string {
  return `${JSON.stringify(value, null, 2)}\n`;
}

/** Reads a whole file. @throws ScalepointError `IO` or `BAD_FILE` */
async function readText(path: string): Promise<string> {
  let bytes: Buffer;
  try {
    const file = await open(path);
    try {
      const { size } = await file.stat();
      if (size > mostBytes) throw new ScalepointError('BAD_FILE', `${size} bytes are too many for a config.json`);
      bytes = await file.readFile();
    } finally {
      await file.close();
    }
  } catch (cause) {
    throw cause instanceof ScalepointError ? cause : ioError(`cannot read ${quoted(path)}`, cause);
  }
  return bytes.toString('utf8').replace(/^\u{feff}/u, '');
}

/**
 * Reads a config.json. Its numbers are carried along as they are spelled: Python tells 1.0 from 1, and integers can be larger than
 * JavaScript's.
 * @throws ScalepointError `IO`, or `BAD_FILE` if it is no JSON object or tells of another quantization
 */
export async function readConfig(path: string): Promise<Config> {
  const text = await readText(path);
  // Begins the strings that stand for numbers, and no other: nobody can know it before.
  const mark = `number ${randomUUID()} `;
  let value: unknown;
  try {
    JSON.parse(text);
    const marked = text.replace(/"(?:[^"\\]|\\.)*"|-?\d[\d.eE+-]*/g, (token) => {
      return token.startsWith('"') ? token : `"${mark}${token}"`;
    });
    value = JSON.parse(marked);
  } catch (cause) {
    const why = cause instanceof Error ? cause.message : cause;
    throw new ScalepointError('BAD_FILE', `it is no JSON: ${why}`, { cause });
  }
  if (typeof value !== 'object' || value === null || Array.isArray(value)) {
    throw new ScalepointError('BAD_FILE', 'expected a JSON object');
  }
  mergeConfig(value, {});
  const pattern = new RegExp(`"${mark}([^"]*)"`, 'g');
  return {
    value: value as Record<string, unknown>,
    print: (merged) => printConfig(merged).replace(pattern, '$1'),
  };
}

/** Where the configuration goes: loaders look for config.json beside model.safetensors, other names keep apart what is theirs. */
export function configPath(output: string): string {
  const name = basename(output);
  const stem = name.replace(/\.safetensors$/i, '');
  return join(dirname(output), name === 'model.safetensors' ? 'config.json' : `${stem}.config.json`);
}

/** Looks before the work begins whether a file stands in the way. @throws ScalepointError `EXISTS` or `IO` */
export async function checkFree(path: string, overwrite: boolean): Promise<void> {
  // Whatever else is wrong shows when it is written.
  const status = await stat(path).catch(() => undefined);
  if (status === undefined) return;
  if (!status.isFile()) throw new ScalepointError('IO', `cannot write ${quoted(path)}: it is no regular file`);
  if (!overwrite) throw new ScalepointError('EXISTS', `${quoted(path)} exists already`);
}

/** Writes a small file; it appears whole or not at all. @throws ScalepointError `EXISTS` or `IO` */
export async function writeText(path: string, text: string, overwrite: boolean): Promise<void> {
  const sink = await pathSink(path, overwrite);
  try {
    await sink.write(0, new TextEncoder().encode(text));
    await sink.finish();
  } finally {
    await sink.discard(undefined);
  }
}
