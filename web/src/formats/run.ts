/** Types for running two models and comparing their outputs, shared by formats that can be run. */
import type { ErrorMeasures } from '../core/measure.js';
import type { ByteSource, FileInput } from './files/bytes.js';
import type { StateFile } from './files/state-file.js';
import type { ActivationRanges } from './statistics.js';

/** An input as an array. Numbers are converted to the type that the model takes. */
export interface InputArray {
  /** Elements in row-major order. */
  readonly data: ArrayLike<number | bigint>;
  /** Shape, whose product is the number of elements. */
  readonly shape: readonly number[];
}

/** Inputs by name, as arrays or .npy files; or a .npz file with all of them, of at most 2 GiB unpacked; or a .npy file for a model with one input. */
type ModelInputs = FileInput | Readonly<Record<string, FileInput | InputArray>>;

/** Options for inputs. */
export interface InputOptions {
  /** Inputs of both models. @defaultValue random values by type, shape and name */
  readonly inputs?: ModelInputs | undefined;
  /** Sizes of dimensions that are not fixed, by their names or as `input.axis`. @defaultValue 1 for batches, 16 for sequences, 0 for what is past, 224 for images, 32 for latent ones, 16,000 for sound, 3000 for its features */
  readonly dimensions?: Readonly<Record<string, number>> | undefined;
  /** Seed of the random values. @defaultValue 1 */
  readonly seed?: number | undefined;
}

/** The module `onnxruntime-web`, or one with the same functions. */
export interface Runtime {
  /** Loads models. */
  readonly InferenceSession: {
    /** Loads a model from its bytes. */
    create(model: Uint8Array, options?: object): Promise<unknown>;
  };
  /** The class of inputs and outputs. */
  readonly Tensor: unknown;
}

// ----------------------------------------------------------------------------------------------------------------------- backends

/** A place where onnxruntime runs models: onnxruntime-web on the processor or on WebGPU, or onnxruntime-node. */
export type BackendName = 'wasm' | 'webgpu' | 'node';

/** A value as plain data, which can be sent elsewhere. */
export interface RunTensor {
  /** Type by onnxruntime's name, such as `float32`. */
  readonly type: string;
  /** Its shape. */
  readonly dims: readonly number[];
  /** Its elements, the last axis fastest. */
  readonly data: ArrayLike<number | bigint | string>;
}

/** One model to run on a backend. */
export interface BackendJob {
  /** The model's file, with the files that hold its weights. */
  readonly model: {
    /** The ONNX file. */
    readonly bytes: Uint8Array;
    /** Files of weights. */
    readonly externalData: readonly {
      /** Path by which the model names the file. */
      readonly path: string;
      /** Its bytes. */
      readonly data: Uint8Array;
    }[];
  };
  /** Inputs by name. */
  readonly feeds: Readonly<Record<string, RunTensor>>;
  /** Further inputs for the same model, run one after the other. */
  readonly more?: readonly Readonly<Record<string, RunTensor>>[] | undefined;
  /** Optimizations of the graph. */
  readonly level: 'all' | 'disabled';
  /** True to measure the time of runs, and which nodes leave the GPU. */
  readonly measures: boolean;
}

/** The GPU, as WebGPU describes it. */
export interface GpuAdapter {
  /** Its vendor, such as `nvidia`; empty if the browser hides it. */
  readonly vendor: string;
  /** Its architecture, such as `ampere`; empty if the browser hides it. */
  readonly architecture: string;
  /** True if a program on the processor stands in for a GPU, which makes times meaningless. */
  readonly isSoftware: boolean;
  /** True if shaders may compute in float16. */
  readonly hasFloat16: boolean;
}

/** Nodes that onnxruntime did not run on the GPU. */
export interface GpuPlacement {
  /** Number of nodes on the GPU. */
  readonly onGpu: number;
  /** Operators of nodes on the processor, the most frequent first. */
  readonly onCpu: readonly {
    /** The operator. */
    readonly op: string;
    /** Number of its nodes. */
    readonly count: number;
  }[];
  /** Number of copies between GPU and processor inside of the graph, in one run. */
  readonly copies: number;
}

/** Times of a model. */
export interface RunTimes {
  /** Seconds of loading the model and of the first run, in which shaders are compiled. */
  readonly firstSeconds: number;
  /** Seconds of one run: the median of `runs` runs after the first. */
  readonly seconds: number;
  /** Number of runs that the median is of. */
  readonly runs: number;
}

