// Which input goes to which target, derived from the registries of formats, layouts and conversions: the table of the guide, and the pairs that
// a test tries.
import { convertersFrom } from '../../../web/src/architectures/registry.js';
import type { Format } from '../../../web/src/formats/format.js';
import { formatNamed, formats } from '../../../web/src/formats/registry.js';
import { layouts, targetRows } from '../../../web/src/formats/safetensors/layouts/registry.js';

/** Targets that go together: those of a layout, or those of a format. */
export interface TargetGroup {
  readonly label: string;
  /** Name of the format whose targets they are. */
  readonly owner: string;
  readonly targets: readonly string[];
  /** True if its layout has names and choices for known models alone. */
  readonly forKnownModels: boolean;
}

/** An input. */
export interface InputKind {
  readonly label: string;
  /** Name of its format. */
  readonly format: string;
  /** Label of the layout of its codes; undefined for floats. */
  readonly layout: string | undefined;
}

/** Result for an input: always, with `requantize`, for known models, or never. */
export type Cell =
  | { readonly kind: 'made' }
  | { readonly kind: 'requantize' }
  | { readonly kind: 'known'; readonly requantize: boolean }
  | { readonly kind: 'never' };

/** The label of the codes of a target of safetensors; undefined for floats and copies. */
function layoutOf(to: string): string | undefined {
  return layouts.find(({ targets = {} }) => Object.hasOwn(targets, to))?.label;
}

/** Formats that have targets of their own: others share the table of one before. */
const owners = (): Format[] => {
  const found = new Map<unknown, Format>();
  for (const format of formats) if (!found.has(format.options)) found.set(format.options, format);
  return [...found.values()];
};

/** The groups of targets, in the order of the registries. */
export function targetGroups(): readonly TargetGroup[] {
  return owners().flatMap(({ name, label, targets }) => {
    const groups = new Map<string, string[]>();
    for (const { name: to, copies } of targets) {
      if (copies) continue;
      const own = name === 'safetensors' ? (layoutOf(to) ?? 'float16, bfloat16') : label;
      groups.set(own, [...(groups.get(own) ?? []), to]);
    }
    return [...groups].map(([group, names]) => {
      const forKnownModels = name === 'safetensors' && targetRows.get(names[0])?.layout?.forKnownModels === true;
      return { label: group, owner: name, targets: names, forKnownModels };
    });
  });
}

/** The inputs, in the order of the registries. */
export function inputKinds(): readonly InputKind[] {
  return formats.flatMap(({ name, label, plan }): InputKind[] => {
    if (plan === undefined) return [];
    const plain = { label, format: name, layout: undefined };
    if (name !== 'safetensors') return [plain];
    const coded = layouts.flatMap(({ find, label: layout }) => (find === undefined ? [] : [layout]));
    return [plain, ...coded.map((layout) => ({ label: `${label}: ${layout}`, format: name, layout }))];
  });
}

export function cellOf({ format, layout }: InputKind, { owner, label, forKnownModels }: TargetGroup): Cell {
  // GGUF files are turned back where they hold language models, which ComfyUI's layout is not for.
  if (format === 'gguf' && label === 'ComfyUI') return { kind: 'never' };
  const requantize = layout !== undefined;
  const own = formatNamed(format);
  if (own.options === formatNamed(owner).options) {
    if (!forKnownModels) return { kind: requantize ? 'requantize' : 'made' };
    // A bare array is no model.
    return format === 'npy' ? { kind: 'never' } : { kind: 'known', requantize };
  }
  const isConverted = convertersFrom(format).some(({ result }) => result === owner);
  return isConverted ? { kind: 'known', requantize } : { kind: 'never' };
}

function cellText(cell: Cell): string {
  switch (cell.kind) {
    case 'made':
      return 'yes';
    case 'requantize':
      return 'requantize';
    case 'known':
      return cell.requantize ? 'known models, requantize' : 'known models';
    case 'never':
      return '';
  }
}

/** The rows of the table as texts. */
function insAndOuts(): readonly (readonly string[])[] {
  const groups = targetGroups();
  return [
    ['Input', ...groups.map(({ label }) => label)],
    ...inputKinds().map((input) => [input.label, ...groups.map((group) => cellText(cellOf(input, group)))]),
  ];
}

/** The table in the form that Markdown is kept in: columns of one width. */
export function insAndOutsTable(): string {
  const rows = insAndOuts();
  const widths = (rows[0] as readonly string[]).map((_, i) =>
    Math.max(3, ...rows.map((row) => (row[i] as string).length)),
  );
  const line = (cells: readonly string[]) =>
    `| ${cells.map((cell, i) => cell.padEnd(widths[i] as number)).join(' | ')} |`;
  const [head, ...others] = rows.map(line) as [string, ...string[]];
  return [head, `| ${widths.map((width) => '-'.repeat(width)).join(' | ')} |`, ...others].join('\n');
}
