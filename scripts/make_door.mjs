// Makes both sides of the door between C++ and TypeScript from the calls of cpp/bindings_arrays.cpp and cpp/bindings_models.cpp, with
// the records, enums and numbers of the headers that these include. The compiler reads them. To add a call, write a function in the
// bindings of its module; to add a value, a constant or a field, write it in its header.
//
//   node scripts/make_door.mjs      writes web/src/core/door.ts and build/wasm/door_exports_*.h; scripts/build.mjs does this, too

import { existsSync, mkdirSync, readFileSync, writeFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { Declarations } from './door/compiler.mjs';
import { Door } from './door/model.mjs';
import { exportsOf, typeScriptOf } from './door/write.mjs';

const root = fileURLToPath(new URL('..', import.meta.url));

/** Puts text into a file unless it is there already, so that watchers and later steps stay quiet. */
function write(/** @type {string} */ path, /** @type {string} */ text) {
  if (existsSync(path) && readFileSync(path, 'utf8') === text) return;
  mkdirSync(dirname(path), { recursive: true });
  writeFileSync(path, text);
}

/** The door that the sources describe. */
export const readDoor = () =>
  new Door(new Declarations(join(root, 'cpp'), ['bindings_arrays.cpp', 'bindings_models.cpp']));

export function makeDoor() {
  const door = readDoor();
  write(join(root, 'web/src/core/door.ts'), typeScriptOf(door));
  for (const part of /** @type {const} */ (['arrays', 'models'])) {
    write(join(root, `build/wasm/door_exports_${part}.h`), exportsOf(door, part));
  }
}

if (process.argv[1] === fileURLToPath(import.meta.url)) makeDoor();