/** The outcome of a job. */
export type BackendAnswer = {
  /** Name and version of the runtime. */
  readonly runtime: string;
  /** WebGPU: the GPU. */
  readonly adapter?: GpuAdapter | undefined;
} & (
  | {
      /** The model ran. */
      readonly kind: 'ran';
      /** Outputs by name. */
      readonly outputs: Readonly<Record<string, RunTensor>>;
      /** Outputs for each of the further inputs. */
      readonly more?: readonly Readonly<Record<string, RunTensor>>[] | undefined;
      /** Times, if the job measures. */
      readonly times?: RunTimes | undefined;
      /** WebGPU, if onnxruntime reports it: nodes that left the GPU. */
      readonly placement?: GpuPlacement | undefined;
    }
  | {
      /** `noAdapter`: there is no WebGPU. `noSession`: the model could not be loaded. `notRun`: the run failed. */
      readonly kind: 'noAdapter' | 'noSession' | 'notRun';
      /** The words of the runtime. */
      readonly text: string;
    }
);

/** A backend outside of this process, such as a browser that the command line starts. */
export interface RunBackend {
  /** Its name in reports. */
  readonly name: BackendName;
  /** Runs a model. Failures of the model are answers, those of the backend are errors. */
  run(job: BackendJob, signal: AbortSignal | undefined): Promise<BackendAnswer>;
}

/** Options for running two models. */
export interface RunOptions extends InputOptions {
  /**
   * Runs both models on each of these, and compares with the first model on wasm. `webgpu` takes a page, and a `runtime` that has it:
   * `onnxruntime-web/webgpu`.
   * @defaultValue wasm alone, without times
   */
  readonly backends?: readonly ('wasm' | 'webgpu' | RunBackend)[] | undefined;
  /** True compares outputs of all nodes, which shows where errors begin and keeps all of them in memory. @defaultValue false */
  readonly layers?: boolean | undefined;
  /** The module onnxruntime-web. @defaultValue the one that is installed; pages have to pass it */
  readonly runtime?: Runtime | undefined;
}

/** An output of both models. */
export interface ComparedOutput {
  /** Its name in the models. */
  readonly name: string;
  /** Its shape in this run. */
  readonly shape: readonly number[];
  /** Error of b against a. Integers count as numbers. */
  readonly error: ErrorMeasures;
  /** Count of elements that are NaN or infinite in one model and differ in the other. `error` leaves them out. */
  readonly mismatched: number;
}

/** An output of a node of both models. */
export interface ComparedLayer extends ComparedOutput {
  /** The operator of the node in a. */
  readonly op: string;
  /** SQNR in dB lost against the worst compared input of the node. SQNR above 60 dB counts as 60. */
  readonly lossDb: number;
}

/** Reason not to compare an output. Programs decide by the kind, never by the text. */
export type SkippedOutputReason =
  | {
      /** The model that has it, or `notNumbers` if it holds texts. */
      readonly kind: 'onlyInA' | 'onlyInB' | 'notNumbers';
      /** The reason in a few words. */
      readonly text: string;
    }
  /** It has another shape in the second model. */
  | {
      readonly kind: 'shapes';
      /** Its shape in the first model. */
      readonly a: readonly number[];
      /** Its shape in the second model. */
      readonly b: readonly number[];
      /** The reason in a few words. */
      readonly text: string;
    };

/** A value of the first model that the second has in float16, which cannot hold it: on a GPU, it is infinite there. */
export interface OverflowingValue {
  /** Name of the value. */
  readonly value: string;
  /** Name of the node that gives it in float16; empty if it is unnamed. */
  readonly node: string;
  /** Its operator. */
  readonly op: string;
  /** Largest magnitude of an element in the first model, beyond 65,504. */
  readonly largest: number;
}

/** An input of both models, as it was in the run. */
export interface RunInput {
  /** Its name in the models. */
  readonly name: string;
  /** Its shape in this run. */
  readonly shape: readonly number[];
  /** True if it was given, false if its values are random. */
  readonly isGiven: boolean;
}

/** An output of a model on a backend. */
export interface BackendOutput extends ComparedOutput {
  /** Error against the same model on wasm: the share of the backend. Undefined on wasm itself, and if the model did not run there. */
  readonly own?: ErrorMeasures | undefined;
}

