/** Weights with adapters, which are read like weights with codes: floats that are computed from several stored tensors. */
import type { LowRankForm } from '../../codecs/low-rank.js';
import type { CodedLayout } from './layout.js';

export const lowRankLayout: CodedLayout = {
  label: 'adapter',
  codecs: ['low-rank'],
  floats: (form) => (form as LowRankForm).floats,
};
