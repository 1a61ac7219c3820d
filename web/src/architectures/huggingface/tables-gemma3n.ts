/**
 * Tensors of Gemma 3n, whose layers mix four states of a token.
 * Reference: github.com/Tippach/Franken-Llama 1774451, conversion/gemma.py and src/models/gemma3n.cpp; github.com/ggml-org/llama.cpp,
 * gguf-py/gguf/tensor_mapping.py at 0024aa7.
 */
import {
  attention,
  embedding,
  feedForward,
  finalNorm,
  gemmaNorms,
  headNorms,
  layerPrefix,
  withoutHead,
} from './tables.js';
import { type PerLayer, perLayerOutside, perLayerRows } from './tables-gemma4.js';
import type { Row, TensorTable } from './tensors.js';

export interface Gemma3n extends PerLayer {
  /** States of a token, of which the first one passes a layer. */
  readonly inputs: number;
  /** Rows of the matrix that narrows what a layer adds. */
  readonly laurel: number;
  /** Rows of the embedding in the folder. */
  readonly embeddingRows: number;
}

/** Matrices between the first state and the others, stacked. */
function stateProjections(inputs: number): Row[] {
  const stack = { shape: ['hidden', 'hidden'], count: inputs - 1 } as const;
  return [
    { from: 'model.altup_projections.#', to: 'altup_proj', ...stack },
    { from: 'model.altup_unembed_projections.#', to: 'altup_unembd_proj', ...stack },
  ];
}

function stateRows({ inputs, laurel }: Gemma3n): Row[] {
  return [
    { from: 'altup.correction_coefs', to: 'altup_correct_coef', shape: [inputs, inputs] },
    { from: 'altup.correct_output_scale', to: 'altup_correct_scale', whole: '.weight', shape: ['hidden'] },
    { from: 'altup.prediction_coefs', to: 'altup_predict_coef', shape: [inputs * inputs, inputs] },
    { from: 'altup.modality_router', to: 'altup_router', shape: [inputs, 'hidden'] },
    { from: 'altup.router_norm', to: 'altup_router_norm', shape: ['hidden'] },
    { from: 'laurel.linear_left', to: 'laurel_l', shape: [laurel, 'hidden'] },
    { from: 'laurel.linear_right', to: 'laurel_r', shape: ['hidden', laurel] },
    { from: 'laurel.post_laurel_norm', to: 'laurel_post_norm', shape: ['hidden'] },
  ];
}

/** Both embeddings may lack rows for pictures and sound at their ends, which get rows of zeros. */
export const gemma3n = (model: Gemma3n): TensorTable => ({
  layerPrefix,
  outside: [
    { ...embedding, shape: [model.embeddingRows, 'hidden'], filledTo: 'vocabulary' },
    finalNorm,
    ...perLayerOutside(model).map(
      (row): Row => (row.to === 'per_layer_token_embd' ? { ...row, filledTo: 'vocabulary' } : row),
    ),
    ...stateProjections(model.inputs),
  ],
  layer: [
    ...gemmaNorms,
    ...attention,
    ...headNorms,
    ...feedForward,
    ...perLayerRows(model.perLayer),
    ...stateRows(model),
  ],
  rename: withoutHead,
});