/** A node whose result is off by more than rounding explains. */
export interface OffNode {
  /** Its name; empty if it is unnamed. */
  readonly node: string;
  /** Its operator. */
  readonly op: string;
  /** The value that is off. */
  readonly output: string;
  /** Error of the value, given exact inputs, in relation to its length: sqrt(sum e^2 / sum x^2). Infinity if NaN or infinities differ. */
  readonly error: number;
  /** Largest error that rounding explains, likewise. */
  readonly tolerance: number;
  /** Errors of its inputs in the run of the whole model, likewise; undefined for weights and for inputs of the model. */
  readonly inputs: readonly {
    /** Name of the value. */
    readonly name: string;
    /** Its error. */
    readonly error: number | undefined;
  }[];
}

/**
 * Nodes of a model on a backend, each with the inputs that the reference has. The reference is the same model on wasm; on wasm itself it is
 * the first model.
 */
export interface NodeCheck {
  /** Number of values that were compared. */
  readonly compared: number;
  /** Number of them that are off by more than rounding explains. */
  readonly off: number;
  /** The first of those, in the order of the graph. */
  readonly first: OffNode | undefined;
  /** Operators that were not compared: random ones, and those with graphs of their own. */
  readonly unknown: readonly string[];
}

/** A model on a backend. */
export type BackendRun =
  | {
      /** The model ran. */
      readonly kind: 'ran';
      /** Errors against the first model on wasm. */
      readonly outputs: readonly BackendOutput[];
      /** Outputs that were not compared, with the reason. */
      readonly skippedOutputs: RunReport['skippedOutputs'];
      /** Times of the model. */
      readonly times: RunTimes;
      /** WebGPU, if onnxruntime reports it: nodes that left the GPU. */
      readonly placement?: GpuPlacement | undefined;
      /** With `layers`; undefined if the nodes could not be run apart. */
      readonly nodes?: NodeCheck | undefined;
    }
  | {
      /**
       * It did not run. `noAdapter`: there is no WebGPU. `needsFloat16`: the model computes in float16, and the GPU does not.
       * `noSession`: onnxruntime could not load it there. `notRun`: the run failed.
       */
      readonly kind: 'noAdapter' | 'needsFloat16' | 'noSession' | 'notRun';
      /** The words of the runtime. */
      readonly text: string;
    };

/** Both models on a backend. */
export interface BackendReport {
  /** Name of the backend. */
  readonly backend: BackendName;
  /** Name and version of the runtime. */
  readonly runtime: string;
  /** WebGPU: the GPU. */
  readonly adapter?: GpuAdapter | undefined;
  /** The first model. */
  readonly a: BackendRun;
  /** The second model. */
  readonly b: BackendRun;
}

/** Comparison of two models on the same inputs. */
export interface RunReport {
  /** The inputs, in the order of a. */
  readonly inputs: readonly RunInput[];
  /** Sizes that neither the options nor the model state, by the name of the dimension or as `input.axis`. */
  readonly guessedSizes: Readonly<Record<string, number>>;
  /** Compared outputs, in the order of a. */
  readonly outputs: readonly ComparedOutput[];
  /** Outputs of both that were not compared, with the reason. */
  readonly skippedOutputs: readonly {
    /** Its name in the models. */
    readonly name: string;
    /** Reason not to compare it. */
    readonly reason: SkippedOutputReason;
  }[];
  /** Values that float16 cannot hold, though b has them in it. onnxruntime computes them in float32 on wasm, where outputs do not show it. */
  readonly overflows?: readonly OverflowingValue[] | undefined;
  /** With `layers`: outputs of nodes, of one name in both main graphs, in the order of a. */
  readonly layers?: readonly ComparedLayer[] | undefined;
  /** With `backends`: both models on each of them. */
  readonly backends?: readonly BackendReport[] | undefined;
}

// ------------------------------------------------------------------------------------------------------------------------ judging

/** Options for running results while they are made. */
export interface OutputRunOptions extends Omit<RunOptions, 'layers'> {
  /**
   * Samples of the inputs, as for `calibrateModel`, in place of `inputs`. Errors are those over all samples, whose inputs and outputs are kept
   * in memory.
   * @defaultValue one sample, of `inputs`
   */
  readonly samples?: ModelSamples | undefined;
}

