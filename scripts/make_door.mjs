// Makes both sides of the door between C++ and TypeScript from one description: cpp/bindings.cpp, with the records of cpp/door.h and
// the enums and numbers of the headers that it includes. To add a call, write a function in bindings.cpp; to add a value, a constant
// or a field, write it in its header. Nothing else has to know.
//
//   node scripts/make_door.mjs      writes web/src/core/door.ts and build/wasm/door_exports.h; scripts/build.mjs does this, too

import { existsSync, mkdirSync, readFileSync, writeFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { Door } from './door/model.mjs';
import { Declarations, readCalls } from './door/read.mjs';
import { exportsOf, typeScriptOf } from './door/write.mjs';

const root = fileURLToPath(new URL('..', import.meta.url));

/** Puts text into a file unless it is there already, so that watchers and later steps stay quiet. */
function write(/** @type {string} */ path, /** @type {string} */ text) {
  if (existsSync(path) && readFileSync(path, 'utf8') === text) return;
  mkdirSync(dirname(path), { recursive: true });
  writeFileSync(path, text);
}

/**
 * Reads a header after all that it includes, each once, except headers of loops.
 * @param {string} name in cpp/
 * @param {Declarations} declarations
 */
function readHeader(name, declarations, read = new Set()) {
  if (read.has(name) || name.endsWith('_loops.h')) return;
  read.add(name);
  const source = readFileSync(join(root, 'cpp', name), 'utf8');
  for (const [, included] of source.matchAll(/^#include "([^"]+)"$/gm)) {
    readHeader(String(included), declarations, read);
  }
  declarations.read(`cpp/${name}`, source);
}

/** The door that the sources describe. */
export function readDoor() {
  const declarations = new Declarations();
  readHeader('door.h', declarations);
  const path = 'cpp/bindings.cpp';
  return new Door(declarations, readCalls(path, readFileSync(join(root, path), 'utf8')));
}

export function makeDoor() {
  const door = readDoor();
  write(join(root, 'web/src/core/door.ts'), typeScriptOf(door));
  write(join(root, 'build/wasm/door_exports.h'), exportsOf(door));
}

if (process.argv[1] === fileURLToPath(import.meta.url)) makeDoor();
