import type { Scalepoint } from 'scalepoint';
import { fieldSlider, switchView } from '../shared/controls.js';
import { copy } from '../shared/copy.js';
import { html, live, type TemplateResult } from '../shared/template.js';
import { writeLink } from './link.js';
import type { State, Story, Telling } from './state.js';
import type { Teller } from './teller.js';

/** Widths of the slider. */
const stops = [8, 4, 3, 2] as const;

/** Access to the state. */
interface TellingStore {
  get(): State;
  set(change: Partial<State>): void;
}

/** Actions of the visitor on the storyteller. */
export interface TellingEvents {
  /** Changes the settings. @param isDone true to write anew */
  change(telling: Partial<Telling>, isDone?: boolean): void;
  /** Writes for the first time. */
  begin(): void;
  write(): void;
  /** Takes another beginning. */
  another(): void;
  /** Copies an address that opens at this story. */
  copyLink(): void;
}

/** Sets up the storyteller, which is loaded once it is to write. */
export function startTelling(store: TellingStore, core: Promise<Scalepoint | undefined>): TellingEvents {
  let teller: Promise<Teller> | undefined;
  const open = async (): Promise<Teller> => {
    const [loaded, part] = await Promise.all([core, import('./teller.js')]);
    if (loaded === undefined) throw new part.TellerError('This cannot be computed here: see the message at the top.');
    return part.Teller.open(loaded);
  };
  const write = async () => {
    teller ??= open();
    try {
      await (await teller).write(store.get().telling, (stories) => store.set({ stories, tellerFailure: undefined }));
    } catch (error) {
      // The next press tries again.
      teller = undefined;
      const { explainTeller } = await import('./teller.js');
      store.set({ tellerFailure: explainTeller(error) });
    }
  };
  const remember = () => {
    const { begin, bits, groups, search } = store.get().telling;
    writeLink({ begin, tellBits: bits, groups, search });
  };
  const events: TellingEvents = {
    change(change, isDone = false) {
      store.set({ telling: { ...store.get().telling, ...change } });
      if ('begin' in change) return;
      remember();
      if (isDone) void write();
    },
    begin: () => void write(),
    copyLink() {
      remember();
      void copy(location.href, 'Link');
    },
    write() {
      remember();
      void write();
    },
    async another() {
      const { otherBeginning } = await import('./teller.js');
      const { telling } = store.get();
      store.set({ telling: { ...telling, begin: otherBeginning(telling.begin) } });
      events.write();
    },
  };
  return events;
}

/** The sentence about the story of the chosen width. */
function resultText({ stories, telling: { bits } }: State): string {
  const { size = '', verdict = '' } = stories.find((story) => story.bits === bits) ?? {};
  return verdict === '' || size === '' ? '' : `${bits} bits, ${size}: ${verdict}`;
}

/** A story: its words, of which those that differ are marked. */
function storyView({ bits, size, begin, words, marks, verdict }: Story, chosen: number): TemplateResult {
  const wordView = (word: string, i: number) => {
    const text = word.trimStart();
    const blank = word.slice(0, word.length - text.length);
    return html`<span>${blank}${marks[i] ? html`<mark>${text}</mark>` : text}</span>`;
  };
  return html`<li class=${bits === chosen ? 'telling chosen' : 'telling'} data-bits=${bits}
    ><h3>${bits} bits <span class="telling-size">${size}</span></h3
    ><p class="telling-text"><span class="given">${begin}</span>${words.map(wordView)}</p
    ><p class="telling-verdict">${verdict}</p></li>`;
}

/** The form of the storyteller, and the same story by each width. */
export function tellingView(state: State, events: TellingEvents): TemplateResult {
  const { telling, stories, tellerFailure } = state;
  const { begin, bits, groups, search } = telling;
  const submit = (event: Event) => {
    event.preventDefault();
    events.write();
  };
  return html`
    <form class="teller" id="teller" aria-label="The story, and how the model is stored" @submit=${submit}>
      <label class="field teller-begin">The story begins
        <input type="text" id="teller-begin" maxlength="300" autocomplete="off" .value=${live(begin)}
          @input=${({ target }: Event) => events.change({ begin: (target as HTMLInputElement).value })}>
      </label>
      <div class="row">
        <button type="submit" class="primary">Write</button>
        <button type="button" id="teller-another" @click=${events.another}>Another beginning</button>
        <button type="button" id="teller-link" @click=${events.copyLink}>Copy link to the story</button>
      </div>
      ${fieldSlider({
        id: 'teller-bits',
        label: 'Bits of every number',
        stops,
        at: Math.max(0, stops.indexOf(bits as (typeof stops)[number])),
        words: `${bits} bits`,
        slide: (at) => events.change({ bits: stops[at] ?? 3 }),
      })}
      <div class="row">
        ${switchView({
          id: 'teller-groups',
          label: 'A scale for each 32 numbers',
          isOn: groups,
          toggle: (isOn) => events.change({ groups: isOn }, true),
        })}
        ${switchView({
          id: 'teller-search',
          label: 'Clip where it costs least',
          isOn: search,
          toggle: (isOn) => events.change({ search: isOn }, true),
        })}
      </div>
    </form>
    <p class=${tellerFailure === undefined ? 'idea-result' : 'idea-result failed'} id="teller-words" role="status">${tellerFailure ?? resultText(state)}</p>
    <ol class="tellings" id="tellings">${stories.map((story) => storyView(story, bits))}</ol>`;
}
