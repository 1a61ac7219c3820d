// Names of models on the hub, and addresses of its pages.
import { describe, expect, it } from 'vitest';
import { modelInList, modelsInList } from '../../../web/src/convert/folder.js';
import { hubNameOf, hubNameText } from '../../../web/src/hub/names.js';

const commit = '0123456789abcdef0123456789abcdef01234567';

describe('names', () => {
  it.each([
    ['hf:owner/name', { id: 'owner/name' }],
    ['hf://owner/name', { id: 'owner/name' }],
    ['HF:owner/name/', { id: 'owner/name' }],
    ['hf://models/owner/name', { id: 'owner/name' }],
    ['hf:models/name', { id: 'models/name' }],
    ['hf:owner/name:Q4_K_M', { id: 'owner/name', tag: 'Q4_K_M' }],
    ['hf:owner/name@main:UD-Q4_K_XL', { id: 'owner/name', revision: 'main', tag: 'UD-Q4_K_XL' }],
    ['hf:owner/name@v1.0', { id: 'owner/name', revision: 'v1.0' }],
    [`hf:owner/name@${commit}/a.gguf`, { id: 'owner/name', revision: commit, path: 'a.gguf' }],
    ['hf:owner/name@refs/pr/3/sub/a.gguf', { id: 'owner/name', revision: 'refs/pr/3', path: 'sub/a.gguf' }],
    ['hf:owner/name@refs/convert/onnx', { id: 'owner/name', revision: 'refs/convert/onnx' }],
    ['hf:owner/name@feature%2Fx/a b.gguf', { id: 'owner/name', revision: 'feature/x', path: 'a b.gguf' }],
    ['hf:owner/name/100%.gguf', { id: 'owner/name', path: '100%.gguf' }],
    ['https://huggingface.co/owner/name', { id: 'owner/name' }],
    ['https://hf.co/owner/name/', { id: 'owner/name' }],
    ['http://huggingface.co/owner/name?library=transformers#x', { id: 'owner/name' }],
    ['https://huggingface.co/owner/name?show_file_info=a.gguf', { id: 'owner/name', path: 'a.gguf' }],
    ['https://huggingface.co/owner/name/tree/main', { id: 'owner/name', revision: 'main' }],
    ['https://huggingface.co/owner/name/tree/v1/onnx', { id: 'owner/name', revision: 'v1', path: 'onnx' }],
    [
      'https://huggingface.co/owner/name/blob/main/a%20b.gguf',
      { id: 'owner/name', revision: 'main', path: 'a b.gguf' },
    ],
    [
      'https://huggingface.co/owner/name/resolve/refs%2Fpr%2F1/a.gguf?download=true',
      { id: 'owner/name', revision: 'refs/pr/1', path: 'a.gguf' },
    ],
    [
      'https://huggingface.co/owner/name/raw/refs/pr/1/a.json',
      { id: 'owner/name', revision: 'refs/pr/1', path: 'a.json' },
    ],
    [
      'https://huggingface.co/owner/name/blame/main/config.json',
      { id: 'owner/name', revision: 'main', path: 'config.json' },
    ],
    [new URL('https://hub.example/base/owner/name/tree/main'), { id: 'owner/name', revision: 'main' }],
  ])('%s', (text, name) => {
    expect(hubNameOf(text, 'https://hub.example/base')).toEqual(name);
    // The text of a name means the same.
    expect(hubNameOf(hubNameText(name))).toEqual(name);
  });

  it.each([
    'model.gguf',
    'owner/name',
    'https://example.org/owner/name',
    'https://us.aws.cdn.hf.co/xet-bridge-us/1/2',
    'https://huggingface.co/api/models/owner/name',
    'file:///owner/name',
    new Uint8Array(1),
    undefined,
  ])('%s is no name of the hub', (text) => {
    expect(hubNameOf(text)).toBeUndefined();
  });

  it.each([
    'hf:',
    'hf:gpt2',
    'hf:owner/name@',
    'hf:owner/name:',
    'hf:owner/../secret',
    'hf:owner/name/../other/a.gguf',
    'hf:owner/name/a/../../b',
    'hf:owner/name//a',
    'hf:owner/name/a\\..\\b',
    'hf:owner/name@../../x',
    'hf:owner/na--me',
    'hf:owner/name.git',
    'hf:-owner/name',
    `hf:owner/${'n'.repeat(97)}`,
    'hf:datasets/owner/name',
    'hf://spaces/owner/name',
    'https://huggingface.co/datasets/owner/name',
    'https://huggingface.co/models',
    'https://huggingface.co/owner/name/discussions/1',
    'https://huggingface.co/owner/name/tree',
    'https://huggingface.co/owner/name/resolve/main/..%2F..%2Fx',
    'https://huggingface.co/owner/name/resolve/main/%ff',
  ])('%s is refused', (text) => {
    expect(() => hubNameOf(text)).toThrow('file: expected the name of a model on the hub');
  });
});

