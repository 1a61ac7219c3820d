import type { Scalepoint } from 'scalepoint';
import { filesView } from '../shared/controls.js';
import { startCopying } from '../shared/copy.js';
import { byId, onTheme } from '../shared/dom.js';
import { startDroppingElsewhere } from '../shared/drop-elsewhere.js';
import { codes } from '../shared/figures/codes.js';
import { startFigure } from '../shared/figures/figure.js';
import { groups as groupsFigure } from '../shared/figures/groups.js';
import { outlier } from '../shared/figures/outlier.js';
import { round } from '../shared/figures/round.js';
import { scale } from '../shared/figures/scale.js';
import type { DrawPart, FigureState } from '../shared/figures/state.js';
import { FileError } from '../shared/file-error.js';
import { announce } from '../shared/live.js';
import { explainLoading, messageOf, showProblem } from '../shared/problems.js';
import { sampleFile } from '../shared/sample.js';
import { showCore, startSite } from '../shared/site.js';
import { createStore, type Store } from '../shared/store.js';
import { html, render, type TemplateResult } from '../shared/template.js';
import { visit } from '../shared/visit.js';
import { drawTestDigits, images, labels } from './digits.js';
import { heroView, resultText } from './hero.js';
import { labView } from './lab.js';
import { readLink, writeLink } from './link.js';
import { Network, plainStorage, readSample, type Storage, type Tensors, widths } from './network.js';
import { firstTest, Pad } from './pad.js';
import { initialState, keyOf, type State } from './state.js';
import { startTelling, tellingView } from './telling.js';

/** Test digits that are read at once, so that the page stays quick. */
const readAtOnce = 250;

/** Time that the slider takes to play. */
const playMilliseconds = 3000;

const pause = () => new Promise<void>((done) => setTimeout(done));

/** Reads digits with networks that are stored in different ways. */
class DigitReader {
  readonly #store: Store<State>;
  readonly #core: Scalepoint;
  readonly #tensors: Tensors;
  readonly #networks = new Map<string, Promise<Network>>();
  readonly #wanted: Storage[] = [];
  #image: Float32Array | undefined;
  #works = false;

  constructor(store: Store<State>, core: Scalepoint, tensors: Tensors) {
    this.#store = store;
    this.#core = core;
    this.#tensors = tensors;
  }

  #networkFor(storage: Storage): Promise<Network> {
    const key = keyOf(storage);
    const network = this.#networks.get(key) ?? Network.create(this.#core, this.#tensors, storage, pause);
    this.#networks.set(key, network);
    return network;
  }

  /** Reads all test digits, this way first. */
  want(...storages: readonly Storage[]): void {
    this.#wanted.unshift(...storages);
    if (!this.#works) void this.#work();
  }

  async #work(): Promise<void> {
    this.#works = true;
    for (let storage = this.#wanted.shift(); storage !== undefined; storage = this.#wanted.shift()) {
      const key = keyOf(storage);
      const { digits, readings } = this.#store.get();
      const known = readings.get(key);
      if (known !== undefined && !known.isRecorded && known.read.length >= digits) continue;
      const network = await this.#networkFor(storage);
      const read = new Uint8Array(digits);
      for (let from = 0; from < digits; from += readAtOnce) {
        const count = Math.min(readAtOnce, digits - from);
        read.set(network.read(images.subarray(from * 256, (from + count) * 256), count), from);
        await pause();
      }
      const right = read.reduce((sum, digit, n) => sum + Number(digit === labels[n]), 0);
      const reading = { bytes: network.bytes, read, right };
      this.#store.set({ readings: new Map([...this.#store.get().readings, [key, reading]]) });
    }
    this.#works = false;
  }

  /** Drops the image that is being read. */
  forget(): void {
    this.#image = undefined;
  }

  /** Reads one image at each width. A newer image makes an earlier one obsolete. */
  async readOne(image: Float32Array): Promise<void> {
    this.#image = image;
    const networks = await Promise.all(widths.map((bits) => this.#networkFor(plainStorage(bits))));
    if (this.#image !== image) return;
    this.#store.set({
      drawn: new Map(networks.map((network, i) => [widths[i] ?? 32, network.read(image, 1)[0] ?? 0])),
    });
  }
}

/**
 * Moves the slider from 32 bits to 2 and back, once. It stops at the first touch of anything, and is left out where motion is unwanted.
 */
function playOnce(store: Store<State>): void {
  if (matchMedia('(prefers-reduced-motion: reduce)').matches || location.hash !== '') return;
  const path = [...widths, ...[...widths].reverse().slice(1)];
  const began = performance.now();
  const touches = ['pointerdown', 'keydown', 'wheel', 'input', 'touchstart'] as const;
  let isOver = false;
  const end = () => {
    isOver = true;
    for (const type of touches) removeEventListener(type, end, true);
  };
  for (const type of touches) addEventListener(type, end, { capture: true, passive: true });
  const step = (now: number) => {
    if (isOver) return;
    const at = Math.floor(((now - began) / playMilliseconds) * path.length);
    const bits = path[Math.max(0, at)];
    if (bits === undefined) return end();
    if (bits !== store.get().bits) store.set({ bits });
    requestAnimationFrame(step);
  };
  requestAnimationFrame(step);
}

/** The second door: files and the sample go to the page for models. */
function doorView(): TemplateResult {
  const open = (files: readonly File[]) => void visit('model/', files);
  const openSample = () =>
    sampleFile().then(
      (file) => open([file]),
      (error: unknown) => showProblem('file', { title: 'The sample could not be loaded', text: messageOf(error) }),
    );
  return html`<a class="primary" id="name" href="model/">Name a model or drop a file</a>${filesView('Choose a file…', open)}<button type="button" id="sample" @click=${openSample}>Try the sample</button>`;
}

