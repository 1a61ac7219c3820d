// The names of the entry points. Types are listed in the API reference.
import { readFileSync } from 'node:fs';
import * as arrays from 'scalepoint';
import * as bench from 'scalepoint/bench';
import * as model from 'scalepoint/model';
import { expect, it } from 'vitest';
import * as inline from '../../../web/src/inline.js';
import * as tooling from '../../../web/src/tooling.js';

const names = (entry: object) => Object.keys(entry).sort();

it('exports these functions, classes and tables', () => {
  expect(names(arrays)).toEqual([
    'ScalepointError',
    'blockTypeInfo',
    'blockTypes',
    'dtypeInfo',
    'dtypes',
    'errorFrom',
    'load',
    'openIndex',
  ]);
  expect(names(model)).toEqual([
    'QualityError',
    'ScalepointError',
    'calibrateModel',
    'compareModels',
    'errorFrom',
    'estimateModel',
    'evaluateModel',
    'fitTypes',
    'hubModel',
    'inspectModel',
    'loadTensors',
    'measureTypes',
    'modelFormats',
    'planModel',
    'presetTarget',
    'pushModel',
    'quantizeModel',
    'readFloats',
    'readQuantized',
    'readTensor',
    'resultFiles',
    'resultName',
    'saveTensors',
    'sizeCurve',
    'tensors',
    'verifyModel',
  ]);
  expect(names(bench)).toEqual(['benchParts', 'benchWeights', 'makeLimits', 'plain', 'race', 'runBench']);
  expect(names(inline)).toEqual([...new Set([...names(arrays), ...names(model)])].sort());
});

it('keeps the names of the command line and the page to itself', () => {
  const { exports } = JSON.parse(readFileSync(new URL('../../../package.json', import.meta.url), 'utf8'));
  expect(JSON.stringify(exports)).not.toContain('tooling');
  const isPublic = new Set([...names(arrays), ...names(model), ...names(bench)]);
  expect(names(tooling).filter((name) => isPublic.has(name))).toEqual([]);
});
