/** The code of formats, layouts, adapters and statistics that few models need. It is loaded with the first of these. */
export { type Adapter, readAdapter } from './adapters/adapter.js';
export { adapterNote, mergeAdapters } from './adapters/merge.js';
export { mlcTensors, openMlc } from './mlc/open.js';
export { openNpy } from './npy/header.js';
export { openPytorch } from './pytorch/open.js';
export { planComfy } from './safetensors/layouts/comfy-plan.js';
export { momentsIn, rangesIn } from './safetensors/statistics-files.js';
