import { blockLength } from './codes.js';
import { countOf, type DataFacts } from './data.js';
import { quantizeOptions } from './evaluate.js';
import type { Settings } from './settings.js';

/** A value as a JavaScript literal: a plain object, an array, a string, a number or a boolean. */
function literal(value: unknown): string {
  if (typeof value === 'string') return `'${value.replace(/[\\']/g, '\\$&').replace(/\n/g, '\\n')}'`;
  if (Array.isArray(value)) return `[${value.map(literal).join(', ')}]`;
  if (typeof value === 'object' && value !== null) {
    const members = Object.entries(value).map(([name, member]) => `${name}: ${literal(member)}`);
    return `{ ${members.join(', ')} }`;
  }
  return String(value);
}

/** An object literal with one member a line; `{}` if it is empty. */
function block(members: readonly string[]): string {
  return members.length === 0 ? '{}' : `{\n${members.map((member) => `  ${member},\n`).join('')}}`;
}

/** The call that quantizes to codes other than plain integers. */
function unevenCall({ origin, shape }: DataFacts, settings: Settings): string {
  const from = origin.kind === 'file' && origin.from !== undefined ? [`from: ${literal(origin.from)}`] : [];
  if (settings.codes === 'blocks') {
    const rows = origin.kind === 'file' ? 'shape' : `shape: ${literal(shape)}`;
    return `const q = sp.quantizeBlocks(weights, '${settings.block}', { ${[rows, ...from].join(', ')} });`;
  }
  const blockSize = `blockSize: ${blockLength(settings, shape)}`;
  if (settings.codes === 'nf4') {
    return `const q = sp.quantizeCodebook(weights, { ${["codebook: 'nf4'", blockSize, ...from].join(', ')} });`;
  }
  return [
    '// The finite values of float8 (E4M3), with a scale for each block.',
    "const all = sp.castToFloat32(Uint8Array.from({ length: 256 }, (_, bits) => bits), 'float8e4m3fn');",
    'const codebook = all.filter((x) => Number.isFinite(x) && !Object.is(x, -0)).sort().map((x) => x / 448);',
    `const q = sp.quantizeCodebook(weights, { ${['codebook', blockSize, ...from].join(', ')} });`,
  ].join('\n');
}

/** The call that quantizes to integers, and before it the choice of the range if the levels cover less than that. */
function integerCall(data: DataFacts, settings: Settings): string[] {
  const { origin } = data;
  const fromFile = origin.kind === 'file';
  const { shape, ...options } = quantizeOptions(settings, data.shape);
  const members = Object.entries(options).map(([name, value]) => `${name}: ${literal(value)}`);
  if (fromFile && origin.from !== undefined) members.unshift(`from: ${literal(origin.from)}`);
  if (fromFile) members.unshift('shape');
  else if (shape !== undefined && shape.length > 1) members.unshift(`shape: ${literal(shape)}`);
  if (settings.cover === 100 || settings.range !== 'min-max')
    return [`const q = sp.quantize(weights, ${block(members)});`];
  const choose = members.filter((member) => !member.startsWith('rounding:'));
  const rounding = options.rounding === undefined ? '' : `rounding: ${literal(options.rounding)}, `;
  return [
    `const options = ${block(choose)};`,
    `// Finer steps around the same zero point: the levels cover ${settings.cover} % of the range.`,
    'const { scale, zeroPoint } = sp.chooseQuantizationParameters(weights, options);',
    `const range = { scale: scale.map((step) => step * ${settings.cover / 100}), zeroPoint };`,
    `const q = sp.quantize(weights, { ...options, ${rounding}range });`,
  ];
}

/** Code that reproduces the page with the npm package. The visitor's numbers are called `weights` in it. */
export function snippet(data: DataFacts, settings: Settings): string {
  const { origin } = data;
  const fromFile = origin.kind === 'file';
  const lines = ["import { load } from 'scalepoint';"];
  if (fromFile) lines.push("import { readTensor } from 'scalepoint/model';");
  const options = settings.codes === 'blocks' ? '{ blocks: true }' : '';
  lines.push('', `const sp = await load(${options});`);
  if (fromFile) lines.push(`const { data: weights, shape } = await readTensor(file, ${literal(origin.tensor)});`);
  else lines.push(`const weights = new Float32Array(${countOf(data)}); // your numbers`);
  if (settings.codes === 'integers') lines.push(...integerCall(data, settings));
  else lines.push(unevenCall(data, settings));
  lines.push(
    '',
    settings.codes === 'blocks'
      ? 'const bytes = q.data; // blocks with their scales'
      : 'const bytes = sp.pack(q); // the codes, bit by bit',
    'const restored = sp.dequantize(q);',
  );
  const from = fromFile && origin.from !== undefined ? `, { from: ${literal(origin.from)} }` : '';
  lines.push(`const { sqnrDb } = sp.compare(weights, q${from});`);
  return `${lines.join('\n')}\n`;
}
