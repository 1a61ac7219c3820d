/**
 * Reasons of llama-quantize to keep tensors, beyond those that formats share.
 * Reference: github.com/ggml-org/llama.cpp, src/llama-quant.cpp at 007dbbf.
 */
import { type Reason, reasons, reasonWords } from '../reason.js';

/** Words of each kind in reports. */
const words = {
  output: 'output',
  smallWeight: 'small weight',
  perLayerProjection: 'per-layer projection',
  positionEmbedding: 'position embedding',
  tokenTypeEmbedding: 'token type embedding',
  convolution: 'convolution',
  timeMixing: 'time mixing',
  positionBias: 'position bias',
  vision: 'vision',
  codebook: 'codebook',
} as const;

/** A reason that only GGUF results have. */
export interface GgufReason {
  /** The part of the model that the name tells; `output` if the options keep the output layer. */
  readonly kind: keyof typeof words;
}

/** The words of such a reason; undefined for others. */
export const ggufReasonText = reasonWords(words);

const partReason = (kind: GgufReason['kind']): Reason => ({ kind });

/** The option `leaveOutputTensor` keeps the output layer. */
export const outputReason = partReason('output');

/** Names of tensors that are never converted. The first match gives the reason. */
export const keptNames: readonly (readonly [reason: Reason, name: RegExp])[] = [
  [reasons.norm, /_norm\.weight/],
  [reasons.router, /ffn_gate_inp\.weight|ffn_gate_tid2eid\.weight/],
  [partReason('smallWeight'), /altup|laurel|indexer\.[kq]_proj\.weight/],
  [partReason('perLayerProjection'), /per_layer_model_proj/],
  [partReason('positionEmbedding'), /^position_embd\.weight$|\.position_embd|sam\.pos_embd/],
  [partReason('tokenTypeEmbedding'), /^token_types\.weight$/],
  [partReason('convolution'), /ssm_conv1d|shortconv\.conv\.weight/],
  [partReason('timeMixing'), /time_mix_(first|[wva][012]|g[12]|decay_w[12]|lerp_fused)\.weight/],
  [partReason('positionBias'), /attn_rel_b\.weight|\.rel_pos/],
  [partReason('vision'), /sam\.neck\.|sam\.net_|\.patch_embd|\.patch_merger/],
  [partReason('codebook'), /a\.rvq\.codebook|mm\.a\.code_embd/],
];
