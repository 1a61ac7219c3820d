/** Chat templates of a folder: in tokenizer_config.json, else in their own file. */
import { show } from '../../core/show.js';
import type { GgufKey } from '../../formats/gguf/pairs.js';
import type { Folder } from '../recipe.js';
import { badFolderFile } from './errors.js';
import { decodeText, isObject, type Json, member, parseObject } from './json.js';

const key = 'tokenizer.chat_template';

/** Keys of the templates. A list has one key per name; the template `default` gets the plain key. */
export async function readTemplates(folder: Folder, settings: Json | undefined): Promise<readonly GgufKey[]> {
  const template = member(settings, 'chat_template') ?? (await templateFile(folder));
  if (template === undefined) return [];
  if (typeof template === 'string') return [{ name: key, type: 'string', value: template }];
  if (!Array.isArray(template))
    return badFolderFile(
      'tokenizer_config.json',
      `chat_template has to be a string or an array, got ${show(template)}`,
    );
  const named = new Map<string, string>();
  for (const entry of (template as unknown[]).filter(isObject)) {
    const [name, text] = [member(entry, 'name'), member(entry, 'template')];
    if (typeof name === 'string' && name !== '' && typeof text === 'string')
      named.set(name.replace(/[^A-Za-z0-9]/g, '_'), text);
  }
  const others = [...named].filter(([name]) => name !== 'default');
  const standard = named.get('default');
  return [
    ...others.map(([name, value]): GgufKey => ({ name: `${key}.${name}`, type: 'string', value })),
    ...(others.length === 0
      ? []
      : [{ name: 'tokenizer.chat_templates', type: 'string[]', value: others.map(([name]) => name) } as const]),
    ...(standard === undefined ? [] : [{ name: key, type: 'string', value: standard } as const]),
  ];
}

async function templateFile(folder: Folder): Promise<unknown> {
  const jinja = await folder.file('chat_template.jinja');
  if (jinja !== undefined) return decodeText('chat_template.jinja', jinja);
  const json = await folder.file('chat_template.json');
  return json === undefined ? undefined : member(parseObject('chat_template.json', json), 'chat_template');
}
