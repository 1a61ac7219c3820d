/** The code of formats, layouts, adapters and statistics that few models need. It is loaded with the first of these. */
export { type Adapter, readAdapter } from './adapters/adapter.js';
export { adapterNote, mergeAdapters } from './adapters/merge.js';
export { mlcTensors, openMlc } from './mlc/open.js';
export { openNpy } from './npy/header.js';
export { openPytorch } from './pytorch/open.js';
export { originalModel } from './safetensors/diffusers.js';
export { comfyPlanner } from './safetensors/layouts/comfy/plan.js';
export { findCompressed } from './safetensors/layouts/compressed-tensors/find.js';
export { gptqPlanner } from './safetensors/layouts/gptq-plan.js';
export { findMlx } from './safetensors/layouts/mlx/find.js';
export { mlxPlanner } from './safetensors/layouts/mlx/plan.js';
export { momentsIn } from './safetensors/moments.js';
export { rangesIn } from './safetensors/ranges.js';
