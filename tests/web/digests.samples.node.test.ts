// Compares results of sample models with the digests in tests/golden/digests-models.json.
import { join } from 'node:path';
import { inspectModel, type QuantizeModelOptions } from 'scalepoint/model';
import { afterAll, describe, it } from 'vitest';
import { ggufTargets } from '../../web/src/formats/gguf/targets.js';
import recorded from '../golden/digests-models.json' with { type: 'json' };
import { digestOf, Golden } from './support/digests.js';
import { digestsOf } from './support/model-digests.js';
import { plain } from './support/models.js';

const golden = new Golden('digests-models.json', recorded);
afterAll(() => golden.save());

const samples = process.env.SCALEPOINT_SAMPLES;

describe.skipIf(samples === undefined)('sample models', () => {
  const at = (name: string) => join(samples as string, name);
  const short = [
    { to: 'int8' },
    { to: 'int8', ...plain },
    { to: 'int8', include: 'all' },
    { to: 'int8', activations: 'int8-dynamic' },
    { to: 'int4', granularity: { kind: 'per-group', groupSize: 32 } },
    { to: 'int4', scheme: 'asymmetric', range: 'mse' },
    { to: 'float8e4m3fn' },
    { to: 'float16' },
    { to: 'bfloat16' },
  ] as const satisfies readonly QuantizeModelOptions[];

  it.each([
    'mlp.safetensors',
    'burn_multi_layer.safetensors',
    'silero_vad_16k.safetensors',
    'tinystories-656k/model.safetensors',
  ])('%s', async (name) => {
    const info = await inspectModel(at(name));
    golden.check(`sample ${name}`, { ...(await digestsOf(at(name), short)), inspect: await digestOf(info) });
  });

  it('tiny-llama-f16.gguf', async () => {
    const name = 'tiny-llama-f16.gguf';
    const list = ggufTargets.map((to) => ({ to }));
    const info = await inspectModel(at(name));
    golden.check(`sample ${name}`, { ...(await digestsOf(at(name), list)), inspect: await digestOf(info) });
  });
});
