import type { Scalepoint } from 'scalepoint';
import { byId, html, markStop, setText } from '../shared/dom.js';
import { readLink, writeLink } from './link.js';
import type { Teller, Telling } from './teller.js';

/** Widths of the slider. */
const stops = [8, 4, 3, 2] as const;

/** Loads the storyteller as soon as its part of the page is near, and has it write. */
export function startTelling(core: Promise<Scalepoint | undefined>): void {
  const form = byId('teller', HTMLFormElement);
  const [begin, bits] = [byId('teller-begin', HTMLInputElement), byId('teller-bits', HTMLInputElement)];
  const [groups, search] = [byId('teller-groups', HTMLInputElement), byId('teller-search', HTMLInputElement)];
  const link = readLink(location.hash);
  begin.value = link.begin ?? begin.defaultValue;
  bits.max = String(stops.length - 1);
  bits.value = String(Math.max(0, stops.indexOf((link.tellBits ?? 3) as (typeof stops)[number])));
  [groups.checked, search.checked] = [link.groups ?? groups.defaultChecked, link.search ?? search.defaultChecked];
  byId('teller-stops', HTMLElement).append(...stops.map((stop) => html('span', {}, String(stop))));

  const current = (): Telling => ({
    begin: begin.value,
    bits: stops[bits.valueAsNumber] ?? 3,
    groups: groups.checked,
    search: search.checked,
  });
  const showStop = () => {
    bits.setAttribute('aria-valuetext', `${current().bits} bits`);
    markStop(byId('teller-stops', HTMLElement), bits.valueAsNumber);
  };
  showStop();

  let teller: Promise<Teller | undefined> | undefined;
  const words = byId('teller-words', HTMLElement);
  const fail = (text: string) => {
    words.classList.add('failed');
    setText(words, text);
  };
  const open = async (): Promise<Teller | undefined> => {
    const [loaded, part] = await Promise.all([core, import('./teller.js')]);
    if (loaded === undefined) {
      fail('This cannot be computed here: see the message at the top.');
      return undefined;
    }
    try {
      return await part.Teller.open(loaded);
    } catch (error) {
      // The next press tries again.
      teller = undefined;
      fail(part.explainTeller(error));
      return undefined;
    }
  };
  const write = async () => {
    teller ??= open();
    const opened = await teller;
    try {
      await opened?.write(current());
    } catch (error) {
      fail((await import('./teller.js')).explainTeller(error));
    }
  };
  const remember = () => {
    const { begin: text, bits: width, groups: hasGroups, search: searches } = current();
    writeLink({ begin: text, tellBits: width, groups: hasGroups, search: searches });
  };

  form.addEventListener('submit', (event) => {
    event.preventDefault();
    remember();
    void write();
  });
  bits.addEventListener('input', () => {
    showStop();
    remember();
    void teller?.then((opened) => opened?.choose(current().bits));
  });
  for (const box of [groups, search]) {
    box.addEventListener('change', () => {
      remember();
      void write();
    });
  }
  byId('teller-another', HTMLButtonElement).addEventListener('click', () => {
    void import('./teller.js').then(({ otherBeginning }) => {
      begin.value = otherBeginning(begin.value);
      remember();
      return write();
    });
  });

  const watcher = new IntersectionObserver((entries) => {
    if (!entries.some(({ isIntersecting }) => isIntersecting)) return;
    watcher.disconnect();
    void write();
  });
  watcher.observe(form);
}
