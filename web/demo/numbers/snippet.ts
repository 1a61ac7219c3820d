import type { DataSet } from './data.js';
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

/** Code that does with the npm package what the page shows. The visitor's numbers are called `weights` in it. */
export function snippet(data: DataSet, settings: Settings): string {
  const { origin } = data;
  const fromFile = origin.kind === 'file';
  const { shape, ...options } = quantizeOptions(settings, data.shape);
  const members = Object.entries(options).map(([name, value]) => `${name}: ${literal(value)}`);
  if (fromFile && origin.from !== undefined) members.unshift(`from: ${literal(origin.from)}`);
  if (fromFile) members.unshift('shape');
  else if (shape !== undefined && shape.length > 1) members.unshift(`shape: ${literal(shape)}`);

  const lines = ["import { load } from 'scalepoint';"];
  if (fromFile) lines.push("import { readTensor } from 'scalepoint/model';");
  lines.push('', 'const sp = await load();');
  if (fromFile) lines.push(`const { data: weights, shape } = await readTensor(file, ${literal(origin.tensor)});`);
  else lines.push(`const weights = new Float32Array(${data.values.length}); // your numbers`);
  if (settings.cover === 100 || settings.range !== 'min-max')
    lines.push(`const q = sp.quantize(weights, ${block(members)});`);
  else {
    const choose = members.filter((member) => !member.startsWith('rounding:'));
    const rounding = options.rounding === undefined ? '' : `rounding: ${literal(options.rounding)}, `;
    lines.push(
      `const options = ${block(choose)};`,
      `// Finer steps around the same zero point: the levels cover ${settings.cover} % of the range.`,
      'const { scale, zeroPoint } = sp.chooseQuantizationParameters(weights, options);',
      `const range = { scale: scale.map((step) => step * ${settings.cover / 100}), zeroPoint };`,
      `const q = sp.quantize(weights, { ...options, ${rounding}range });`,
    );
  }
  lines.push('', 'const bytes = sp.pack(q); // the codes, bit by bit', 'const restored = sp.dequantize(q);');
  const from = fromFile && origin.from !== undefined ? `, { from: ${literal(origin.from)} }` : '';
  lines.push(`const { sqnrDb } = sp.compare(weights, q${from});`);
  return `${lines.join('\n')}\n`;
}
