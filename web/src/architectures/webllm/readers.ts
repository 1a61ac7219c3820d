/** Code that loads a result in WebLLM. Reference: github.com/mlc-ai/web-llm at 1611447c, src/support.ts (cleanModelUrl). */
import type { Reader } from '../../formats/format.js';

/** Address under which WebLLM looks for the files of a model. */
export const webllmPlace = (name: string) => `https://HOST/${name}/resolve/main/`;

/** Programs that read a result. @param library the name of the model in `prebuiltAppConfig` whose library it uses */
export function webllmReaders(library: string, name: string): readonly Reader[] {
  const code =
    `import { CreateMLCEngine, prebuiltAppConfig } from '@mlc-ai/web-llm';\n` +
    `const { model_lib } = prebuiltAppConfig.model_list.find((m) => m.model_id === '${library}');\n` +
    `const model_list = [{ model: 'https://HOST/${name}', model_id: '${name}', model_lib }];\n` +
    `const engine = await CreateMLCEngine('${name}', { appConfig: { model_list } });`;
  return [{ program: 'WebLLM', code, needs: `Serve the files from ${webllmPlace(name)}.` }];
}
