/**
 * Names that the command line and the page need beyond the public API. The package does not export this file, so that its names may change
 * in any release.
 */
import type { ModelPlan } from './model.js';

export { filesBeside, isFileBeside, namesAlong } from './architectures/huggingface/files.js';
export { converters } from './architectures/registry.js';
export { languageArchitectures } from './architectures/traits.js';
export type { ComparedTensor } from './convert/compare.js';
export type { SizePoint, TypeFit } from './convert/fit.js';
export { folderRank, modelInFolder, onnxFolder, pipelineIndex, pipelinePart } from './convert/folder.js';
export { fileInRepository, hubFileOf, namedOnHub, readHubText } from './convert/hub.js';
export { ruleFrom, rulesFrom, rulesText } from './convert/mixture-rules.js';
export { type Preset, presets } from './convert/names.js';
export { targetsByResult, targetsLabel, targetTakes } from './convert/options.js';
export type { ModelTotals } from './convert/plan.js';
export { withOptions } from './convert/plan-model.js';
export { alongOnHub, mostAlong, pathOnHub } from './convert/pushed.js';
export { writeSidecar } from './convert/quantize.js';
export { readPlanned } from './convert/read-planned.js';
export { isModelStart, modelStartBytes, urlOfText } from './convert/recognize.js';
export { usualNames } from './convert/result-name.js';
export { checkFits, checkPlan } from './convert/saved-plan.js';
export { maxWorkers } from './core/check.js';
export { problemOf, rangeError } from './core/errors.js';
export { standsForInfinity } from './core/measure.js';
export { didYouMean } from './core/nearest.js';
export type { NodeFileHandle } from './core/node.js';
export { noteText, type Sentence } from './core/note.js';
export {
  type Expected,
  exactly,
  type Hint,
  isQuestion,
  mention,
  type OptionProblem,
  type OptionWords,
  ofType,
  oneOf,
  onlyWith,
  orList,
  sayHint,
  sayMention,
  sayProblem,
  whole,
  without,
} from './core/option-problem.js';
export { type Flag, flagWords, type NumberForm, readNumber, type Words } from './core/schema.js';
export { show } from './core/show.js';
export { nextTask } from './core/waiting.js';
export { isUnsuited, isWithinErrors } from './evaluate/evaluate.js';
export { mostHeldBytes } from './evaluate/forward.js';
export { type OutputsKind, outputsKind } from './evaluate/outputs.js';
export { type TokenizerContents, tokenizerOf } from './evaluate/texts.js';
export { type TextReader, withReader } from './evaluate/write.js';
export { grouped } from './formats/files/bytes.js';
export { StateFile } from './formats/files/state-file.js';
export type { Finding, FormatInfo, MetadataValue, Target } from './formats/format.js';
export { towerArchitecture } from './formats/gguf/signature.js';
export { mostShare } from './formats/held-back.js';
export { NamePattern } from './formats/name-pattern.js';
export {
  bytesPiece,
  integerField,
  messageBytes,
  nodeFor,
  nodePieces,
  piecesField,
  tensorPieces,
  textField,
  valuePieces,
} from './formats/onnx/file/encode.js';
export { graphField, modelField } from './formats/onnx/file/proto.js';
export type { HostReady } from './formats/onnx/run/host.js';
export { decodeMessage, encodeMessage } from './formats/onnx/run/message.js';
export { aFile, type FormatOption, type OptionTable, type Sidecar } from './formats/options.js';
export { formats } from './formats/registry.js';
export type {
  BackendAnswer,
  BackendJob,
  BackendName,
  BackendReport,
  BackendRun,
  ComparedLayer,
  ComparedOutput,
  GpuAdapter,
  GpuPlacement,
  InputArray,
  NodeCheck,
  OutputsEvaluation,
  RunBackend,
  RunReport,
  UnreachedWeight,
} from './formats/run.js';
export { momentsEnd, rangesEnd } from './formats/statistics.js';
export { askHub } from './hub/ask.js';
export type { CardResult } from './hub/card.js';
export { type HubEntry, type HubListing, listModel } from './hub/listing.js';
export { type HubName, hubNameOf, hubNameText } from './hub/names.js';
export { openPush, type PushFile, type PushOptions } from './hub/push.js';
export { HubFile, HubRepository, openRepository } from './hub/repository.js';
export { type HubSettings, type HubToken, hubEndpoint, hubSettings } from './hub/settings.js';

/** The loss of a result of a given size. */
export type ModelFit = NonNullable<ModelPlan['fit']>;
