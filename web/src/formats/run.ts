/** What it means to run two models and to compare what they compute. Formats that can be run do it. */
import type { ErrorMeasures } from '../core/measure.js';
import type { FileInput } from '../files/bytes.js';

/** An input as an array. Numbers are converted to the type that the model takes. */
export interface InputArray {
  /** Its elements in row-major order. */
  readonly data: ArrayLike<number | bigint>;
  /** Its product is the number of elements. */
  readonly shape: readonly number[];
}

/** Inputs by name, as arrays or .npy files; or a .npz file with all of them; or a .npy file for a model with one input. */
export type ModelInputs = FileInput | Readonly<Record<string, FileInput | InputArray>>;

/** What decides about inputs. */
export interface InputOptions {
  /** What the models are run on. @defaultValue random values by type, shape and name */
  readonly inputs?: ModelInputs | undefined;
  /** Sizes of dimensions that are not fixed, by their names or as `input.axis`. @defaultValue 1 for batches, 16 for sequences, 0 for what is past, 224 for images, 32 for latent ones, 16,000 for sound, 3000 for its features */
  readonly dimensions?: Readonly<Record<string, number>> | undefined;
  /** Which random values. @defaultValue 1 */
  readonly seed?: number | undefined;
}

/** The module `onnxruntime-web`, or one with the same functions. */
export interface Runtime {
  /** What loads a model. */
  readonly InferenceSession: {
    /** Loads a model from its bytes. */
    create(model: Uint8Array, options?: object): Promise<unknown>;
  };
  /** The class of inputs and outputs. */
  readonly Tensor: unknown;
}

/** How two models are run. */
export interface RunOptions extends InputOptions {
  /** Whether to compare what comes out of nodes as well, which shows where the error begins. It takes the memory of all of it. @defaultValue false */
  readonly layers?: boolean | undefined;
  /** The module onnxruntime-web. @defaultValue the one that is installed; pages have to pass it */
  readonly runtime?: Runtime | undefined;
}

/** A value that both models give. */
export interface ComparedOutput {
  /** Its name in the models. */
  readonly name: string;
  /** Its shape in this run. */
  readonly shape: readonly number[];
  /** How far b is from a. Integers count as numbers. */
  readonly error: ErrorMeasures;
  /** Elements that are NaN or infinite in one of them, and another value in the other. `error` leaves them out. */
  readonly mismatched: number;
}

/** What a node of both models gives. */
export interface ComparedLayer extends ComparedOutput {
  /** The operator of the node in a. */
  readonly op: string;
  /** Decibels of SQNR that are lost against the worst of its inputs that were compared. What is beyond 60 dB counts as 60. */
  readonly lossDb: number;
}

/** Why an output was not compared. Programs decide by the kind, never by the text. */
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

/** What two models compute from the same inputs. */
export interface RunReport {
  /** In the order of a. */
  readonly outputs: readonly ComparedOutput[];
  /** Outputs of both that were not compared, with the reason. */
  readonly skippedOutputs: readonly {
    /** Its name in the models. */
    readonly name: string;
    /** Why it cannot be compared. */
    readonly reason: SkippedOutputReason;
  }[];
  /** With `layers`: values that nodes of both main graphs give under one name, in the order of a. */
  readonly layers?: readonly ComparedLayer[];
}
