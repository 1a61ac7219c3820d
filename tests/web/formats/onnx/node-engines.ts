// onnxruntime-web in Node, and onnxruntime-node, which is not installed with everything else.
import { existsSync } from 'node:fs';
import { createRequire } from 'node:module';
import { fileURLToPath } from 'node:url';
import * as web from 'onnxruntime-web';
import type { Engine } from './ort.js';

const packages = fileURLToPath(new URL('../../../transformers/node_modules/', import.meta.url));

/** onnxruntime-node; undefined where it is not installed. */
export const nodeEngine: typeof web | undefined = existsSync(`${packages}onnxruntime-node`)
  ? createRequire(packages)('onnxruntime-node')
  : undefined;

export const engines: readonly Engine[] = nodeEngine === undefined ? [web] : [web, nodeEngine];
