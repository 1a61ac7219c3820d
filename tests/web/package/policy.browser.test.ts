// Pages with a Content-Security-Policy.
import { describe, expect, it } from 'vitest';

const entry = new URL('../../../web/src/index.ts', import.meta.url).href;

/** The result of `load` in a page with this policy for scripts: a code, or the error. */
async function loadUnder(policy: string): Promise<string> {
  const frame = document.createElement('iframe');
  const answer = new Promise<string>((resolve) => {
    addEventListener('message', function listen(event) {
      if (event.source !== frame.contentWindow) return;
      removeEventListener('message', listen);
      resolve(String(event.data));
    });
  });
  frame.srcdoc = `<!doctype html>
    <meta http-equiv="Content-Security-Policy" content="script-src 'self' 'unsafe-inline' ${policy}">
    <script type="module">
      const say = (text) => parent.postMessage(text, '*');
      import(${JSON.stringify(entry)})
        .then(({ load }) => load())
        .then((sp) => say('code ' + sp.quantize([1, 2]).data[0]), (error) => say(error.code + ': ' + error.message));
    </script>`;
  document.body.append(frame);
  try {
    return await answer;
  } finally {
    frame.remove();
  }
}

describe('a page with a Content-Security-Policy', () => {
  it("runs the core when it allows 'wasm-unsafe-eval', without 'unsafe-eval'", async () => {
    expect(await loadUnder("'wasm-unsafe-eval'")).toBe('code 64');
  });

  it("gets an error that names 'wasm-unsafe-eval' when it does not", async () => {
    const message = await loadUnder('');
    expect(message).toMatch(/^CSP: /);
    expect(message).toContain("'wasm-unsafe-eval'");
  });
});