/** Waits until the browser has painted and has nothing else to do. */
function whenIdle(): Promise<void> {
  return new Promise((done) => {
    requestAnimationFrame(() => {
      if ('requestIdleCallback' in globalThis) requestIdleCallback(() => done(), { timeout: 2000 });
      else setTimeout(done, 200);
    });
  });
}

/** Loads the core, which the figures need. Undefined if it did not load. */
async function loadCore(store: Store<State>): Promise<Scalepoint | undefined> {
  try {
    const { load } = await import('scalepoint');
    const core = await load();
    showCore(core);
    store.set({ core });
    return core;
  } catch (error) {
    store.set({ failed: true });
    showProblem('settings', explainLoading(error));
    return undefined;
  }
}

/** Loads the weights, which only live readings need. The slider works before: it shows recorded readings. */
async function loadReader(
  store: Store<State>,
  loading: Promise<Scalepoint | undefined>,
): Promise<DigitReader | undefined> {
  const core = await loading;
  if (core === undefined) return undefined;
  try {
    await whenIdle();
    return new DigitReader(store, core, readSample(await (await sampleFile()).arrayBuffer()));
  } catch (error) {
    store.set({ failed: true });
    showProblem('settings', error instanceof FileError ? explainWeights(error) : explainLoading(error));
    return undefined;
  }
}

const explainWeights = ({ message }: FileError) => ({
  title: 'The weights of the network did not load',
  text: `${message} What you see was recorded, and the network cannot read anything else.`,
  action: { label: 'Load again', run: () => location.reload() },
});

async function start(): Promise<void> {
  startSite();
  startDroppingElsewhere();
  startCopying();
  const { bits, lab, begin, tellBits, groups, search } = readLink(location.hash);
  const { telling } = initialState;
  const figures: DrawPart<FigureState>[] = [];
  let reader: DigitReader | undefined;
  const store = createStore<State>(
    {
      ...initialState,
      bits: bits ?? initialState.bits,
      lab: lab ?? initialState.lab,
      telling: {
        begin: begin ?? telling.begin,
        bits: tellBits ?? telling.bits,
        groups: groups ?? telling.groups,
        search: search ?? telling.search,
      },
    },
    draw,
  );
  const { get: current, set } = store;
  // A digit that is drawn before the network has loaded is read afterwards. Until then the page knows how test digits are read.
  let image: Float32Array | undefined;
  const pad = new Pad((drawn, test) => {
    image = drawn;
    if (drawn === undefined) {
      reader?.forget();
      set({ drawn: new Map() });
    } else if (reader !== undefined) void reader.readOne(drawn);
    else {
      const known = (width: number) => current().readings.get(keyOf(plainStorage(width)))?.read[test ?? -1];
      set({ drawn: new Map(widths.flatMap((width) => (known(width) === undefined ? [] : [[width, known(width)!]]))) });
    }
  });
  const core = loadCore(store);
  const tellingEvents = startTelling(store, core);
  const [hero, teller, labBox] = [
    byId('hero', HTMLElement),
    byId('teller-box', HTMLElement),
    byId('lab-box', HTMLElement),
  ];

  function draw(state: State, before: State | undefined): void {
    const { lab, bits, stories, telling, tellerFailure } = state;
    const setWidth = (change: Partial<State>) => {
      set(change);
      if (change.bits !== undefined) writeLink({ bits: change.bits });
    };
    const setLab = (chosen: Storage) => {
      set({ lab: chosen });
      writeLink({ lab: chosen });
    };
    render(heroView(state, pad, setWidth), hero);
    render(labView(state, setLab), labBox);
    if (stories !== before?.stories || telling !== before.telling || tellerFailure !== before.tellerFailure)
      render(tellingView(state, tellingEvents), teller);
    for (const part of figures) part(state, before);
    if (bits !== before?.bits) announce(resultText(state));
    if (reader === undefined) return;
    if (bits !== before?.bits) reader.want(plainStorage(bits));
    if (lab !== before?.lab) {
      const ways = widths
        .filter((width) => width <= 8)
        .map((width) => ({ ...lab, bits: width, codes: width === 4 ? lab.codes : ('even' as const) }));
      reader.want(...ways.filter((way) => way.bits === lab.bits), ...ways);
    }
  }

  render(doorView(), byId('door', HTMLElement));
  store.draw();
  // A link to a story opens at the story.
  if (begin !== undefined) teller.scrollIntoView();
  playOnce(store);
  onTheme(hero, () => set({ theme: current().theme + 1 }));
  const watcher = new IntersectionObserver((entries) => {
    if (!entries.some(({ isIntersecting }) => isIntersecting)) return;
    watcher.disconnect();
    tellingEvents.begin();
  });
  watcher.observe(teller);
  const loading = loadReader(store, core);
  // Set up the figures below the first view one by one, so that no task takes long.
  for (const figure of [round, scale, outlier, groupsFigure, codes]) {
    await pause();
    const part = startFigure(figure, set, current);
    part(current(), undefined);
    figures.push(part);
  }
  let isShown = false;
  await drawTestDigits((digits) => {
    set({ digits });
    if (!isShown && digits > firstTest) {
      isShown = true;
      pad.showTest();
    }
  });
  reader = await loading;
  if (reader === undefined) return;
  if (image !== undefined) void reader.readOne(image);
  reader.want(plainStorage(current().bits), ...widths.map(plainStorage));
  set({ lab: { ...current().lab } });
}

void start();