/** An output of a result on a backend, against the original on wasm. */
export interface JudgedOutput {
  /** The backend. */
  readonly backend: BackendName;
  /** Name of the output in the model; empty if the result did not run. */
  readonly output: string;
  /** Cosine of the output to that of the original, over all samples. */
  readonly cosine: number;
  /** Its SQNR in dB. */
  readonly sqnrDb: number;
  /** Values that float16 cannot hold, though the result has them in it. Then `failure` names them. */
  readonly overflows?: readonly OverflowingValue[] | undefined;
  /** Words about an output that cannot be compared, or a result that did not run. Its numbers are NaN then. */
  readonly failure?: string | undefined;
}

/** A norm whose channels are divided by powers of two, by which the weights behind it are multiplied. */
export interface FoldedNorm {
  /** Name of the value that it gives. */
  readonly value: string;
  /** For each channel, the exponent of its power of two, from -24 to 24. */
  readonly exponents: readonly number[];
  /** The least and the largest element of the value after that, which `int8-static` takes as its range. */
  readonly range: readonly [least: number, largest: number];
}

/** Judges results against the outputs of the original, which it has kept. */
export interface OutputJudge<Model> {
  /** Runs a result. @param only the name of the only backend to run it on. @throws errors of backends; the reason of the signal */
  judge(made: Model, only?: BackendName): Promise<readonly JudgedOutput[]>;
  /** Ranges of activations of the original; undefined if the target holds all of them. */
  ranges?(to: string): Promise<ActivationRanges | undefined>;
  /**
   * Norms that may be folded, by every other sample. From then on, results are judged by the other samples.
   * @throws RangeError without two samples
   */
  folds?(): Promise<readonly FoldedNorm[]>;
}

// -------------------------------------------------------------------------------------------------------------------- calibration

/** One sample: the inputs of a model by name. */
export type ModelSample = Readonly<Record<string, InputArray>>;

/** Files with samples. */
export interface SampleFiles {
  /**
   * .npz files with an array for each input; .npy files for a model with one input; or JSON lines, an object of arrays by input in each. A
   * .npz file holds one sample, or several if its arrays have one dimension more than the inputs; so does a .npy file. Arrays of inputs
   * whose first dimension is fixed may also hold several samples along it.
   */
  readonly files: FileInput | readonly FileInput[];
}

/** Samples to run a model on. An iterable that can be read only once is enough if one pass over the samples is. */
export type ModelSamples = SampleFiles | Iterable<ModelSample> | AsyncIterable<ModelSample>;

/** Reason why the inputs of a weight were not reached. Programs decide by the kind, never by the text. */
export interface UnreachedReason {
  /**
   * `lookup`: its rows are looked up, not multiplied. `state`: it is multiplied with states inside of an operator. `moved`: nodes in between
   * move its elements. `inFunction`, `inSubgraph`: the operator stands there. `operator`: it is read by one that is
   * not known to multiply. `notRun`: no sample runs its graph.
   */
  readonly kind: 'lookup' | 'operator' | 'state' | 'moved' | 'inFunction' | 'inSubgraph' | 'notRun';
  /** The operator that reads it; empty for `notRun`. */
  readonly operator: string;
  /** The reason in a few words. */
  readonly text: string;
}

/** A weight without statistics. */
export interface UnreachedWeight {
  /** Its name. */
  readonly name: string;
  /** Reason for it. */
  readonly reason: UnreachedReason;
}

/** Sums over the inputs that some weights share. */
export interface SummedInputs {
  /** Names of the weights. */
  readonly names: readonly string[];
  /** Columns of all matrices. */
  readonly columns: number;
  /** Number of matrices that share the columns. */
  readonly matrices: number;
  /** Rows that were counted. */
  readonly rows: number;
  /** Rows among them that are held back from moments. */
  readonly heldBackRows: number;
  /** Sum of squares of each column. */
  readonly squares: Float64Array<ArrayBuffer>;
}

/** Sums over the inputs of a model's weights. */
export interface CollectedSums {
  readonly samples: number;
  /** Samples among them that are held back from moments. */
  readonly heldBack: number;
  /** In the order of the graph. */
  readonly sums: readonly SummedInputs[];
  readonly unreached: readonly UnreachedWeight[];
  /** The least and the largest element of activations, by the names of values. */
  readonly ranges: ReadonlyMap<string, readonly [least: number, largest: number]>;
}

