/** The command `inspect`. */

import { inspectModel, type ModelInfo, type ModelTensor } from '../model.js';
import { type FormatInfo, formats, type MetadataValue, NamePattern } from '../tooling.js';
import { inspectFlags } from './flags.js';
import { withInput } from './input.js';
import { choiceOf, filesOf, parseArguments } from './parse.js';
import { about, effort, peakBytes, printJson } from './process.js';
import {
  columnsOf,
  counted,
  formatBytes,
  formatShape,
  nameText,
  painter,
  printable,
  printLines,
  type TableColumn,
  table,
} from './text.js';
import { inspectUsage } from './usage.js';
import { asUsage } from './wording.js';

/** Lists the content of a file. Returns the exit code. */
export async function inspect(args: string[]): Promise<number> {
  const { values, positionals } = parseArguments(args, inspectFlags);
  if (values.help) {
    process.stdout.write(inspectUsage());
    return 0;
  }
  const [file] = filesOf(positionals, ['FILE'], 'inspect') as [string];
  const order = orders[choiceOf('sort', values.sort, inspectFlags.sort.choices) ?? 'file'];
  const isWanted = filterOf(values.filter);
  return withInput(file, async (input) => {
    const info = await about(input.name, () => inspectModel(input.file));
    const tensors = info.tensors.filter(isWanted);
    show(input.name, info, order === undefined ? tensors : tensors.sort(order), values);
    return 0;
  });
}

const elementsOf = ({ shape }: ModelTensor) => shape.reduce((product, n) => product * n, 1);
const inOrder = (a: string, b: string) => (a < b ? -1 : Number(a > b));
/** Compares names as people count: layer 2 comes before layer 10. */
const { compare: byNumber } = new Intl.Collator('en', { numeric: true });

/** The orders of tensors. Equal tensors stay in the order of the file. */
const orders: Readonly<
  Record<(typeof inspectFlags.sort.choices)[number], ((a: ModelTensor, b: ModelTensor) => number) | undefined>
> = {
  file: undefined,
  name: (a, b) => byNumber(a.name, b.name),
  size: (a, b) => b.bytes - a.bytes,
  elements: (a, b) => elementsOf(b) - elementsOf(a),
  dtype: (a, b) => inOrder(a.dtype, b.dtype),
};

/** True for the tensors that --filter selects. @throws UsageError */
function filterOf(text: string | undefined): (tensor: ModelTensor) => boolean {
  if (text === undefined) return () => true;
  try {
    const pattern = new NamePattern(text, '--filter');
    return ({ name }) => pattern.test(name);
  } catch (error) {
    throw asUsage(error, {});
  }
}

const totalsOf = (tensors: readonly ModelTensor[]) => ({
  elements: tensors.reduce((sum, tensor) => sum + elementsOf(tensor), 0),
  bytes: tensors.reduce((sum, { bytes }) => sum + bytes, 0),
});

function show(
  file: string,
  info: ModelInfo,
  tensors: readonly ModelTensor[],
  values: { readonly json?: boolean; readonly verbose?: boolean; readonly filter?: string },
): void {
  const { elements, bytes } = totalsOf(info.tensors);
  if (values.json) {
    const totals = { elements, bitsPerWeight: elements === 0 ? 0 : (8 * bytes) / elements };
    printJson({ file, ...info, tensors, totals, peakBytes: peakBytes() });
    return;
  }
  const lines = inspectText(file, info, tensors, elements);
  if (values.filter !== undefined) {
    const found = totalsOf(tensors);
    const unit = formatOf(info).unit;
    const sums = [counted(found.elements, unit), formatBytes(found.bytes)].join(', ');
    lines.push(
      '',
      `${tensors.length.toLocaleString('en')} of ${counted(info.tensors.length, 'tensor')} match: ${sums}`,
    );
  }
  if (values.verbose) lines.push('', effort());
  printLines(lines);
}

/** The description of a model's format. */
function formatOf({ format }: ModelInfo): FormatInfo {
  return formats().find(({ name }) => name === format) as FormatInfo;
}

/** A number with as few digits as identify it among float32 numbers, since most fractions in metadata are float32. */
function numberText(value: number): string {
  if (Number.isInteger(value)) return String(value);
  for (let digits = 1; digits <= 9; digits++) {
    const short = Number(value.toPrecision(digits));
    if (Math.fround(short) === value) return String(short);
  }
  return String(value);
}

/** A value of the metadata on one line. */
function valueText(value: MetadataValue): string {
  if (typeof value === 'number') return numberText(value);
  if (typeof value !== 'object') return String(value);
  // In lists, strings need quotes to show where they end.
  const quoted = (item: MetadataValue) => (typeof item === 'string' ? JSON.stringify(item) : valueText(item));
  if (!('elementType' in value)) return `[${value.map(quoted).join(', ')}]`;
  const { elementType, length, first } = value;
  return `${length.toLocaleString('en')} × ${elementType} [${first.map(quoted).join(', ')}, …]`;
}

/** The first lines: a summary of the file, and facts of its format. */
function headLines(file: string, info: ModelInfo, elements: number): string[] {
  const { format: name, bytes, files, tensors, metadata, conversion } = info;
  const format = formatOf(info);
  const summary = [
    name,
    ...(files.length > 1 ? [counted(files.length, 'file')] : []),
    counted(tensors.length, 'tensor'),
    counted(elements, format.unit),
    formatBytes(bytes),
  ];
  const target = formats().find((known) => known.name === conversion?.format);
  const facts = [
    ...(format.facts?.({ tensors, metadata }) ?? []),
    ...(conversion === undefined ? [] : [`${conversion.architecture}, which can become ${target?.label}`]),
  ];
  return [
    `${painter(process.stdout)('bold', printable(file))}: ${summary.join(', ')}`,
    ...(facts.length === 0 ? [] : [facts.map(printable).join(', ')]),
  ];
}

function inspectText(file: string, info: ModelInfo, tensors: readonly ModelTensor[], elements: number): string[] {
  const { metadata } = info;
  const paint = painter(process.stdout);
  const width = columnsOf(process.stdout);
  const lines = headLines(file, info, elements);
  if (tensors.length > 0) {
    const columns: TableColumn[] = [
      { title: 'tensor', align: 'left' },
      { title: 'dtype', align: 'left' },
      { title: 'shape', align: 'left' },
      { title: 'size', align: 'right' },
    ];
    const rows = tensors.map(({ name, dtype, shape, bytes: size }) => ({
      cells: [nameText(name), dtype, formatShape(shape), formatBytes(size)],
    }));
    lines.push('');
    for (const line of table(columns, rows, width, paint)) lines.push(line);
  }
  const keys = Object.keys(metadata);
  if (keys.length > 0) {
    lines.push('', paint('bold', 'metadata'));
    for (const key of keys) {
      const line = `  ${printable(key)}: ${printable(valueText(metadata[key] as MetadataValue).slice(0, 1000))}`;
      // Some programs store pages of settings here. --json prints all of it.
      const most = Math.min(width, 1000);
      lines.push(line.length > most ? `${line.slice(0, most - 1)}…` : line);
    }
  }
  return lines;
}
