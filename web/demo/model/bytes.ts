// Where the bytes of a model are, as data: slices for its blocks, and shares of the kinds of layers in them.
import type { PlannedTensorInfo } from 'scalepoint/model';

/** Kinds of layers, in the order of pictures. */
export const layerKinds = ['embedding', 'attention', 'mlp', 'norm', 'other'] as const;
export type LayerKind = (typeof layerKinds)[number];

/** Parts of names that tell the kind of a layer. The first match decides. */
const kindNames: readonly (readonly [kind: LayerKind, name: RegExp])[] = [
  ['norm', /norm|(?:^|[._])(?:ln|bn)_?\w*\./i],
  ['embedding', /embed|embd|(?:^|\.)(?:wte|wpe|shared|lm_head)\.|^output\.weight$/i],
  ['attention', /attn|attention|(?:^|[._])(?:[qkvo]_proj|qkv|query|key|value)(?:[._]|$)/i],
  ['mlp', /mlp|ffn|feed_?forward|(?:gate|up|down)_proj|expert|intermediate|(?:^|[._])fc\d*(?:[._]|$)|c_fc|c_proj/i],
];

/** The kind of a layer by the name of its tensor. */
export function layerKind(name: string): LayerKind {
  return kindNames.find(([, pattern]) => pattern.test(name))?.[0] ?? 'other';
}

/** Bytes before and after. */
interface ByteCounts {
  readonly before: number;
  readonly after: number;
}

/** A slice of the picture: a block of the model, or layers outside of its blocks. */
export interface ByteSlice {
  readonly label: string;
  readonly kinds: Readonly<Record<LayerKind, ByteCounts>>;
}

/** The name of a numbered block, and its number. */
const blockName = /^(.*?(?:^|[._/])(\d+))[._/]/;

/** The sum of some counts. */
export function sumOf(counts: readonly ByteCounts[]): ByteCounts {
  let [before, after] = [0, 0];
  for (const one of counts) {
    before += one.before;
    after += one.after;
  }
  return { before, after };
}

/** All bytes of a slice. */
export const sliceBytes = ({ kinds }: ByteSlice): ByteCounts => sumOf(Object.values(kinds));

/** The sums of each kind. */
export function kindBytes(slices: readonly ByteSlice[]): ByteSlice['kinds'] {
  const sums = layerKinds.map((kind) => [kind, sumOf(slices.map(({ kinds }) => kinds[kind]))]);
  return Object.fromEntries(sums) as ByteSlice['kinds'];
}

const outsideLabels: Readonly<Record<LayerKind, string>> = {
  embedding: 'embeddings',
  attention: 'attention',
  mlp: 'MLP',
  norm: 'norms',
  other: 'other',
};

/** The module of a tensor: its name without the last part. */
const moduleOf = (name: string) => name.replace(/[._/][^._/]*$/, '');

/** The slices of a model in the order of its file. Without numbered blocks, each module is a slice. */
export function slicesOf(tensors: readonly PlannedTensorInfo[]): ByteSlice[] {
  const blocks = tensors.map(({ name }) => blockName.exec(name));
  const stems = new Set(blocks.flatMap((block) => block?.[1]?.replace(/\d+$/, '') ?? []));
  // Names of several stacks differ after their common beginning: `encoder.layers` and `decoder.layers`.
  const [first = [], ...others] = [...stems].map((stem) => stem.split(/[./]/));
  const common = first.findIndex((part, i) => others.some((other) => other[i] !== part));
  const slices = new Map<string, { label: string; kinds: Record<LayerKind, { before: number; after: number }> }>();
  for (const [i, { name, bytesBefore, bytesAfter }] of tensors.entries()) {
    const [, key, number = ''] = blocks[i] ?? [];
    const kind = layerKind(name);
    const outside = stems.size > 0 ? outsideLabels[kind] : moduleOf(name);
    const id = key ?? ` ${outside}`;
    let slice = slices.get(id);
    if (slice === undefined) {
      const stem = (stems.size > 1 && key?.split(/[./]/)[common]?.replace(/_?\d+$/, '')) || 'block';
      const kinds = Object.fromEntries(layerKinds.map((one) => [one, { before: 0, after: 0 }]));
      slice = { label: key === undefined ? outside : `${stem} ${number}`, kinds } as NonNullable<typeof slice>;
      slices.set(id, slice);
    }
    slice.kinds[kind].before += bytesBefore;
    slice.kinds[kind].after += bytesAfter;
  }
  return [...slices.values()];
}

/** At most `most` slices: neighbors are merged, as many together as it takes. */
export function mergedSlices(slices: readonly ByteSlice[], most: number): readonly ByteSlice[] {
  const together = Math.ceil(slices.length / Math.max(1, most));
  if (together === 1) return slices;
  return Array.from({ length: Math.ceil(slices.length / together) }, (_, i) => {
    const own = slices.slice(i * together, (i + 1) * together);
    const [first, last] = [own[0]?.label ?? '', own.at(-1)?.label ?? ''];
    // Neighbors in one stack of blocks share its name: `block 0 to 3`.
    const [name, number] = last.split(' ');
    const end = number !== undefined && first.startsWith(`${name} `) ? number : last;
    return { label: first === last ? first : `${first} to ${end}`, kinds: kindBytes(own) };
  });
}

// ------------------------------------------------------------------------------------------------------------------------ savings

/** Tensors of one kind that stay in one type for one reason. */
export interface KeptGroup {
  readonly kind: LayerKind;
  readonly type: string;
  /** The kind of the reason, and its words. */
  readonly reason: string;
  readonly text: string;
  /** Names, the largest tensor first. */
  readonly names: readonly string[];
  readonly bytes: number;
}

/** Most tensors of a group that a rule names. */
const mostNames = 8;

/** Groups of tensors that stay as they are, the largest first. Those in `own` were kept by hand. */
export function keptGroups(tensors: readonly PlannedTensorInfo[], own: ReadonlySet<string>): KeptGroup[] {
  const groups = new Map<string, PlannedTensorInfo[]>();
  for (const tensor of tensors) {
    if (tensor.kept === undefined || tensor.kept.kind === 'rule' || own.has(tensor.name)) continue;
    const key = `${layerKind(tensor.name)} ${tensor.from} ${tensor.kept.kind}`;
    const group = groups.get(key) ?? [];
    groups.set(key, group);
    group.push(tensor);
  }
  return [...groups.values()]
    .map((all) => {
      const largest = [...all].sort((a, b) => b.bytesAfter - a.bytesAfter).slice(0, mostNames);
      const [{ name = '', from = '', kept } = {} as Partial<PlannedTensorInfo>] = largest;
      return {
        kind: layerKind(name),
        type: from,
        reason: kept?.kind ?? '',
        text: kept?.text ?? '',
        names: largest.map((one) => one.name),
        bytes: largest.reduce((sum, { bytesAfter }) => sum + bytesAfter, 0),
      };
    })
    .sort((a, b) => b.bytes - a.bytes);
}
