// Makes the declarations that tsc wrote fit every supported version of TypeScript, and projects without the DOM library:
//   Uint8Array<ArrayBuffer>, AbortSignal, Blob, ...    are imported from core/platform.d.ts, which takes them from the project if it has them.
//
// Deletes those that the entries of the package do not lead to.

import { readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { dirname, join, relative, sep } from 'node:path';
import { root } from './steps.mjs';

const platform = 'core/platform.d.ts';

/** The declarations that the entries in package.json lead to, as paths. @param {string} folder */
function publicTypes(folder) {
  const { types, exports } = JSON.parse(readFileSync(join(root, 'package.json'), 'utf8'));
  const open = [types, ...JSON.stringify(exports).matchAll(/"types":"([^"]+)"/g)].map((entry) =>
    join(folder, relative('dist', typeof entry === 'string' ? entry : entry[1])),
  );
  const found = new Set();
  for (let path = open.pop(); path !== undefined; path = open.pop()) {
    if (found.has(path)) continue;
    found.add(path);
    const named = readFileSync(path, 'utf8').matchAll(/\b(?:from|import)\s*\(?\s*['"](\.[^'"]+)\.(m?)js['"]/g);
    for (const [, name, m] of named) open.push(join(dirname(path), `${name}.d.${m}ts`));
  }
  return found;
}

/** @param {string} folder where the declarations are */
export function finishTypes(folder) {
  const kept = publicTypes(folder);
  const names = [...readFileSync(join(folder, platform), 'utf8').matchAll(/^export type (\w+)/gm)].map(
    ([, name]) => name,
  );
  const paths = readdirSync(folder, { recursive: true, encoding: 'utf8' });
  for (const path of paths.filter((name) => /\.d\.m?ts$/.test(name) && name.split(sep).join('/') !== platform)) {
    if (!kept.has(join(folder, path))) {
      rmSync(join(folder, path));
      continue;
    }
    const text = readFileSync(join(folder, path), 'utf8')
      .replace(/\b(\w+Array)<ArrayBufferLike>/g, '$1')
      .replace(/\bWebAssembly\.(Module|Instance|Imports)\b/g, 'WebAssembly$1');
    // Comments speak of these names, too.
    const code = text.replace(/\/\*[\s\S]*?\*\/|\/\/.*$/gm, '').replace(/'[^'\n]*'/g, "''");
    // Only arrays with a type argument need those of the platform.
    const isUsed = (name) =>
      new RegExp(`(?<![\\w.'])${name}\\b${name.endsWith('Array') ? '<' : '(?!\\s*[?:(])'}`).test(code);
    const used = names.filter(isUsed);
    const from = relative(dirname(path), platform)
      .split(sep)
      .join('/')
      .replace(/\.d\.ts$/, '.js');
    const line = `import type { ${used.join(', ')} } from '${from.startsWith('.') ? from : `./${from}`}';\n`;
    // References come before all imports.
    const [head = ''] = /^(?:\/\/\/.*\n)*/.exec(text) ?? [];
    writeFileSync(join(folder, path), used.length === 0 ? text : head + line + text.slice(head.length));
  }
}
