import { load, type Scalepoint } from 'scalepoint';
import { copy } from '../shared/copy.js';
import { byId, html, setText } from '../shared/dom.js';
import { startDropping } from '../shared/drop.js';
import { formatBytes, formatShare } from '../shared/format.js';
import { announce } from '../shared/live.js';
import { explainLoading, messageOf, showProblem } from '../shared/problems.js';
import { sampleFile } from '../shared/sample.js';
import { showCore, startSite } from '../shared/site.js';
import { createStore, type Store } from '../shared/store.js';
import { visit } from '../shared/visit.js';
import { startCodes } from './codes.js';
import { drawTestDigits, images, labels, testCount } from './digits.js';
import { startGroups } from './groups.js';
import { startLab } from './lab.js';
import { Network, plainStorage, readSample, type Storage, type Tensors, widths } from './network.js';
import { startOutlier } from './outlier.js';
import { drawReadings, startPad } from './pad.js';
import { startRound } from './round.js';
import { startScale } from './scale.js';
import { initialState, keyOf, type State } from './state.js';
import { startWall } from './wall.js';

/** Digits that are on the wall at most. */
const wallDigits = 240;
/** Test digits that are read at once, so that the page stays quick. */
const readAtOnce = 250;

/** Reads digits with networks that are stored in different ways. */
class Reader {
  readonly #store: Store<State>;
  readonly #core: Scalepoint;
  readonly #tensors: Tensors;
  readonly #networks = new Map<string, Network>();
  readonly #wanted: Storage[] = [];
  #works = false;

  constructor(store: Store<State>, core: Scalepoint, tensors: Tensors) {
    this.#store = store;
    this.#core = core;
    this.#tensors = tensors;
  }

  #networkFor(storage: Storage): Network {
    const key = keyOf(storage);
    const network = this.#networks.get(key) ?? new Network(this.#core, this.#tensors, storage);
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
      if ((readings.get(key)?.read.length ?? 0) >= digits) continue;
      const network = this.#networkFor(storage);
      const read = new Uint8Array(digits);
      for (let from = 0; from < digits; from += readAtOnce) {
        const count = Math.min(readAtOnce, digits - from);
        read.set(network.read(images.subarray(from * 256, (from + count) * 256), count), from);
        await new Promise((done) => setTimeout(done));
      }
      const right = read.reduce((sum, digit, n) => sum + Number(digit === labels[n]), 0);
      const reading = { bytes: network.bytes, read, right };
      this.#store.set({ readings: new Map([...this.#store.get().readings, [key, reading]]) });
    }
    this.#works = false;
  }

  /** What each width takes one image for. */
  readOne(image: Float32Array): void {
    this.#store.set({
      drawn: new Map(widths.map((bits) => [bits, this.#networkFor(plainStorage(bits)).read(image, 1)[0] ?? 0])),
    });
  }
}

/** The slider at the top and the figures beside it. */
function startWidth(store: Store<State>) {
  const slider = byId('width', HTMLInputElement);
  slider.max = String(widths.length - 1);
  byId('width-stops', HTMLElement).append(...widths.map((bits) => html('span', {}, String(bits))));
  slider.addEventListener('input', () => store.set({ bits: widths[slider.valueAsNumber] ?? 32 }));
  return ({ bits, readings, digits }: State, before: State | undefined) => {
    if (bits === before?.bits && readings === before.readings && digits === before.digits) return;
    const at = widths.indexOf(bits as (typeof widths)[number]);
    slider.value = String(at);
    slider.setAttribute('aria-valuetext', `${bits} bits`);
    for (const [i, stop] of [...byId('width-stops', HTMLElement).children].entries())
      stop.classList.toggle('current', i === at);
    setText(byId('width-bits', HTMLElement), `${bits} bits`);
    const reading = readings.get(keyOf(plainStorage(bits)));
    if (reading === undefined) return;
    const share = formatShare(reading.right / reading.read.length);
    setText(byId('width-right', HTMLElement), share);
    setText(byId('width-bytes', HTMLElement), formatBytes(reading.bytes));
    byId('width-right', HTMLElement).classList.toggle('bad', reading.right / reading.read.length < 0.9);
    if (bits !== before?.bits) announce(`${bits} bits: ${share} right, ${formatBytes(reading.bytes)}`);
  };
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
  startDropping(open);
  const install = byId('install', HTMLElement);
  byId('copy-install', HTMLButtonElement).addEventListener('click', () => void copy(install.textContent, 'Command'));
  const code = byId('code', HTMLElement);
  byId('copy-code', HTMLButtonElement).addEventListener('click', () => void copy(code.textContent, 'Code'));
}

/** Loads the network and reads with it from then on, as the state asks for it. */
async function startReading(store: Store<State>, core: Scalepoint, ready: (reader: Reader) => void): Promise<void> {
  const tensors = readSample(await (await sampleFile()).arrayBuffer());
  const reader = new Reader(store, core, tensors);
  await drawTestDigits((digits) => {
    const before = store.get().digits;
    store.set({ digits });
    // The wall is read as soon as it is drawn, the rest when all are.
    if (before < wallDigits && digits >= wallDigits) {
      ready(reader);
      reader.want(plainStorage(store.get().bits));
    }
  });
  reader.want(plainStorage(store.get().bits), ...widths.map(plainStorage));
}

async function start(): Promise<void> {
  startSite();
  startDoor();
  const parts: ((state: State, before: State | undefined) => void)[] = [];
  let reader: Reader | undefined;
  const store = createStore(initialState, (state, before) => {
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
  const pad = startPad((image) => reader?.readOne(image));
  parts.push(
    startWidth(store),
    startWall((pointed) => set({ pointed })),
    drawReadings,
    startRound(set, current),
    startScale(set, current),
    startOutlier(set, current),
    startGroups(set, current),
    startCodes(set, current),
    startLab(set, current),
  );
  set({});
  try {
    const core = await load();
    showCore(core);
    set({ core });
    await startReading(store, core, (made) => {
      reader = made;
      pad.showTest();
    });
    set({ lab: { ...current().lab } });
  } catch (error) {
    showProblem('settings', explainLoading(error));
    if (current().digits < testCount) await drawTestDigits((digits) => set({ digits }));
  }
}

void start();
