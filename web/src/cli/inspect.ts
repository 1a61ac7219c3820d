import { inspectModel, type MetadataValue, type ModelInfo } from '../model.js';
import { type FormatInfo, formats } from '../tooling.js';
import { withInput } from './input.js';
import { commonOptions, filesOf, parse } from './options.js';
import { about, effort, peakBytes, printJson } from './process.js';
import {
  columnsOf,
  count,
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

/** Lists the content of a file. Returns the exit code. */
export async function inspect(args: string[]): Promise<number> {
  const { values, positionals } = parse(args, commonOptions);
  if (values.help) {
    process.stdout.write(inspectUsage());
    return 0;
  }
  const [file] = filesOf(positionals, ['FILE'], 'inspect') as [string];
  return withInput(file, async (input) => {
    const info = await about(input.name, () => inspectModel(input.file));
    show(input.name, info, values);
    return 0;
  });
}

function show(file: string, info: ModelInfo, values: { readonly json?: boolean; readonly verbose?: boolean }): void {
  const elements = info.tensors.reduce((sum, { shape }) => sum + shape.reduce((product, n) => product * n, 1), 0);
  const payload = info.tensors.reduce((sum, { bytes }) => sum + bytes, 0);
  const totals = { elements, bitsPerWeight: elements === 0 ? 0 : (8 * payload) / elements };
  if (values.json) {
    printJson({ file, ...info, totals, peakBytes: peakBytes() });
    return;
  }
  const lines = inspectText(file, info, elements);
  if (values.verbose) lines.push('', effort());
  printLines(lines);
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
function headLines(
  file: string,
  { format: name, bytes, files, tensors, metadata, conversion }: ModelInfo,
  elements: number,
): string[] {
  const format = formats().find((known) => known.name === name) as FormatInfo;
  const summary = [
    name,
    ...(files.length > 1 ? [count(files.length, 'file')] : []),
    count(tensors.length, 'tensor'),
    count(elements, format.unit),
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

function inspectText(file: string, info: ModelInfo, elements: number): string[] {
  const { tensors, metadata } = info;
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
    lines.push('', ...table(columns, rows, width, paint));
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
