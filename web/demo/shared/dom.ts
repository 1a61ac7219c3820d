const svgNamespace = 'http://www.w3.org/2000/svg';

/** Attributes of a new element. An attribute whose value is false is left out. */
export type Attributes = Readonly<Record<string, string | number | false>>;

/**
 * The element with an id.
 * @throws TypeError if the page lacks an element of that type with this id, which is a mistake in the markup
 */
export function byId<T extends Element>(id: string, type: abstract new (...args: never[]) => T): T {
  const found = document.getElementById(id);
  if (!(found instanceof type)) throw new TypeError(`#${id} is not a ${type.name}`);
  return found;
}

/** Creates an SVG element. */
export function svg<K extends keyof SVGElementTagNameMap>(
  name: K,
  attributes: Attributes = {},
  ...children: (Node | string)[]
): SVGElementTagNameMap[K] {
  const node = document.createElementNS(svgNamespace, name);
  for (const [attribute, value] of Object.entries(attributes)) {
    if (value !== false) node.setAttribute(attribute, String(value));
  }
  node.append(...children);
  return node;
}

/** Longest time to the next frame in milliseconds. Browsers draw no frames of pages that nobody sees. */
const frameMilliseconds = 1000;

/** Calls a function once, with the next frame. Returns a function that prevents that. */
export function onFrame(action: () => void): () => void {
  const stop = () => {
    cancelAnimationFrame(frame);
    clearTimeout(timer);
  };
  const act = () => {
    stop();
    action();
  };
  const frame = requestAnimationFrame(act);
  const timer = setTimeout(act, frameMilliseconds);
  return stop;
}

/** Calls a function when an element has got another size, and at first. It ends when the element has left the document. */
export function onResize(node: Element, action: () => void): void {
  const observer = new ResizeObserver(() => {
    if (node.isConnected) action();
    else observer.disconnect();
  });
  observer.observe(node);
}

/** Calls a function when the colors have changed, as long as the element is in the document. */
export function onTheme(node: Element, action: () => void): void {
  const redraw = () => {
    if (node.isConnected) action();
  };
  matchMedia('(prefers-color-scheme: dark)').addEventListener('change', redraw);
  new MutationObserver(redraw).observe(document.documentElement, { attributeFilter: ['data-theme'] });
}

/** Sets the text of a node if it differs. Setting the same text would repaint it and make screen readers repeat it. */
export function setText(node: Element, text: string): void {
  if (node.textContent !== text) node.textContent = text;
}