describe('the model among the files of a repository', () => {
  it.each<[string, string[], string | undefined, string[]]>([
    [
      'an index before copies in other formats',
      [
        'model-00001-of-00002.safetensors',
        'model-00002-of-00002.safetensors',
        'model.safetensors.index.json',
        'pytorch_model.bin',
        'consolidated.safetensors',
        'original/consolidated.00.pth',
        'onnx/model.onnx',
      ],
      undefined,
      ['model.safetensors.index.json'],
    ],
    [
      'the largest type',
      ['n-Q4_K_M.gguf', 'n-BF16.gguf', 'n-Q8_0.gguf', 'mmproj-F16.gguf'],
      undefined,
      ['n-BF16.gguf'],
    ],
    [
      'the first of a split file',
      ['BF16/n-BF16-00001-of-00002.gguf', 'BF16/n-BF16-00002-of-00002.gguf', 'n.imatrix'],
      undefined,
      ['BF16/n-BF16-00001-of-00002.gguf'],
    ],
    ['two of one type', ['a-F16.gguf', 'b-F16.gguf'], undefined, ['a-F16.gguf', 'b-F16.gguf']],
    ['small types', ['n-Q4_K_M.gguf', 'n-Q5_K_M.gguf'], undefined, ['n-Q4_K_M.gguf', 'n-Q5_K_M.gguf']],
    ['a tag', ['n-Q4_K_M.gguf', 'n-Q4_K_S.gguf', 'n-IQ4_XS.gguf'], 'q4_k_m', ['n-Q4_K_M.gguf']],
    ['a tag with UD', ['n-UD-Q4_K_XL.gguf', 'n-Q4_K_XL.gguf'], 'Q4_K_XL', ['n-Q4_K_XL.gguf']],
    ['the last type of a name', ['F16-lora-Q8_0.gguf', 'x-F16.gguf'], 'F16', ['x-F16.gguf']],
    ['the type of a folder', ['Q8_0/n.gguf', 'BF16/n.gguf'], 'Q8_0', ['Q8_0/n.gguf']],
    ['a tag of ONNX', ['onnx/model.onnx', 'onnx/model_q4.onnx', 'config.json'], 'q4', ['onnx/model_q4.onnx']],
    ['transformers.js', ['onnx/model.onnx', 'onnx/model_q4.onnx', 'config.json'], undefined, ['onnx/model.onnx']],
    [
      'a pipeline',
      [
        'model_index.json',
        'vae/diffusion_pytorch_model.safetensors',
        'transformer/diffusion_pytorch_model.safetensors',
      ],
      undefined,
      ['transformer/diffusion_pytorch_model.safetensors'],
    ],
  ])('%s', (_, paths, tag, found) => {
    expect(modelsInList(paths, tag)).toEqual(found);
  });

  it('a question has the choices as data', () => {
    const name = (choice: object) => `hf:o/n${JSON.stringify(choice)}`;
    const ask = (paths: string[], tag?: string) => () => modelInList(paths, tag, 'o/n', name);
    const tags = ['Q4_K_M', 'Q5_K_M'].map((tag) => name({ tag }));
    expect(ask(['n-Q4_K_M.gguf', 'n-Q5_K_M.gguf'])).toThrow(
      expect.objectContaining({ code: 'NOT_FOUND', hint: { kind: 'didYouMean', names: tags } }),
    );
    expect(ask(['n-Q4_K_M.gguf', 'n-Q5_K_M.gguf'], 'Q2_K')).toThrow(
      expect.objectContaining({
        message: expect.stringContaining('o/n has no file of the type Q2_K'),
        hint: { kind: 'didYouMean', names: tags },
      }),
    );
    const paths = ['a-F16.gguf', 'b-F16.gguf'];
    expect(ask(paths)).toThrow(
      expect.objectContaining({ hint: { kind: 'didYouMean', names: paths.map((path) => name({ path })) } }),
    );
    expect(ask(['README.md'])).toThrow(/^o\/n holds no .*\.gguf/);
  });
});
