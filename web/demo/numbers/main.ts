import { load, type Scalepoint } from 'scalepoint';
import { byId, setText } from '../shared/dom.js';
import { announce } from '../shared/live.js';
import { explainLoading, type Problem, showProblem } from '../shared/problems.js';
import { showCore, startSite } from '../shared/site.js';
import { startActions } from './actions.js';
import { startControls } from './controls.js';
import { showClipping, showCodes } from './curves.js';
import { type DataSet, generatedData, type Statistics, statisticsOf } from './data.js';
import { type Evaluation, evaluate, sliceOf } from './evaluate.js';
import { explainQuantizing } from './explain.js';
import { startAddress } from './history.js';
import { showLadder } from './ladder.js';
import { partsOf } from './parts.js';
import { startPictures } from './pictures.js';
import { sentence, showData, showFigures } from './results.js';
import { dtypeOf, granularityOf, parseHash, type Settings } from './settings.js';
import { snippet } from './snippet.js';
import { startSources } from './sources.js';
import { startTable } from './table.js';
import { showTwin } from './twin.js';

/** Most numbers that are quantized while a control moves. Of larger data a sample is taken. */
const liveLimit = 2 ** 20;
/** Most numbers that are quantized once the controls rest. Larger data stay a sample, and the page says so. */
const restLimit = 2 ** 24;
/** Time without a change after which the controls count as resting. */
const restMilliseconds = 160;

/** The outcome of quantizing: a result or a problem. */
interface Attempt {
  readonly data: DataSet;
  readonly settings: Settings;
  readonly limit: number;
  readonly result?: Evaluation;
  readonly problem?: Problem;
}

/** Whether two settings give the same codes. The part that is shown and the scale of the counts do not matter. */
const quantizesAlike = (a: Settings, b: Settings) =>
  JSON.stringify({ ...a, part: 0, logCounts: false }) === JSON.stringify({ ...b, part: 0, logCounts: false });

/** Sets up the page. Everything that it draws follows from the settings and the data alone. */
function startPage(core: Scalepoint): void {
  let settings = parseHash(location.hash);
  let own: DataSet | undefined;
  let made: { key: string; data: DataSet } | undefined;
  let statistics: { data: DataSet; result: Statistics } | undefined;
  let attempt: Attempt | undefined;
  const resultRegion = byId('result', HTMLElement);
  let frame = 0;
  let rest: ReturnType<typeof setTimeout> | undefined;

  const address = startAddress((wanted) => {
    settings = wanted;
    sources.show(currentData() === own ? 'own' : 'generated');
    schedule();
  });
  const table = startTable();
  const pictures = startPictures(() => schedule());

  /** Applies new settings, writes them to the address and schedules drawing. */
  const change = (wanted: Settings, control: string) => {
    settings = wanted;
    address.commit(settings, control);
    schedule();
  };
  const controls = startControls(() => settings, change);
  const sources = startSources(core, {
    onGenerate: () => change({ ...settings, data: 'generated' }, 'source'),
    onData(data) {
      own = data;
      change({ ...settings, data: 'own', part: 0 }, 'source');
    },
    onProblem: (problem) => showProblem('file', problem),
  });
  /** The data to show. An address may ask for the visitor's own data before any were opened; then the data are generated. */
  function currentData(): DataSet {
    if (settings.data === 'own' && own !== undefined) return own;
    const key = [settings.distribution, settings.size, settings.seed, settings.rowsDiffer].join();
    if (made?.key !== key) made = { key, data: generatedData(settings) };
    return made.data;
  }

  function statisticsFor(data: DataSet): Statistics {
    if (statistics?.data !== data) statistics = { data, result: statisticsOf(data.values) };
    return statistics.result;
  }

  /** Quantizes the data, or returns the last attempt if it used the same data, equivalent settings and enough numbers. */
  function quantized(data: DataSet, limit: number): Attempt {
    const enough = Math.min(limit, data.values.length);
    if (attempt?.data === data && attempt.limit >= enough && quantizesAlike(attempt.settings, settings)) return attempt;
    try {
      attempt = { data, settings, limit: enough, result: evaluate(core, data, settings, limit) };
    } catch (error) {
      const saturate = () => change({ ...settings, nonFinite: 'saturate' }, 'saturate');
      const problem = explainQuantizing(error, statisticsFor(data), saturate);
      // More numbers would run into the same problem.
      attempt = { data, settings, limit: Number.POSITIVE_INFINITY, problem };
    }
    return attempt;
  }

  function draw(limit: number): void {
    const data = currentData();
    const { result, problem } = quantized(data, limit);
    showProblem('settings', problem);
    document.body.classList.toggle('failed', result === undefined);
    const count = result?.parts.count ?? partsOf(granularityOf(settings, data.shape.length), data.shape).count;
    controls.show(settings, { shape: data.shape, parts: count });
    showData(data, statisticsFor(data), settings.bits);
    showFigures(data, result);
    table.show(data, result);
    setText(byId('snippet', HTMLElement), snippet(data, settings));
    setText(byId('level-legend', HTMLElement), `${dtypeOf(settings)} levels`);

    const slice = result === undefined ? undefined : sliceOf(result, settings.part);
    const bins = pictures.draw(core, {
      values: slice?.values ?? data.values,
      slice,
      partName: slice === undefined || count === 1 ? '' : partName(slice.part, result?.exact === true),
      logarithmic: settings.logCounts,
    });
    if (byId('twin', HTMLDetailsElement).open) showTwin(slice, bins);

    clearTimeout(rest);
    rest = setTimeout(atRest, restMilliseconds);
  }

  function partName(part: number, exact: boolean): string {
    return `${settings.granularity === 'per-group' ? 'group' : 'channel'} ${part}${exact ? '' : ' of the sample'}`;
  }

  /** Runs when the controls rest. Draws exact figures for large data, the comparison charts, and announces the result. */
  function atRest(): void {
    const data = currentData();
    if (attempt?.result?.exact === false && data.values.length <= restLimit) {
      draw(restLimit);
      // draw() has set the timer that calls this function again.
      clearTimeout(rest);
    }
    if (attempt?.result === undefined) byId('ladder', HTMLElement).replaceChildren();
    else {
      showLadder(core, data, settings, (bits) => change({ ...settings, bits }, 'ladder'));
      showClipping(core, attempt.result, sliceOf(attempt.result, settings.part));
      showCodes(core, data, settings);
      announce(sentence(attempt.result));
    }
    resultRegion.ariaBusy = 'false';
  }

  /** Schedules one draw with the next frame. */
  function schedule(): void {
    // The last drawing is out of date, so its work for later is dropped.
    clearTimeout(rest);
    if (frame !== 0) return;
    resultRegion.ariaBusy = 'true';
    frame = requestAnimationFrame(() => {
      frame = 0;
      draw(liveLimit);
    });
  }

  byId('twin', HTMLDetailsElement).addEventListener('toggle', () => schedule());
  startActions(core, () => ({ data: currentData(), settings }));
  if (settings.data === 'own') {
    settings = { ...settings, data: 'generated' };
    showProblem('file', {
      title: 'This link was made for numbers that are not here',
      text: 'A link carries settings, never data. The settings are shown with generated numbers; choose a file or paste numbers to use them on yours.',
    });
  }
  sources.show('generated');
  schedule();
}

/** Loads the core and sets up the page, or shows why the core did not load. */
async function start(): Promise<void> {
  startSite();
  try {
    const core = await load();
    showCore(core);
    startPage(core);
  } catch (error) {
    setText(byId('summary', HTMLElement), '');
    showProblem('settings', explainLoading(error));
  }
}

void start();
