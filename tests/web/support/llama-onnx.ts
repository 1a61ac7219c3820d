// Writes a folder of a Llama model as an ONNX model with operators of ai.onnx alone, as exporters lay it out: weights as [inputs, outputs],
// the table as it is, and caches if they are wanted. Shares no code with the package.
import * as onnx from '../formats/onnx/encoder.js';
import { bytesOf } from './models.js';

/** The numbers of config.json that count. */
export interface LlamaConfig {
  readonly hidden_size: number;
  readonly num_hidden_layers: number;
  readonly num_attention_heads: number;
  readonly num_key_value_heads: number;
  readonly rms_norm_eps: number;
  readonly rope_theta: number;
  readonly max_position_embeddings: number;
  readonly vocab_size: number;
}

/** The float32 tensors of a safetensors file. */
function floatsOf(file: Uint8Array): Map<string, { readonly data: Float32Array; readonly shape: readonly number[] }> {
  const length = Number(new DataView(file.buffer, file.byteOffset).getBigUint64(0, true));
  const header = JSON.parse(new TextDecoder().decode(file.subarray(8, 8 + length))) as Record<
    string,
    { readonly dtype: string; readonly shape: readonly number[]; readonly data_offsets: readonly [number, number] }
  >;
  const found = new Map<string, { data: Float32Array; shape: readonly number[] }>();
  for (const [name, { dtype, shape, data_offsets }] of Object.entries(header)) {
    if (name === '__metadata__') continue;
    // Unlike Buffer.slice, this copies.
    const bytes = Uint8Array.prototype.slice.call(file, 8 + length + data_offsets[0], 8 + length + data_offsets[1]);
    if (dtype === 'F32') found.set(name, { data: new Float32Array(bytes.buffer), shape });
    else if (dtype === 'BF16' || dtype === 'F16') {
      const words = new Uint16Array(bytes.buffer);
      const half = (word: number) => {
        const [exponent, fraction] = [(word >>> 10) & 31, word & 1023];
        return (
          (word & 0x8000 ? -1 : 1) * (exponent === 0 ? fraction * 2 ** -24 : (1024 + fraction) * 2 ** (exponent - 25))
        );
      };
      const wide = new Float32Array(Uint32Array.from(words, (word) => word << 16).buffer);
      found.set(name, { data: dtype === 'BF16' ? wide : Float32Array.from(words, half), shape });
    }
  }
  return found;
}

/**
 * The model: input_ids to logits, for texts of any length in one batch.
 * @param hasCache true for inputs and outputs of keys and values, and positions as an input
 */
