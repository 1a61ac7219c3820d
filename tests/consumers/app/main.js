// The same in a page: on its main thread and inside of a worker.
import { run } from './app.js';

function inWorker() {
  const worker = new Worker(new URL('./inside.js', import.meta.url), { type: 'module' });
  return new Promise((done, fail) => {
    worker.onmessage = ({ data }) => done(data);
    worker.onerror = (event) => fail(new Error(event.message || 'the worker did not load'));
  });
}

globalThis.answer = Promise.all([run(), inWorker()]).catch((error) => [{ hash: String(error), note: '' }]);
