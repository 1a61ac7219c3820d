// Writes the notices of packages that the site holds parts of.

import { existsSync, readFileSync } from 'node:fs';

const folder = new URL('../../../node_modules/', import.meta.url);

/** A text of the folder of packages. @param {string} path */
const readText = (path) => readFileSync(new URL(path, folder), 'utf8').trim();

/** The MIT license, for a package that names it and comes without its text. @param {string} owner */
const mit = (owner) => `MIT License

Copyright (c) ${owner}

Permission is hereby granted, free of charge, to any person obtaining a copy of this software and associated documentation files (the
"Software"), to deal in the Software without restriction, including without limitation the rights to use, copy, modify, merge, publish,
distribute, sublicense, and/or sell copies of the Software, and to permit persons to whom the Software is furnished to do so, subject to the
following conditions:

The above copyright notice and this permission notice shall be included in all copies or substantial portions of the Software.

THE SOFTWARE IS PROVIDED "AS IS", WITHOUT WARRANTY OF ANY KIND, EXPRESS OR IMPLIED, INCLUDING BUT NOT LIMITED TO THE WARRANTIES OF
MERCHANTABILITY, FITNESS FOR A PARTICULAR PURPOSE AND NONINFRINGEMENT. IN NO EVENT SHALL THE AUTHORS OR COPYRIGHT HOLDERS BE LIABLE FOR ANY
CLAIM, DAMAGES OR OTHER LIABILITY, WHETHER IN AN ACTION OF CONTRACT, TORT OR OTHERWISE, ARISING FROM, OUT OF OR IN CONNECTION WITH THE SOFTWARE
OR THE USE OR OTHER DEALINGS IN THE SOFTWARE.
`;

/** The packages, with the owner for those without a license file, and where their own notices are. */
const packages = [
  {
    name: 'onnxruntime-web',
    use: 'runs ONNX models on the page Your model',
    owner: 'Microsoft Corporation',
    /** @param {string} version */
    more: (version) =>
      `It contains parts of other projects: https://github.com/microsoft/onnxruntime/blob/v${version}/ThirdPartyNotices.txt`,
  },
  {
    name: '@huggingface/tokenizers',
    use: 'turns texts into tokens on the page Your model',
    owner: '',
    more: () => '',
  },
  {
    name: '@huggingface/hub',
    use: 'pushes results to the hub on the page Your model',
    owner: '',
    more: () =>
      ['hash-wasm', 'lz4js']
        .map((part) => [`It contains ${part}:`, readText(`@huggingface/hub/src/vendor/${part}/LICENSE`)].join('\n\n'))
        .join('\n\n'),
  },
  ...['@huggingface/xetchunk-wasm', '@huggingface/blake3-jit', 'gearhash-jit'].map((name) => ({
    ...{ name, use: 'helps @huggingface/hub to cut files into chunks', owner: `the authors of ${name}` },
    more: () => '',
  })),
  { name: 'lit-html', use: 'draws the pages from templates', owner: '', more: () => '' },
];

/** The text of the file. */
export function noticesText() {
  const parts = packages.map(({ name, use, owner, more }) => {
    const { version, license } = JSON.parse(readText(`${name}/package.json`));
    const hasText = existsSync(new URL(`${name}/LICENSE`, folder));
    if (!hasText && license !== 'MIT') throw new Error(`${name} has no text of its license, ${license}`);
    const text = hasText ? readText(`${name}/LICENSE`) : mit(owner).trim();
    return [`${name} ${version}, which ${use}. License: ${license}.`, more(version), text].filter(Boolean).join('\n\n');
  });
  const rule = `\n\n${'-'.repeat(80)}\n\n`;
  return `This site holds these packages of others:${rule}${parts.join(rule)}\n`;
}
