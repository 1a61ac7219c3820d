/** Makes findings about a model. */
import type { Finding } from '../../format.js';

/** Data of a finding: the tensor concerned, and other data by kind. */
type Data = Readonly<Record<string, unknown>> & { readonly tensor?: string };

export const problemFound = (kind: string, text: string, data: Data = {}): Finding => ({
  severity: 'problem',
  kind,
  ...data,
  text,
});

export const noteFound = (kind: string, text: string, data: Data = {}): Finding => ({
  severity: 'note',
  kind,
  ...data,
  text,
});
