// Types of core.mjs, the generated glue between JavaScript and the wasm core (scripts/build.mjs makes it from cpp/bindings.cpp).

/** LayerSpec of cpp/scalepoint.h. */
export type LayerForm = readonly [
  rows: number,
  columns: number,
  groupSize: number,
  bits: 4 | 8 | 32,
  zeroPoints: boolean,
  activations: 0 | 1 | 2,
];

/** Addresses and sizes are numbers of bytes and elements; `spec` is packed as cpp/bindings.cpp says; results are Status numbers. */
export interface CoreModule {
  readonly HEAP8: Int8Array;
  readonly HEAPU8: Uint8Array;
  readonly HEAP16: Int16Array;
  readonly HEAPU16: Uint16Array;
  readonly HEAP32: Int32Array;
  readonly HEAPU32: Uint32Array;
  readonly HEAPF32: Float32Array;
  readonly HEAPF64: Float64Array;
  buildId(): number;
  isSimd(): boolean;
  allocate(bytes: number): number;
  release(address: number): void;
  clearRange(min: number, max: number, n: number): void;
  observe(
    x: number,
    n: number,
    kind: number,
    axisSize: number,
    innerSize: number,
    groupSize: number,
    start: number,
    spec: number,
    min: number,
    max: number,
    parameters: number,
  ): number;
  chooseQparams(min: number, max: number, n: number, spec: number, scale: number, zeroPoint: number): number;
  searchScratchBytes(size: number, kind: number, axisSize: number, innerSize: number, groupSize: number): number;
  searchQparams(
    x: number,
    n: number,
    kind: number,
    axisSize: number,
    innerSize: number,
    groupSize: number,
    spec: number,
    method: number,
    percentile: number,
    scratch: number,
    bytes: number,
    scale: number,
    zeroPoint: number,
    parameters: number,
  ): number;
  takeBetter(
    x: number,
    runSize: number,
    spec: number,
    scale: number,
    zeroPoint: number,
    otherScale: number,
    otherZeroPoint: number,
    runs: number,
  ): number;
  quantizeLinear(
    x: number,
    n: number,
    kind: number,
    axisSize: number,
    innerSize: number,
    groupSize: number,
    start: number,
    scale: number,
    zeroPoint: number,
    parameters: number,
    spec: number,
    codes: number,
  ): number;
  quantizeLinearMeasured(
    x: number,
    n: number,
    kind: number,
    axisSize: number,
    innerSize: number,
    groupSize: number,
    start: number,
    scale: number,
    zeroPoint: number,
    parameters: number,
    spec: number,
    codes: number,
    sums: number,
  ): number;
  /** A plain export: see cpp/bindings.cpp. */
  _quantize_runs_export(
    x: number,
    n: number,
    lineSize: number,
    runSize: number,
    spec: number,
    scale: number,
    zeroPoint: number,
    runs: number,
    codes: number,
  ): number;
  dequantizeLinear(
    codes: number,
    n: number,
    kind: number,
    axisSize: number,
    innerSize: number,
    groupSize: number,
    start: number,
    scale: number,
    zeroPoint: number,
    parameters: number,
    spec: number,
    x: number,
  ): number;
  accumulateError(x: number, y: number, n: number, sums: number): number;
  accumulateCodeError(
    x: number,
    n: number,
    codes: number,
    kind: number,
    axisSize: number,
    innerSize: number,
    groupSize: number,
    start: number,
    scale: number,
    zeroPoint: number,
    parameters: number,
    spec: number,
    sums: number,
  ): number;
  /** `sums` has room for seven doubles a parameter. */
  accumulateErrorEach(
    x: number,
    y: number,
    n: number,
    kind: number,
    axisSize: number,
    innerSize: number,
    groupSize: number,
    start: number,
    sums: number,
    parameters: number,
  ): number;
  firstNonFinite(x: number, n: number): number;
  histogram(x: number, n: number, min: number, max: number, counts: number, bins: number, belowAbove: number): number;
  pack(codes: number, n: number, spec: number, packed: number): number;
  unpack(packed: number, n: number, spec: number, codes: number): number;
  /** n elements; `type` is ggml's number. */
  quantizeBlocks(x: number, n: number, type: number, blocks: number): number;
  dequantizeBlocks(blocks: number, n: number, type: number, x: number): number;
  layerBytes(...form: LayerForm): number;
  layerWorkspaceBytes(...formAndBatch: [...LayerForm, batch: number]): number;
  makeLayer(...args: [...LayerForm, zeroPoint: number, layer: number, bytes: number]): number;
  setLayerCodes(
    layer: number,
    bytes: number,
    row: number,
    codes: number,
    n: number,
    spec: number,
    scale: number,
    zeroPoint: number,
    parameters: number,
  ): number;
  setLayerBlocks(layer: number, bytes: number, row: number, blocks: number, n: number, type: number): number;
  setLayerFloats(layer: number, bytes: number, row: number, x: number, n: number): number;
  setLayerBias(layer: number, bytes: number, bias: number, n: number): number;
  layerScores(
    layer: number,
    bytes: number,
    x: number,
    columns: number,
    row: number,
    scores: number,
    n: number,
    workspace: number,
    workspaceBytes: number,
  ): number;
  /** A plain export, likewise. */
  _layer_forward_export(
    layer: number,
    bytes: number,
    x: number,
    columns: number,
    batch: number,
    y: number,
    rows: number,
    workspace: number,
    workspaceBytes: number,
  ): number;
  widenFloat16(bits: number, n: number, x: number): number;
  widenBfloat16(bits: number, n: number, x: number): number;
  narrowFloat16(x: number, n: number, bits: number): number;
  narrowBfloat16(x: number, n: number, bits: number): number;
  /** `format` and `overflow` are the numbers of cpp/scalepoint.h's Minifloat and Overflow. */
  narrowMinifloat(x: number, n: number, format: number, overflow: number, bits: number): number;
  widenMinifloat(bits: number, n: number, format: number, x: number): number;
  quantizeMinifloat(
    x: number,
    n: number,
    kind: number,
    axisSize: number,
    innerSize: number,
    groupSize: number,
    start: number,
    scale: number,
    parameters: number,
    format: number,
    bits: number,
  ): number;
  dequantizeMinifloat(
    bits: number,
    n: number,
    kind: number,
    axisSize: number,
    innerSize: number,
    groupSize: number,
    start: number,
    scale: number,
    parameters: number,
    format: number,
    x: number,
  ): number;
  /** The piece begins `offset` elements into its first block; `absmax` holds one value for every block that it touches. */
  observeAbsmax(x: number, n: number, blockSize: number, offset: number, absmax: number): number;
  roundAbsmax(absmax: number, n: number): number;
  searchAbsmax(
    x: number,
    n: number,
    blockSize: number,
    codebook: number,
    values: number,
    decision: number,
    rounded: boolean,
    absmax: number,
  ): number;
  /** `codebook` holds `values` floats; `decision` is the number of cpp/scalepoint.h's Decision. */
  quantizeCodebook(
    x: number,
    n: number,
    blockSize: number,
    offset: number,
    absmax: number,
    codebook: number,
    values: number,
    decision: number,
    codes: number,
  ): number;
  dequantizeCodebook(
    codes: number,
    n: number,
    blockSize: number,
    offset: number,
    absmax: number,
    codebook: number,
    values: number,
    x: number,
  ): number;
  accumulateCodebookError(
    x: number,
    n: number,
    codes: number,
    blockSize: number,
    offset: number,
    absmax: number,
    codebook: number,
    values: number,
    sums: number,
  ): number;
  /** 16 floats; `codebook` is the number of cpp/scalepoint.h's PublishedCodebook. */
  publishedCodebook(codebook: number, values: number): void;
  codebookLearnerBytes(): number;
  clearCodebookLearner(learner: number): number;
  observeCodebook(x: number, n: number, blockSize: number, offset: number, absmax: number, learner: number): number;
  learnCodebook(learner: number, codebook: number, values: number): number;
  packCodebook(codes: number, n: number, bits: number, packed: number): number;
  unpackCodebook(packed: number, n: number, bits: number, codes: number): number;
}

export interface CoreOptions {
  print(): void;
  printErr(): void;
  instantiateWasm(imports: WebAssembly.Imports, done: (instance: WebAssembly.Instance) => void): object;
}

declare const createCore: (options: CoreOptions) => Promise<CoreModule>;
export default createCore;
/** Equal to what `buildId()` of the wasm files of the same build gives. */
export const buildId: number;
/** The package's version. */
export const version: string;
