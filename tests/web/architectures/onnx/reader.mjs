// Runs jobs in a transformers.js, in Node or in a page. As a program: node reader.mjs ENTRY, with jobs as JSON on standard input, and answers on
// standard output.

/**
 * @typedef {object} Job
 * @property {'cpu' | 'wasm' | 'webgpu'} device
 * @property {string} name of the folder
 * @property {string} task of a pipeline, or `sentence` for the vectors of texts
 * @property {object} options such as the dtype
 * @property {(string | string[])[]} calls texts of each call
 * @property {object} [call] options of the calls
 */

/** @param {{ dims: number[], data: Iterable<number> }} tensor */
const plain = ({ dims, data }) => ({ dims, data: [...data] });

/**
 * @param {any} transformers the module
 * @param {{ place: string, jobs: Job[] }} work
 * @returns {Promise<unknown[][]>} the answer to each call of each job
 */
export async function answer({ env, pipeline, AutoModel, AutoTokenizer }, { place, jobs }) {
  const own = { allowRemoteModels: false, allowLocalModels: true, useFSCache: false, useBrowserCache: false };
  Object.assign(env, { ...own, useWasmCache: false, localModelPath: place });
  const answers = [];
  for (const { device, name, task, options, calls, call } of jobs) {
    const found = [];
    if (task === 'sentence') {
      const tokenizer = await AutoTokenizer.from_pretrained(name);
      const model = await AutoModel.from_pretrained(name, { device, ...options });
      for (const texts of calls)
        found.push(plain((await model(tokenizer(texts, { padding: true, truncation: true }))).sentence_embedding));
      await model.dispose();
    } else {
      const run = await pipeline(task, name, { device, ...options });
      for (const texts of calls) {
        const result = await run(texts, call);
        found.push('dims' in result ? plain(result) : result);
      }
      await run.dispose();
    }
    answers.push(found);
  }
  return answers;
}

if (globalThis.process?.argv[2] !== undefined && import.meta.filename === process.argv[1]) {
  const parts = [];
  for await (const part of process.stdin) parts.push(part);
  const transformers = await import(process.argv[2]);
  const answers = await answer(transformers, JSON.parse(Buffer.concat(parts).toString()));
  process.stdout.write(JSON.stringify(answers));
}