export function llamaModel(config: LlamaConfig, file: Uint8Array, hasCache = false): Uint8Array<ArrayBuffer> {
  const tensors = floatsOf(file);
  const [heads, keyHeads] = [config.num_attention_heads, config.num_key_value_heads];
  const size = config.hidden_size / heads;
  const nodes: onnx.TestNode[] = [];
  const initializers: onnx.Bytes[] = [];
  let count = 0;
  const add = (
    op: string,
    inputs: readonly string[],
    attributes: onnx.TestNode['attributes'] = {},
    out = `v${count}`,
  ) => {
    nodes.push({ op, name: `${op}_${count++}`, in: inputs, out: [out], attributes });
    return out;
  };
  const store = (name: string, dims: readonly number[], data: Float32Array) => {
    initializers.push(onnx.tensor({ name, dims, raw: bytesOf(data) as Uint8Array<ArrayBuffer> }));
    return name;
  };
  const ints = (name: string, ...values: readonly number[]) => {
    initializers.push(onnx.tensor({ name, type: 7, dims: [values.length], raw: onnx.int64s(values) }));
    return name;
  };
  const one = (name: string, value: number) => store(name, [], Float32Array.of(value));
  const tensor = (name: string) => {
    const found = tensors.get(name);
    if (found === undefined) throw new Error(`there is no ${name}`);
    return found;
  };
  const vector = (name: string) => {
    const { data, shape } = tensor(name);
    return store(name, shape, data);
  };
  const linear = (x: string, name: string) => {
    const { data, shape } = tensor(name);
    const [rows, columns] = shape as [number, number];
    const turned = Float32Array.from(data, (_, i) => data[(i % rows) * columns + Math.floor(i / rows)] as number);
    return add('MatMul', [x, store(name, [columns, rows], turned)]);
  };

  // Constants.
  const [epsilon, two] = [one('epsilon', config.rms_norm_eps), one('two', 2)];
  const [sharpness, least, none] = [one('sharpness', 1 / Math.sqrt(size)), one('least', -1e9), one('none', 0)];
  const axes = {
    first: ints('axis0', 0),
    second: ints('axis2', 2),
    half: ints('half', size / 2),
    last: ints('axis3', 3),
  };
  const [zero, end] = [ints('zero', 0), ints('end', size)];
  const angles = (f: (angle: number) => number) =>
    Float32Array.from({ length: (config.max_position_embeddings * size) / 2 }, (_, i) => {
      const [position, pair] = [Math.floor(i / (size / 2)), i % (size / 2)];
      return f(position / config.rope_theta ** ((2 * pair) / size));
    });
  const shape = [config.max_position_embeddings, size / 2];
  const [cosines, sines] = [store('cosines', shape, angles(Math.cos)), store('sines', shape, angles(Math.sin))];
  initializers.push(onnx.tensor({ name: 'n0', type: 7, dims: [], raw: onnx.int64s([0]) }));
  initializers.push(onnx.tensor({ name: 'n1', type: 7, dims: [], raw: onnx.int64s([1]) }));
  initializers.push(onnx.tensor({ name: 'n2', type: 7, dims: [], raw: onnx.int64s([2]) }));

  // Positions, and the mask of later tokens.
  const length = add('Gather', [add('Shape', ['input_ids']), 'n1'], { axis: 0 });
  const past = hasCache ? add('Gather', [add('Shape', ['past_key_values.0.key']), 'n2'], { axis: 0 }) : 'n0';
  const all = hasCache ? add('Add', [past, length]) : length;
  const queries = add('Range', [past, all, 'n1']);
  const positions = hasCache ? add('Squeeze', ['position_ids', axes.first]) : queries;
  const rows = add('Unsqueeze', [queries, ints('axis1', 1)]);
  const isLater = add('Greater', [add('Range', ['n0', all, 'n1']), rows]);
  const mask = add('Where', [isLater, least, none]);
  const turns = [add('Gather', [cosines, positions]), add('Gather', [sines, positions])] as const;
  const norm = (x: string, name: string) => {
    const square = add('ReduceMean', [add('Pow', [x, two])], { axes: [-1], keepdims: 1 });
    return add('Mul', [add('Div', [x, add('Sqrt', [add('Add', [square, epsilon])])]), vector(name)]);
  };
  const rotate = (x: string) => {
    const low = add('Slice', [x, zero, axes.half, axes.last]);
    const high = add('Slice', [x, axes.half, end, axes.last]);
    const [cosine, sine] = turns;
    const a = add('Sub', [add('Mul', [low, cosine]), add('Mul', [high, sine])]);
    const b = add('Add', [add('Mul', [high, cosine]), add('Mul', [low, sine])]);
    return add('Concat', [a, b], { axis: -1 });
  };
  const [byHead, byKeyHead] = [ints('by_head', 0, 0, heads, size), ints('by_key_head', 0, 0, keyHeads, size)];
  const [repeat, repeated] = [ints('repeat', 1, 1, heads / keyHeads, 1, 1), ints('repeated', 1, heads, -1, size)];
  const joined = ints('joined', 0, 0, config.hidden_size);

  // Layers.
  const inputs: onnx.TestValue[] = [['input_ids', ['batch_size', 'sequence_length'], 7]];
  const outputs: onnx.TestValue[] = [['logits', ['batch_size', 'sequence_length', config.vocab_size]]];
  if (hasCache) inputs.push(['position_ids', ['batch_size', 'sequence_length'], 7]);
  // A table that is also the head may be stored under the name of either.
  const isTied = !tensors.has('lm_head.weight') || !tensors.has('model.embed_tokens.weight');
  const table = vector(tensors.has('model.embed_tokens.weight') ? 'model.embed_tokens.weight' : 'lm_head.weight');
  let x = add('Gather', [table, 'input_ids']);
  for (let layer = 0; layer < config.num_hidden_layers; layer++) {
    const own = (name: string) => `model.layers.${layer}.${name}.weight`;
    const normed = norm(x, own('input_layernorm'));
    const split = (name: string, by: string) =>
      add('Transpose', [add('Reshape', [linear(normed, own(`self_attn.${name}_proj`)), by])], { perm: [0, 2, 1, 3] });
    const query = rotate(split('q', byHead));
    const [key, value] = [
      ['key', rotate(split('k', byKeyHead))],
      ['value', split('v', byKeyHead)],
    ].map(([kind, made]) => {
      let whole = made as string;
      if (hasCache) {
        const cache = (what: string, n: string): onnx.TestValue => [
          `${what}.${layer}.${kind}`,
          ['batch_size', keyHeads, n, size],
        ];
        inputs.push(cache('past_key_values', 'past_sequence_length'));
        outputs.push(cache('present', 'past_sequence_length + sequence_length'));
        whole = add('Concat', [`past_key_values.${layer}.${kind}`, whole], { axis: 2 }, `present.${layer}.${kind}`);
      }
      return add('Reshape', [add('Expand', [add('Unsqueeze', [whole, axes.second]), repeat]), repeated]);
    }) as [string, string];
    const product = add('MatMul', [query, add('Transpose', [key], { perm: [0, 1, 3, 2] })]);
    const scores = add('Add', [add('Mul', [product, sharpness]), mask]);
    const mixed = add('MatMul', [add('Softmax', [scores], { axis: -1 }), value]);
    const heading = add('Reshape', [add('Transpose', [mixed], { perm: [0, 2, 1, 3] }), joined]);
    x = add('Add', [x, linear(heading, own('self_attn.o_proj'))]);
    const after = norm(x, own('post_attention_layernorm'));
    const gate = linear(after, own('mlp.gate_proj'));
    const bent = add('Mul', [add('Mul', [gate, add('Sigmoid', [gate])]), linear(after, own('mlp.up_proj'))]);
    x = add('Add', [x, linear(bent, own('mlp.down_proj'))]);
  }
  const last = norm(x, 'model.norm.weight');
  const head = isTied ? add('Transpose', [table], { perm: [1, 0] }) : undefined;
  if (head === undefined) nodes.push({ op: 'Identity', in: [linear(last, 'lm_head.weight')], out: ['logits'] });
  else add('MatMul', [last, head], {}, 'logits');
  return onnx.model({ nodes, initializers, inputs, outputs });
}
