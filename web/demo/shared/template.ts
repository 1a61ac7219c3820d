// Templates of the pages: lit-html, and what the pages add to it.
import { type ElementPart, html, noChange, render, type TemplateResult } from 'lit-html';
import { Directive, directive } from 'lit-html/directive.js';
import { byId, onResize } from './dom.js';
import { watchScrollBox } from './scroll.js';

export { html, noChange, nothing, render, svg, type TemplateResult } from 'lit-html';
export { live } from 'lit-html/directives/live.js';
export { repeat } from 'lit-html/directives/repeat.js';

/** A name, which may break after its dots, slashes and underscores. */
export const breakable = (name: string): readonly (string | TemplateResult)[] =>
  name.split(/(?<=[./_-])/).map((part, i) => (i === 0 ? part : html`<wbr>${part}`));

class PictureDirective extends Directive {
  #draw: (node: Element) => void = () => {};
  #facts: readonly unknown[] | undefined;

  override render(_draw: (node: Element) => void, _facts: readonly unknown[]): unknown {
    return noChange;
  }

  override update({ element }: ElementPart, [draw, facts]: Parameters<this['render']>): unknown {
    const before = this.#facts;
    this.#draw = draw;
    this.#facts = facts;
    const redraw = () => {
      // What is hidden has no room. It is drawn when it gets some.
      if (element.getBoundingClientRect().width > 0) this.#draw(element);
    };
    if (before === undefined) onResize(element, redraw);
    // Wait for the rest of the page, which decides about the size.
    else if (facts.some((fact, i) => fact !== before[i])) queueMicrotask(redraw);
    return noChange;
  }
}
const pictureDirective = directive(PictureDirective);

/** Has an element drawn: at first, when it has got another size, and when a fact has changed that the drawing depends on. */
export const picture = <Node extends Element>(draw: (node: Node) => void, facts: readonly unknown[]) =>
  pictureDirective(draw as (node: Element) => void, facts);

class ScrollBoxDirective extends Directive {
  #isWatched = false;

  override render(): unknown {
    return noChange;
  }

  override update({ element }: ElementPart): unknown {
    // Its children are rendered after it.
    if (!this.#isWatched) queueMicrotask(() => watchScrollBox(element));
    this.#isWatched = true;
    return noChange;
  }
}

/** Makes a box that scrolls reachable by keyboard. */
export const scrollBox = directive(ScrollBoxDirective);

/**
 * Renders, and keeps the focus: an element that was moved loses it. If it is hidden, disabled or gone afterwards, the focus goes to the first
 * element of its `data-next` that takes it, as in `#size then #size-measure`.
 */
export function renderWithFocus(draw: () => void): void {
  const focused = document.activeElement;
  const next = focused instanceof HTMLElement ? focused.dataset.next : undefined;
  draw();
  if (!(focused instanceof HTMLElement) || (focused === document.activeElement && next === undefined)) return;
  if (focused.isConnected && focused.getClientRects().length > 0 && !focused.matches(':disabled')) {
    if (focused !== document.activeElement) focused.focus({ preventScroll: true });
    return;
  }
  for (const selector of next?.split(' then ') ?? []) {
    const node = document.querySelector<HTMLElement>(selector);
    node?.focus({ preventScroll: true });
    if (node !== null && document.activeElement === node) return;
  }
}

/**
 * Makes the function that renders the page of now into its main element, above its static notes. It keeps the focus, and returns false
 * once another page has taken the place of this one: see `visit`.
 */
export function pageRenderer(): (page: TemplateResult) => boolean {
  const main = byId('main', HTMLElement);
  const renderBefore = main.querySelector<HTMLElement>(':scope > .notes');
  return (page) => {
    if (main.isConnected) renderWithFocus(() => render(page, main, { renderBefore }));
    return main.isConnected;
  };
}

/** A function that returns its last result as long as its arguments stay the same. */
export function remembered<Given extends readonly unknown[], Result>(
  compute: (...given: Given) => Result,
): (...given: Given) => Result {
  let last: { readonly given: Given; readonly result: Result } | undefined;
  return (...given) => {
    const known = last;
    if (known !== undefined && given.every((one, i) => one === known.given[i])) return known.result;
    last = { given, result: compute(...given) };
    return last.result;
  };
}