/** Options for collecting sums. */
export interface CollectRunsOptions extends Pick<RunOptions, 'runtime' | 'dimensions'> {
  /** Name of the argument with the samples, for errors. */
  readonly option: string;
  /** True to collect second moments. */
  readonly moments: boolean;
  /** The share of samples that is held back from moments. */
  readonly heldBack: number;
  /** True to collect ranges of activations. */
  readonly ranges: boolean;
  /** Opens files of samples. */
  readonly open: (input: FileInput) => Promise<ByteSource>;
  /** Lets a run go on behind the last sample of an interrupted one. */
  readonly resume?: Pick<StateFile, 'take' | 'save' | 'changed' | 'damaged'> | undefined;
  readonly signal: AbortSignal | undefined;
}

/** Called while sums are collected. */
export interface CollectHooks {
  /** After each sample, with the samples of this pass. */
  onSample(progress: {
    readonly pass: number;
    readonly passes: number;
    readonly done: number;
    /** At least `done`; the number of all samples once it is known. */
    readonly total: number;
  }): void | Promise<void>;
  /** Before the first moments, with the inputs that have some. @param isFirst false if an interrupted run has handed over moments */
  onSums(sums: readonly SummedInputs[], isFirst: boolean): Promise<void>;
  /** With means of products of some inputs, a square of their columns. */
  takeMoments(sums: SummedInputs, means: Float32Array<ArrayBuffer>, isHeldBack: boolean): Promise<void>;
}

/** An output over all samples. */
export interface EvaluatedOutput {
  /** Its name in the models. */
  readonly name: string;
  /** Error against the reference over the elements of all samples. Integers count as numbers. */
  readonly error: ErrorMeasures;
  /** Count of elements that are NaN or infinite in one model and differ in the other. `error` leaves them out. */
  readonly mismatched: number;
  /** The sample with the lowest SQNR: its number from 0, and its error. */
  readonly worst: {
    /** Its number from 0. */
    readonly sample: number;
    /** Its error. */
    readonly error: ErrorMeasures;
  };
}

/** Outputs of a model beside those of a reference, on samples. */
export interface OutputsEvaluation {
  /** Number of samples. */
  readonly samples: number;
  /** Compared outputs, in the order of the reference. */
  readonly outputs: readonly EvaluatedOutput[];
  /** Outputs that were not compared, with the reason. */
  readonly skippedOutputs: RunReport['skippedOutputs'];
}

/** The outputs of a sample by name. */
type OutputsOf = (
  inputs: ReadonlyMap<string, InputArray>,
  path: string,
) => Promise<
  ReadonlyMap<
    string,
    { readonly type: string; readonly dims: readonly number[]; readonly data: ArrayLike<number | bigint | string> }
  >
>;

/** Logits of a text: rows of the vocabulary, one for each token. */
export type LogitsOf = (ids: Uint32Array) => Promise<Float32Array<ArrayBuffer>>;

/** Options for running a language model. */
export interface LogitsOptions extends Pick<RunOptions, 'runtime' | 'dimensions'> {
  readonly signal: AbortSignal | undefined;
}

/** Runs of an open model. */
export interface ModelRuns {
  /** Number of tokens that it knows; undefined if it takes none. */
  readonly tokens: number | undefined;
  /** True if it has an output named as logits are, with a row for each token. */
  readonly hasLogits: boolean;
  /** A sample of a text. */
  sampleOf(ids: Uint32Array): ModelSample;
  /** Adds up sums over the inputs of weights. */
  collect(samples: ModelSamples, options: CollectRunsOptions, hooks: CollectHooks): Promise<CollectedSums>;
  /** Opens a model to give outputs, and closes it behind `use`. @param label names it in errors */
  withOutputs<T>(options: LogitsOptions, label: string, use: (outputs: OutputsOf) => Promise<T>): Promise<T>;
  /** Compares the outputs on samples with those of a reference. `onSample` gets the number of samples that are done. */
  evaluate(
    samples: ModelSamples,
    reference: Pick<ModelRuns, 'withOutputs'>,
    options: Pick<CollectRunsOptions, 'runtime' | 'dimensions' | 'option' | 'open' | 'signal'>,
    onSample: (done: number) => Promise<void>,
  ): Promise<OutputsEvaluation>;
  /** Opens a language model to give logits, and closes it behind `use`. */
  withLogits<T>(options: LogitsOptions, use: (logits: LogitsOf, vocabulary: number) => Promise<T>): Promise<T>;
}
