/**
 * Forms of chats, as mlc-chat-config.json describes them.
 * Reference: github.com/mlc-ai/mlc-llm at 01ced331, python/mlc_llm/conversation_template/ and protocol/conversation_protocol.py. System
 * messages are ours. Ids of tokens are looked up in the tokenizer, because fine-tunes may have other ones.
 */
import { type Note, noteOf } from '../../core/note.js';

interface ChatTemplate {
  /** A text in the chat templates of tokenizers that have this form. */
  readonly marker: string;
  readonly system: string;
  readonly roles: Readonly<Record<string, string>>;
  readonly separators: readonly string[];
  /** Between a role and its message, and behind the role whose message comes next. */
  readonly afterRole: readonly [string, string];
  readonly stopTexts: readonly string[];
  /** Tokens that end a message. Those that the tokenizer lacks are left out. */
  readonly stopTokens: readonly string[];
  /** The token at the start of a chat. */
  readonly firstToken?: string;
  /** False if the first user message continues the system message. */
  readonly repeatsRole?: boolean;
}

const chatml = {
  marker: '<|im_start|>',
  system: '<|im_start|>system\n{system_message}<|im_end|>\n',
  roles: { user: '<|im_start|>user', assistant: '<|im_start|>assistant' },
  separators: ['<|im_end|>\n'],
  afterRole: ['\n', '\n'],
} as const;

const llama3 = {
  marker: '<|start_header_id|>',
  system: '<|start_header_id|>system<|end_header_id|>\n\n{system_message}<|eot_id|>',
  separators: ['<|eot_id|>'],
  afterRole: ['<|end_header_id|>\n\n', '<|end_header_id|>\n\n'],
  firstToken: '<|begin_of_text|>',
} as const;

const table = {
  'llama-3_1': {
    ...llama3,
    roles: {
      user: '<|start_header_id|>user',
      assistant: '<|start_header_id|>assistant',
      tool: '<|start_header_id|>ipython',
    },
    stopTexts: [],
    stopTokens: ['<|end_of_text|>', '<|eom_id|>', '<|eot_id|>'],
  },
  'llama-3': {
    ...llama3,
    roles: { user: '<|start_header_id|>user', assistant: '<|start_header_id|>assistant' },
    stopTexts: ['<|end_of_text|>', '<|eot_id|>'],
    stopTokens: ['<|end_of_text|>', '<|eot_id|>'],
  },
  chatml: { ...chatml, stopTexts: ['<|im_end|>'], stopTokens: ['<|im_end|>', '<|endoftext|>'] },
  qwen2: { ...chatml, stopTexts: ['<|endoftext|>', '<|im_end|>'], stopTokens: ['<|endoftext|>', '<|im_end|>'] },
  gemma_instruction: {
    marker: '<start_of_turn>',
    system: '<bos>{system_message}',
    roles: { user: '<start_of_turn>user', assistant: '<start_of_turn>model' },
    separators: ['<end_of_turn>\n'],
    afterRole: ['\n', '\n'],
    stopTexts: ['<end_of_turn>'],
    stopTokens: ['<eos>', '<end_of_turn>'],
    firstToken: '<bos>',
  },
  'phi-3': {
    marker: '<|end|>',
    system: '<|system|>\n{system_message}',
    roles: { user: '<|user|>', assistant: '<|assistant|>' },
    separators: ['<|end|>\n'],
    afterRole: ['\n', '\n'],
    stopTexts: ['<|endoftext|>'],
    stopTokens: ['<|endoftext|>', '<|assistant|>', '<|end|>'],
    firstToken: '<s>',
  },
  tinyllama_v1_0: {
    marker: '<|user|>',
    system: '<|system|>\n{system_message}</s>',
    roles: { user: '<|user|>', assistant: '<|assistant|>' },
    separators: ['</s>'],
    afterRole: ['\n', '\n'],
    stopTexts: ['</s>'],
    stopTokens: ['</s>'],
  },
  mistral_default: {
    marker: '[INST]',
    system: '[INST] {system_message}',
    roles: { user: '[INST]', assistant: '[/INST]', tool: '[INST]' },
    separators: [' '],
    afterRole: [' ', ''],
    stopTexts: ['</s>'],
    stopTokens: ['</s>'],
    firstToken: '<s>',
    repeatsRole: false,
  },
  'llama-2': {
    marker: '<<SYS>>',
    system: '[INST] <<SYS>>\n{system_message}\n<</SYS>>\n\n',
    roles: { user: '<s>[INST]', assistant: '[/INST]', tool: '[INST]' },
    separators: [' ', ' </s>'],
    afterRole: [' ', ' '],
    stopTexts: ['[INST]'],
    stopTokens: ['</s>'],
    firstToken: '<s>',
    repeatsRole: false,
  },
} as const satisfies Readonly<Record<string, ChatTemplate>>;

/** The name of a form of chats in MLC-LLM. */
export type TemplateName = keyof typeof table;

/** System message of a chat without one. */
const systemMessage = 'You are a helpful assistant.';

/**
 * The form of chats of a tokenizer's chat template: that of the library's model, if the chat template has its marker; else the first one whose
 * marker it has. Without a match it is that of the library's model, with a note.
 */
export function chooseTemplate(
  chatTemplate: string | undefined,
  { model, template: usual }: { readonly model: string; readonly template: TemplateName },
): [TemplateName, Note[]] {
  const has = (name: TemplateName) => chatTemplate?.includes(table[name].marker) === true;
  if (chatTemplate === undefined || has(usual)) return [usual, []];
  const found = (Object.keys(table) as TemplateName[]).find(has);
  const text =
    found === undefined
      ? `the chat template of the tokenizer has no form that MLC knows; conv_template in mlc-chat-config.json is that of ${model}`
      : `conv_template in mlc-chat-config.json is ${found}, by the chat template of the tokenizer; ${model} has ${usual}`;
  return [found ?? usual, [noteOf('chatTemplate', { template: found ?? usual }, text)]];
}

/** The description of a form. @param idOf the id of a token @param ends further tokens that end a message */
export function conversation(
  name: TemplateName,
  idOf: (token: string) => number | undefined,
  ends: readonly number[],
): Readonly<Record<string, unknown>> {
  const template: ChatTemplate = table[name];
  const { system, roles, separators, afterRole, stopTexts, stopTokens, firstToken, repeatsRole = true } = template;
  const first = firstToken === undefined ? undefined : idOf(firstToken);
  const stops = [...stopTokens.flatMap((token) => idOf(token) ?? []), ...ends];
  return {
    name,
    system_template: system,
    system_message: systemMessage,
    ...(first === undefined ? {} : { system_prefix_token_ids: [first] }),
    add_role_after_system_message: repeatsRole,
    roles,
    role_templates: { user: '{user_message}', assistant: '{assistant_message}', tool: '{tool_message}' },
    messages: [],
    seps: separators,
    role_content_sep: afterRole[0],
    role_empty_sep: afterRole[1],
    stop_str: stopTexts,
    stop_token_ids: [...new Set(stops)].sort((a, b) => a - b),
    function_string: '',
    use_function_calling: false,
  };
}
