// llama.cpp's shared libraries, from the packages in tests/llama (Node only). They are there for Linux on x64 alone.
import { mkdtempSync, rmSync } from 'node:fs';
import { createRequire } from 'node:module';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { afterAll, beforeEach } from 'vitest';

/** The part of koffi that tests use. */
interface Koffi {
  load(path: string): { func(name: string, result?: unknown, parameters?: readonly unknown[]): unknown };
  struct(name: string, fields: Record<string, unknown>): unknown;
  pointer(type: unknown): unknown;
  proto(signature: string): unknown;
  register(call: (...values: never[]) => void, type: unknown): unknown;
}

function findNative() {
  const { resolve } = createRequire(new URL('../../llama/package.json', import.meta.url));
  try {
    const entry = resolve('@node-llama-cpp/linux-x64');
    const koffi = createRequire(entry)(resolve('koffi')) as Koffi;
    return { koffi, folder: join(dirname(entry), '../bins/linux-x64') };
  } catch {
    return undefined;
  }
}

const found = findNative();

/** koffi and the folder of the libraries; only tests that `needNative` may ask. */
export function native(): NonNullable<typeof found> {
  if (found === undefined) throw new Error('llama.cpp is not installed');
  return found;
}

/**
 * A name of a struct or a function's type that no other file of tests in this process has. koffi looks pointers up by the names of their
 * types, and may give the same name to two types that have none.
 */
export const ownName = (name: string) => `${name}_${crypto.randomUUID().replaceAll('-', '')}`;

let ownFolder: string | undefined;

/** A folder for files of the libraries. It is there until the tests of the file end, which `needNative`. */
export function nativeFolder(): string {
  ownFolder ??= mkdtempSync(join(tmpdir(), 'scalepoint-llama-'));
  return ownFolder;
}

/** Skips the tests of a file where llama.cpp's libraries are not installed. */
export function needNative(): void {
  afterAll(() => {
    if (ownFolder !== undefined) rmSync(ownFolder, { recursive: true });
    ownFolder = undefined;
  });
  beforeEach(({ skip }) => {
    if (found === undefined)
      skip('llama.cpp is not installed: npm ci --prefix tests/llama, which works on Linux on x64 alone');
  });
}

/** Calls `make` once, at the first need. */
export function once<T>(make: () => T): () => T {
  let made: { value: T } | undefined;
  return () => {
    made ??= { value: make() };
    return made.value;
  };
}

/** Messages of llama.cpp since the last look, with their levels. The library has one function for them, which all files of tests share. */
let messages: { readonly level: number; readonly text: string }[] | undefined;

/** Collects what llama.cpp says. @param llama the loaded library */
export function keepLog(llama: ReturnType<Koffi['load']>): void {
  if (messages !== undefined) return;
  messages = [];
  const { koffi } = native();
  const Log = koffi.pointer(koffi.proto(`void ${ownName('log')}(int level, const char *text, void *data)`));
  const setLog = llama.func('llama_log_set', 'void', [Log, 'void *']) as (call: unknown, data: null) => void;
  setLog(
    koffi.register((level: number, text: string) => void messages?.push({ level, text }), Log),
    null,
  );
}

/** Takes the messages from a level on: 3 is a warning, 4 an error, and 5 continues the message before it. */
export function takeLog(least: 3 | 4): string {
  const taken = messages?.splice(0) ?? [];
  return taken
    .filter(({ level }) => level >= least)
    .map(({ text }) => text)
    .join('');
}
