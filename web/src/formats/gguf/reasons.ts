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

const own = (kind: GgufReason['kind']): Reason => ({ kind });

/** The option `leaveOutputTensor` keeps the output layer. */
export const outputReason = own('output');

/** Names of tensors that are never converted. The first match gives the reason. */
export const keptNames: readonly (readonly [reason: Reason, name: RegExp])[] = [
  [reasons.norm, /_norm\.weight/],
  [reasons.router, /ffn_gate_inp\.weight|ffn_gate_tid2eid\.weight/],
  [own('smallWeight'), /altup|laurel|indexer\.[kq]_proj\.weight/],
  [own('perLayerProjection'), /per_layer_model_proj/],
  [own('positionEmbedding'), /^position_embd\.weight$|\.position_embd|sam\.pos_embd/],
  [own('tokenTypeEmbedding'), /^token_types\.weight$/],
  [own('convolution'), /ssm_conv1d|shortconv\.conv\.weight/],
  [own('timeMixing'), /time_mix_(first|[wva][012]|g[12]|decay_w[12]|lerp_fused)\.weight/],
  [own('positionBias'), /attn_rel_b\.weight|\.rel_pos/],
  [own('vision'), /sam\.neck\.|sam\.net_|\.patch_embd|\.patch_merger/],
  [own('codebook'), /a\.rvq\.codebook|mm\.a\.code_embd/],
];
