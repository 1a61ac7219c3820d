/**
 * Versions of operators. A newer version number changes what some operators mean. A number is raised only if the model has none of those.
 * Reference: github.com/onnx/onnx, onnx/version_converter/convert.h
 */
import type { Graphs, Scope } from './graph.js';

/** Operators that a version gave another meaning, or other inputs in place of attributes. */
const changes: Readonly<Record<number, readonly string[]>> = {
  7: [
    'Gemm',
    'Upsample',
    'BatchNormalization',
    'Dropout',
    'Add',
    'Sub',
    'Mul',
    'Div',
    'Pow',
    'And',
    'Or',
    'Xor',
    'Equal',
    'Greater',
    'Less',
    'PRelu',
  ],
  8: ['Expand'],
  9: ['BatchNormalization', 'Scan', 'Upsample'],
  10: ['Slice', 'TopK', 'Upsample'],
  11: ['Clip', 'Pad', 'Resize', 'Scatter', 'Scan'],
  12: ['Dropout'],
  13: ['Softmax', 'LogSoftmax', 'Hardmax', 'Squeeze', 'Unsqueeze', 'ReduceSum', 'Split'],
  14: ['BatchNormalization'],
  16: ['RoiAlign'],
  18: [
    'ReduceMax',
    'ReduceMin',
    'ReduceMean',
    'ReduceProd',
    'ReduceL1',
    'ReduceL2',
    'ReduceLogSum',
    'ReduceLogSumExp',
    'ReduceSumSquare',
    'Split',
  ],
  20: ['GridSample', 'DFT'],
  21: ['GroupNormalization'],
};

/** The ir_version that goes with a version of ai.onnx. */
const irVersions: readonly [opset: number, ir: number][] = [
  [25, 13],
  [24, 12],
  [23, 11],
  [21, 10],
  [19, 9],
  [15, 8],
  [13, 7],
  [10, 5],
  [9, 4],
];

/** The lowest ir_version for a version of ai.onnx. */
export function irVersionOf(opset: number): number {
  return irVersions.find(([from]) => opset >= from)?.[1] ?? 3;
}

/** Whether the number of a model may be raised. */
export function canRaise(graphs: Graphs, { opsets, function: inFunction }: Scope, to: number): boolean {
  const from = opsets.get('');
  // Functions have numbers of their own.
  if (from === undefined || inFunction !== undefined) return false;
  const changed = new Set(
    Object.entries(changes).flatMap(([version, names]) => (+version > from && +version <= to ? names : [])),
  );
  return !graphs.nodes.some(
    ({ node, graph }) => graphs.scopeOf(graph).function === undefined && node.domain === '' && changed.has(node.opType),
  );
}
