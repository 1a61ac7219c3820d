import type { Scalepoint } from 'scalepoint';
import { copy } from '../shared/copy.js';
import { byId, html, markStop, showFacts } from '../shared/dom.js';
import { startDroppingElsewhere } from '../shared/drop-elsewhere.js';
import { startCodes } from '../shared/figures/codes.js';
import { startGroups } from '../shared/figures/groups.js';
import { startOutlier } from '../shared/figures/outlier.js';
import { startRound } from '../shared/figures/round.js';
import { startScale } from '../shared/figures/scale.js';
import { FileError } from '../shared/file-error.js';
import { formatBytes, formatReal, formatShare } from '../shared/format.js';
import { announce } from '../shared/live.js';
import { explainLoading, messageOf, showProblem } from '../shared/problems.js';
import { sampleFile } from '../shared/sample.js';
import { showCore, startSite } from '../shared/site.js';
import { createStore, type Store } from '../shared/store.js';
import { visit } from '../shared/visit.js';
import { drawTestDigits, images, labelOf, labels } from './digits.js';
import { startLab } from './lab.js';
import { readLink, writeLink } from './link.js';
import { Network, plainStorage, readSample, type Storage, type Tensors, widths } from './network.js';
import { drawReadings, firstTest, startPad } from './pad.js';
import { initialState, keyOf, type State } from './state.js';
import { startTelling } from './telling.js';
import { startWall } from './wall.js';

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

/** The slider at the top and the figures beside it. */
function startWidth(store: Store<State>) {
  const slider = byId('width', HTMLInputElement);
  slider.max = String(widths.length - 1);
  byId('width-stops', HTMLElement).append(...widths.map((bits) => html('span', {}, String(bits))));
  slider.addEventListener('input', () => {
    const bits = widths[slider.valueAsNumber] ?? 32;
    store.set({ bits });
    writeLink({ bits });
  });
  return (state: State, before: State | undefined) => {
    const { bits, readings, digits, shown } = state;
    const isSame = bits === before?.bits && readings === before.readings && digits === before.digits;
    if (isSame && shown === before?.shown) return;
    const at = widths.indexOf(bits as (typeof widths)[number]);
    showFacts({ width: { value: String(at), ariaValueText: `${bits} bits` }, 'width-bits': `${bits} bits` });
    markStop(byId('width-stops', HTMLElement), at);
    const reading = readings.get(keyOf(plainStorage(bits)));
    if (reading === undefined) return;
    const right = reading.right / reading.read.length;
    const share = formatShare(right);
    showFacts({
      'width-right': { textContent: share, '.bad': right < 0.9 },
      'width-bytes': formatBytes(reading.bytes),
      'hero-point': pointOf(state),
    });
    if (bits !== before?.bits) announce(`${bits} bits: ${share} right, ${formatBytes(reading.bytes)}`);
  };
}

/** Says how much smaller a width makes the network, and how many digits it loses. At 32 bits, speaks of 4 bits. */
function pointOf({ bits, readings, shown }: State): string {
  const [all, other] = [32, bits === 32 ? 4 : bits].map((one) => readings.get(keyOf(plainStorage(one))));
  if (all === undefined || other === undefined) return '';
  let lost = 0;
  for (let n = 0; n < shown; n++) if (all.read[n] === labelOf(n) && other.read[n] !== labelOf(n)) lost++;
  const smaller = formatReal(all.bytes / other.bytes, 2);
  const words = `${smaller} times smaller, ${lost} of these ${shown} digits lost.`;
  return bits === 32 ? `4 bits would be ${words}` : words.replace(/^./, (letter) => letter.toUpperCase());
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
function startDoor(): void {
  const picker = byId('file', HTMLInputElement);
  const open = (files: readonly File[]) => void visit('model/', files);
  byId('choose', HTMLButtonElement).addEventListener('click', () => picker.click());
  picker.addEventListener('change', () => open([...(picker.files ?? [])]));
  byId('sample', HTMLButtonElement).addEventListener('click', () => {
    sampleFile().then(
      (file) => open([file]),
      (error: unknown) => showProblem('file', { title: 'The sample could not be loaded', text: messageOf(error) }),
    );
  });
  startDroppingElsewhere();
  const install = byId('install', HTMLElement);
  for (const id of ['copy-install', 'copy-first']) {
    byId(id, HTMLButtonElement).addEventListener('click', () => void copy(install.textContent, 'Command'));
  }
  const code = byId('code', HTMLElement);
  byId('copy-code', HTMLButtonElement).addEventListener('click', () => void copy(code.textContent, 'Code'));
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

/** Sets up the canvas to draw on. A digit that is drawn before the network has loaded is read afterwards. */
function startDrawing(store: Store<State>) {
  let reader: DigitReader | undefined;
  let last: Float32Array | undefined;
  const show = (image: Float32Array, n?: number) => {
    last = image;
    if (reader !== undefined) return void reader.readOne(image);
    const { readings } = store.get();
    const known = (bits: number) => readings.get(keyOf(plainStorage(bits)))?.read[n ?? -1];
    store.set({
      drawn: new Map(
        widths.flatMap((bits) => {
          const read = known(bits);
          return read === undefined ? [] : [[bits, read]];
        }),
      ),
    });
  };
  const pad = startPad(show, () => {
    last = undefined;
    reader?.forget();
    store.set({ drawn: new Map() });
  });
  return {
    showTest: pad.showTest,
    use(made: DigitReader) {
      reader = made;
      if (last !== undefined) void reader.readOne(last);
    },
  };
}

async function start(): Promise<void> {
  startSite();
  startDoor();
  const parts: ((state: State, before: State | undefined) => void)[] = [];
  let reader: DigitReader | undefined;
  const { bits: linkedBits, lab: linkedLab } = readLink(location.hash);
  const begun = { ...initialState, bits: linkedBits ?? initialState.bits, lab: linkedLab ?? initialState.lab };
  const store = createStore(begun, (state, before) => {
    for (const part of parts) part(state, before);
    const { lab, bits } = state;
    if (reader === undefined) return;
    if (bits !== before?.bits) reader.want(plainStorage(bits));
    if (lab !== before?.lab) {
      const ways = widths
        .filter((width) => width <= 8)
        .map((width) => ({ ...lab, bits: width, codes: width === 4 ? lab.codes : ('even' as const) }));
      reader.want(...ways.filter((way) => way.bits === lab.bits), ...ways);
    }
  });
  const [set, current] = [store.set, store.get];
  const drawing = startDrawing(store);
  parts.push(
    startWidth(store),
    startWall({ onPoint: (pointed) => set({ pointed }), onLayout: (shown) => set({ shown }) }),
    drawReadings,
  );
  set({});
  playOnce(store);
  const core = loadCore(store);
  const loading = loadReader(store, core);
  startTelling(core);
  // Set up the figures below the first view one by one, so that no task takes long.
  for (const startPart of [startRound, startScale, startOutlier, startGroups, startCodes, startLab]) {
    await pause();
    const part = startPart(set, current);
    part(current(), undefined);
    parts.push(part);
  }
  let isShown = false;
  await drawTestDigits((digits) => {
    set({ digits });
    if (!isShown && digits > firstTest) {
      isShown = true;
      drawing.showTest();
    }
  });
  reader = await loading;
  if (reader === undefined) return;
  drawing.use(reader);
  reader.want(plainStorage(current().bits), ...widths.map(plainStorage));
  set({ lab: { ...current().lab } });
}

void start();
