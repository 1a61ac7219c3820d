/** The command `inspect`. */

import { inspectModel, type ModelInfo, type ModelTensor } from '../model.js';
import { type FormatInfo, formats, type MetadataValue } from '../tooling.js';
import { inspectFlags } from './flags.js';
import { withInput } from './input.js';
import { makeCommand, positionalFiles } from './parse.js';
import { about, effort, peakBytes, printJson } from './process.js';
import {
  countText,
  formatBytes,
  formatShape,
  left,
  nameText,
  painter,
  printable,
  printLines,
  right,
  table,
  terminalColumns,
} from './text.js';
import { exampleFile, exampleFormat } from './usage.js';

const countElements = ({ shape }: ModelTensor) => shape.reduce((product, n) => product * n, 1);

/** Compares names as people count: layer 2 comes before layer 10. */
const { compare: byNumber } = new Intl.Collator('en', { numeric: true });

/** The orders of tensors. Equal tensors stay in the order of the file. */
const orders = {
  file: undefined,
  name: (a, b) => byNumber(a.name, b.name),
  size: (a, b) => b.bytes - a.bytes,
  elements: (a, b) => countElements(b) - countElements(a),
  dtype: (a, b) => (a.dtype < b.dtype ? -1 : Number(a.dtype > b.dtype)),
} as const satisfies Record<string, ((a: ModelTensor, b: ModelTensor) => number) | undefined>;

const sumTensors = (tensors: readonly ModelTensor[]) => ({
  elements: tensors.reduce((sum, tensor) => sum + countElements(tensor), 0),
  bytes: tensors.reduce((sum, { bytes }) => sum + bytes, 0),
});

/** Lists the content of a file. */
export const inspect = makeCommand({
  about: 'list tensors and metadata',
  line: () => 'inspect FILE',
  usage: ['inspect FILE [--json]'],
  text: () =>
    'Lists the tensors of a model with name, dtype, shape and size, and then its metadata. Long values are cut short. Reads headers only.',
  flags: () => inspectFlags,
  examples: () => [
    ...formats.flatMap(({ extensions }) => extensions.map((one) => `inspect ${exampleFile({ extensions: [one] })}`)),
    `inspect ${exampleFormat().file} --filter 'attn|mlp' --sort size`,
    `inspect ${exampleFormat().file} --json | jq '.tensors[].name'`,
  ],
  async carryOut({ values, positionals }) {
    const [file] = positionalFiles(positionals, ['FILE'], 'inspect');
    const { sort = 'file', filter } = values;
    return withInput(file, async ({ name, file: opened }) => {
      const info = await about(name, () => inspectModel(opened));
      const wanted = info.tensors.filter((tensor) => filter?.test(tensor.name) ?? true);
      const order = orders[sort];
      const tensors = order === undefined ? wanted : wanted.sort(order);
      const { elements, bytes } = sumTensors(info.tensors);
      if (values.json) {
        const totals = { elements, bitsPerWeight: elements === 0 ? 0 : (8 * bytes) / elements };
        printJson({ file: name, ...info, tensors, totals, peakBytes: peakBytes() });
        return 0;
      }
      const lines = inspectText(name, info, tensors, elements);
      if (filter !== undefined) {
        const found = sumTensors(tensors);
        const sums = [countText(found.elements, describedFormat(info).unit), formatBytes(found.bytes)].join(', ');
        lines.push(
          '',
          `${tensors.length.toLocaleString('en')} of ${countText(info.tensors.length, 'tensor')} match: ${sums}`,
        );
      }
      if (values.verbose) lines.push('', effort());
      printLines(lines);
      return 0;
    });
  },
});

/** The description of a model's format. */
function describedFormat({ format }: ModelInfo): FormatInfo {
  return formats.find(({ name }) => name === format) as FormatInfo;
}

/** A value of the metadata on one line. */
function metadataText(value: MetadataValue): string {
  if (typeof value === 'number') {
    // As few digits as identify it among float32 numbers, since most fractions in metadata are float32.
    for (let digits = 1; digits <= 9 && !Number.isInteger(value); digits++) {
      const short = Number(value.toPrecision(digits));
      if (Math.fround(short) === value) return String(short);
    }
    return String(value);
  }
  if (typeof value !== 'object') return String(value);
  // In lists, strings need quotes to show where they end.
  const quoted = (item: MetadataValue) => (typeof item === 'string' ? JSON.stringify(item) : metadataText(item));
  if (!('elementType' in value)) return `[${value.map(quoted).join(', ')}]`;
  const { elementType, length, first } = value;
  return `${length.toLocaleString('en')} × ${elementType} [${first.map(quoted).join(', ')}, …]`;
}

function inspectText(file: string, info: ModelInfo, tensors: readonly ModelTensor[], elements: number): string[] {
  const { format: name, bytes, files, metadata, conversion } = info;
  const paint = painter(process.stdout);
  // Summarize the file, and state facts of its format.
  const format = describedFormat(info);
  const summary = [
    name,
    ...(files.length > 1 ? [countText(files.length, 'file')] : []),
    countText(info.tensors.length, 'tensor'),
    countText(elements, format.unit),
    formatBytes(bytes),
  ];
  const target = formats.find((known) => known.name === conversion?.format);
  const facts = [
    ...(format.facts?.({ tensors: info.tensors, metadata }) ?? []),
    ...(conversion === undefined ? [] : [`${conversion.architecture}, which can become ${target?.label}`]),
  ];
  const lines = [
    `${paint('bold', printable(file))}: ${summary.join(', ')}`,
    ...(facts.length === 0 ? [] : [facts.map(printable).join(', ')]),
  ];
  if (tensors.length > 0) {
    const rows = tensors.map(({ name, dtype, shape, bytes: size }) => ({
      cells: [nameText(name), dtype, formatShape(shape), formatBytes(size)],
    }));
    lines.push('');
    for (const line of table([...left('tensor', 'dtype', 'shape'), ...right('size')], rows)) lines.push(line);
  }
  const keys = Object.keys(metadata);
  if (keys.length > 0) {
    lines.push('', paint('bold', 'metadata'));
    for (const key of keys) {
      const line = `  ${printable(key)}: ${printable(metadataText(metadata[key] as MetadataValue).slice(0, 1000))}`;
      // Some programs store pages of settings here. --json prints all of it.
      const most = Math.min(terminalColumns(process.stdout), 1000);
      lines.push(line.length > most ? `${line.slice(0, most - 1)}…` : line);
    }
  }
  return lines;
}
