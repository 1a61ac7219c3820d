// The examples of the README, the guide and doc comments as programs in TypeScript, to be compiled as users compile them.
import { readdirSync, readFileSync } from 'node:fs';
import { fileURLToPath } from 'node:url';
import { guidePages } from '../../../web/demo/guide/build.mjs';

const root = fileURLToPath(new URL('../../..', import.meta.url));

/** A piece of code with its language, such as `ts` or `js browser`. */
export interface CodeBlock {
  readonly language: string;
  readonly code: string;
}

/** The pieces of code of a Markdown text. */
export function blocksIn(markdown: string): CodeBlock[] {
  return [...markdown.matchAll(/^```(.*)\n([\s\S]*?)^```$/gm)].map(([, language = '', code = '']) => ({
    language,
    code,
  }));
}

/** True for code that runs in Node. Code that stands alone has a scope of its own. */
export const isProgram = ({ language }: CodeBlock): boolean => /^(js|ts)( alone)?$/.test(language);

/** One module of blocks that follow each other. */
function moduleOf(blocks: readonly CodeBlock[]): string {
  const imports = new Map<string, Set<string>>();
  const body = blocks.map(({ language, code }) => {
    const rest = code.replace(/^import \{([^}]*)\} from '(.*)';\n/gm, (_, names: string, from: string) => {
      const all = names.split(',').map((name) => name.trim());
      imports.set(from, new Set([...(imports.get(from) ?? []), ...all]));
      return '';
    });
    return language.endsWith(' alone') ? `{\n${rest}}\n` : rest;
  });
  const heads = [...imports].map(([from, names]) => `import { ${[...names].join(', ')} } from '${from}';`);
  return [...heads, ...body, 'export {};', ''].join('\n');
}

/** Declarations of names that the examples of doc comments use. */
const given = `import { load, openIndex } from 'scalepoint';
import { runBench } from 'scalepoint/bench';
import * as models from 'scalepoint/model';
import type { FloatInput, Layer, LinearQuantizedTensor, Scalepoint, VectorIndex } from 'scalepoint';
import type { ModelInput, ModelOutput, TypeTable } from 'scalepoint/model';
const { calibrateModel, compareModels, estimateModel, evaluateModel, fitTypes, inspectModel, loadTensors, measureTypes, modelFormats } = models;
const { hubModel, planModel, presetTarget, pushModel, quantizeModel, readFloats, readQuantized, readTensor, resultName } = models;
const { saveTensors, sizeCurve, tensors, verifyModel } = models;
declare const sp: Scalepoint;
declare const q: LinearQuantizedTensor;
declare const layer: Layer;
declare const index: VectorIndex;
declare const importance: ReturnType<Scalepoint['importance']>;
declare const [x, weights, vectors, moreVectors, query, queries]: Float32Array[];
declare const outputs: { readonly normalized: { readonly data: Float32Array; readonly dims: readonly number[] } };
declare const batches: readonly FloatInput[];
declare const pieces: readonly (readonly [FloatInput, LinearQuantizedTensor])[];
declare const file: ModelInput;
declare const output: ModelOutput;
declare const blob: Blob;
declare const token: string;
declare const text: string;
declare const planText: string;
declare const table: TypeTable;
declare const model: unknown;
declare function run(model: unknown): void;
declare function writeFile(path: string, bytes: Uint8Array): Promise<void>;
`;

/** The examples in doc comments of declarations that users see. */
function commentExamples(): string[] {
  const dist = `${root}/dist`;
  return readdirSync(dist, { recursive: true, encoding: 'utf8' })
    .filter((name) => name.endsWith('.d.ts'))
    .flatMap((name) => {
      // This file is not public.
      if (/mixture-rules/.test(name)) return [];
      const text = readFileSync(`${dist}/${name}`, 'utf8');
      return [...text.matchAll(/^ *\*? *\/?\**.*@example (.*?)(?: \*\/)?$/gm)].map(([, code = '']) => code);
    });
}

/** The programs by the names of their files. */
export function examplePrograms(): Record<string, string> {
  const programs: Record<string, string> = {
    // The package has no types of React.
    'react.d.ts': `declare module 'react' {
  export function useState<T>(first: T): [T, (next: T) => void];
  export function useEffect(effect: () => () => void, on: readonly unknown[]): void;
}
`,
    // transformers.js is not installed beside the package.
    'transformers.d.ts': `declare module '@huggingface/transformers' {
  export const env: {
    allowLocalModels: boolean;
    allowRemoteModels: boolean;
    localModelPath: string;
    useCustomCache: boolean;
    customCache: { match(path: string): Promise<Response | undefined>; put(path: string, response: Response): Promise<void> } | null;
  };
  type Embedder = (texts: string[], options: object) => Promise<{ readonly data: unknown; readonly dims: readonly number[] }>;
  export function pipeline(task: 'feature-extraction', model: string, options: object): Promise<Embedder>;
  export function pipeline(task: 'text-generation', model: string, options: object): Promise<(text: string, options: object) => Promise<object[]>>;
}
`,
  };
  for (const [i, { code }] of blocksIn(readFileSync(`${root}/README.md`, 'utf8'))
    .filter(isProgram)
    .entries()) {
    const head = /\bfile\b/.test(code) ? 'declare const file: Blob;\n' : '';
    programs[`readme-${i}.mts`] = `${head}${code}`;
  }
  for (const { name, markdown = '' } of guidePages()) {
    const blocks = blocksIn(markdown);
    const page = blocks.filter(isProgram);
    if (page.length > 0) programs[`guide-${name || 'index'}.mts`] = moduleOf(page);
    for (const [i, { language, code }] of blocks.entries()) {
      if (language !== 'js browser' && language !== 'ts transformers') continue;
      programs[`${/^\/\/ ([\w-]+)\.ts\n/.exec(code)?.[1] ?? `${name}-${i}`}.ts`] = code;
    }
  }
  const comments = commentExamples().map((code) => `async () => {\n  ${code}\n};\n`);
  programs['comments.mts'] = given + comments.join('');
  return programs;
}
