// The options of all calls on arrays, layers and indexes, in one table: an unknown option is compared with those of every call.
import { type CallOptions, checkKeys } from '../core/check.js';
import { loadNames } from '../core/load-options.js';
import { searchedMembers } from '../core/range.js';

/** Members of ranges: of those that are searched for, and of those that are given. */
export const rangeForms: readonly (readonly string[])[] = [searchedMembers, ['min', 'max'], ['scale', 'zeroPoint']];

/** Members of a granularity by its kind. */
export const granularityKinds = {
  'per-tensor': ['kind'],
  'per-channel': ['kind', 'axis'],
  'per-group': ['kind', 'groupSize', 'axis'],
} as const;

const choices = ['dtype', 'scheme', 'includeZero', 'symmetricRange', 'nonFinite', 'range', 'range.percentile'] as const;

/** Options of a variant of `sweep`. */
export const variantNames = [
  ...choices,
  'granularity',
  'rounding',
  'importance',
  'granularity.groupSize',
  'granularity.axis',
  'range.min',
  'range.max',
  'range.scale',
  'range.zeroPoint',
] as const;

/** Names of options by call. Those with a point are members of options, for hints. */
export const callOptions = {
  quantize: [...variantNames, 'moments', 'damping', 'order', 'shape', 'from', 'out', 'errors', 'packed'],
  quantizeBlocks: ['shape', 'from', 'weights', 'search', 'out'],
  quantizeCodebook: ['codebook', 'blockSize', 'range', 'absmaxType', 'shape', 'from', 'out', 'codebook.learn'],
  castFloat: ['saturate', 'from', 'out'],
  castToFloat32: ['out'],
  dequantize: ['out'],
  pack: ['out'],
  unpack: ['out'],
  compare: ['from', 'per', 'axis', 'groupSize', 'shape'],
  'errorSum.add': ['from'],
  sweep: ['shape', 'from'],
  histogram: ['bins', 'min', 'max', 'from'],
  observer: [...choices, 'granularity', 'averaging', 'granularity.axis'],
  observe: ['shape', 'from'],
  linear: ['bias', 'activations', 'activationScheme'],
  matmulFloat: ['shape', 'bias', 'from'],
  forward: ['batch', 'out'],
  index: [
    'shape',
    'dtype',
    'bits',
    'metric',
    'dims',
    'ids',
    'rerank',
    'seed',
    'queries',
    'ranges',
    'workers',
    'from',
    'rerank.source',
    'rerank.factor',
  ],
  'index.add': ['ids', 'ranges', 'from'],
  'index.update': ['ranges', 'from'],
  'index.search': ['filter', 'rerank'],
  'index.searchMany': ['filter', 'rerank', 'workers', 'worker', 'onProgress', 'signal'],
  'index.save': ['overwrite', 'onProgress', 'signal'],
  recall: ['k', 'rerank', 'from'],
  'importance.add': ['columns', 'from', 'matrix', 'matrices'],
  load: loadNames,
} as const satisfies CallOptions;

/** Fails unless it is an object without other options than those of a call. */
export function checkOptionsOf(call: keyof typeof callOptions, options: unknown): void {
  checkKeys(options, callOptions[call], '', callOptions);
}
