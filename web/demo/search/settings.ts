import type { VectorMetric } from 'scalepoint';

/** Widths of the codes, in the order of their slider. */
export const widths = [1, 2, 4, 8] as const;
/** Factors of the second score, in the order of their slider; 0 without one. */
export const factors = [0, 2, 4, 8, 16, 32] as const;
/** Parts of a vector that are searched, in the order of their slider. */
export const parts = [4, 2, 1] as const;
/** Copies of the vectors from which the second score is computed. */
const copies = ['int8', 'float16'] as const;
const metrics = ['cosine', 'dot', 'euclidean'] as const satisfies readonly VectorMetric[];

/** Values of the controls. */
export interface Settings {
  readonly bits: (typeof widths)[number];
  readonly factor: (typeof factors)[number];
  readonly rows: (typeof copies)[number];
  readonly metric: (typeof metrics)[number];
  /** The vectors have this many times as many elements as are searched. */
  readonly part: (typeof parts)[number];
  /** The query of the picture. */
  readonly query: number;
}

/** Of the sample vectors, no setting with as few bytes finds more: see the table of all settings. */
export const defaults: Settings = { bits: 1, factor: 32, rows: 'int8', metric: 'cosine', part: 1, query: 0 };

/** Elements that are searched. */
export const dimsOf = ({ part }: Pick<Settings, 'part'>, dimension: number) =>
  Math.max(1, Math.floor(dimension / part));

function oneOf<T extends string | number>(value: string | null, list: readonly T[], other: T): T {
  return list.find((one) => String(one) === value) ?? other;
}

/** The settings of an address. What it holds besides is ignored. @param hash with or without `#` */
export function readLink(hash: string): Settings {
  const parameters = new URLSearchParams(hash.replace(/^#/, ''));
  const query = Number(parameters.get('query') ?? 1) - 1;
  return {
    bits: oneOf(parameters.get('bits'), widths, defaults.bits),
    factor: oneOf(parameters.get('rerank'), factors, defaults.factor),
    rows: oneOf(parameters.get('copies'), copies, defaults.rows),
    metric: oneOf(parameters.get('metric'), metrics, defaults.metric),
    part: oneOf(parameters.get('part'), parts, defaults.part),
    query: Number.isInteger(query) && query >= 0 && query < 1000 ? query : 0,
  };
}

/** The address of settings: `#bits=1&rerank=4`. Leaves out defaults. */
export function linkOf(settings: Settings): string {
  const parameters = new URLSearchParams();
  if (settings.bits !== defaults.bits) parameters.set('bits', String(settings.bits));
  if (settings.factor !== defaults.factor) parameters.set('rerank', String(settings.factor));
  if (settings.rows !== defaults.rows) parameters.set('copies', settings.rows);
  if (settings.metric !== defaults.metric) parameters.set('metric', settings.metric);
  if (settings.part !== defaults.part) parameters.set('part', String(settings.part));
  if (settings.query !== 0) parameters.set('query', String(settings.query + 1));
  return `#${parameters}`;
}
