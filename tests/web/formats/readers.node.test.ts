// Programs that read a result: those that can, by the names that they look for.
import { resultName } from 'scalepoint/model';
import { expect, it } from 'vitest';
import { formats } from '../../../web/src/tooling.js';

/** Endings of files by dtype. Reference: npm @huggingface/transformers 4.3.2, src/utils/dtypes.js (DEFAULT_DTYPE_SUFFIX_MAPPING). */
const endings: Readonly<Record<string, string>> = {
  fp32: '',
  fp16: '_fp16',
  int8: '_int8',
  uint8: '_uint8',
  q8: '_quantized',
  q4: '_q4',
  q4f16: '_q4f16',
  bnb4: '_bnb4',
};

const formatNamed = (wanted: string) => {
  const found = formats.find(({ name }) => name === wanted);
  if (found === undefined) throw new TypeError(wanted);
  return found;
};
const programs = (format: string, to: string, file: string, architecture?: string) =>
  (formatNamed(format).readers?.(to, file, architecture) ?? []).map(({ program, code }) => `${program}: ${code}`);

it.each(['model.onnx', 'resnet.onnx'])('has transformers.js find the results of %s', (source) => {
  let loaded = 0;
  for (const { name: to } of formatNamed('onnx').targets) {
    const file = resultName(source, { to, format: 'onnx' });
    const all = programs('onnx', to, file);
    expect(all.filter((line) => line.includes(file))).toHaveLength(2);
    const code = all.find((line) => line.startsWith('transformers.js'));
    if (code === undefined) continue;
    const dtype = /dtype: '([^']*)'/.exec(code)?.[1] ?? '';
    const stem = /model_file_name: '([^']*)'/.exec(code)?.[1] ?? 'model';
    expect([to, `${stem}${endings[dtype]}.onnx`]).toEqual([to, file]);
    loaded++;
  }
  // One for each dtype but fp32, and q8-blocks.
  expect(loaded).toBe(Object.keys(endings).length);
});

it('names programs for language models beside these alone', () => {
  expect(programs('safetensors', 'int4', 'a.int4.safetensors').join()).toContain('vLLM');
  expect(programs('safetensors', 'int4', 'a.int4.safetensors', 'llama').join()).toContain('vLLM');
  for (const to of ['int4', 'gptq', 'mlx-4bit']) {
    expect(programs('safetensors', to, 'a.safetensors', '').map((line) => line.split(':')[0])).toEqual(['Scalepoint']);
  }
  expect(programs('gguf', 'Q4_K_M', 'a.gguf', 'llama')[0]).toBe('llama.cpp: llama-cli -m a.gguf -p "Hello"');
  for (const encoder of ['bert', 'nomic-bert', 't5encoder', 'gemma-embedding'])
    expect(programs('gguf', 'Q4_K_M', 'a.gguf', encoder)[0]).toContain('llama-embedding -m a.gguf');
});
