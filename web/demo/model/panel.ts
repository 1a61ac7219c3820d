import {
  type ModelFormat,
  type ModelPlan,
  type Preset,
  type Progress,
  planModel,
  presetTarget,
  type QuantizeModelResult,
  quantizeModel,
  ScalepointError,
} from 'scalepoint/model';
import { copy, download } from '../shared/copy.js';
import { byId, html, setText } from '../shared/dom.js';
import type { ModelFile } from '../shared/files.js';
import { formatBytes, formatDecibels, formatMany } from '../shared/format.js';
import { announce } from '../shared/live.js';
import { messageOf } from '../shared/problems.js';
import {
  codeOf,
  commandOf,
  infoOf,
  initialChoice,
  type ModelChoice,
  optionsOf,
  outputName,
  takes,
  targetsOf,
} from './choice.js';
import { choosePlace, removeLeftovers } from './save.js';
import { startModelTable } from './table.js';

/** The panel that quantizes a model file. */
export interface ModelPanel {
  /** Shows the tensors of a model and the plan for each. */
  open(file: ModelFile): void;
}

/** The open model, with its plan and result once there are any. */
interface Open {
  readonly file: ModelFile;
  choice: ModelChoice;
  plan?: ModelPlan;
  result?: QuantizeModelResult;
}

/** A duration for people: `1 min 5 s`. */
function formatSeconds(seconds: number): string {
  const whole = Math.ceil(seconds);
  return whole < 60 ? `${whole} s` : `${Math.floor(whole / 60)} min ${whole % 60} s`;
}

/** The report as CSV for spreadsheets. */
function csvOf(result: QuantizeModelResult): string {
  const head = 'tensor,shape,from,to,bytes before,bytes after,sqnr dB,mse,cosine,largest error,kept because';
  const text = (value: string) => `"${value.replace(/"/g, '""')}"`;
  const rows = result.report.tensors.map(({ name, shape, from, to, bytesBefore, bytesAfter, error, kept }) =>
    [
      text(name),
      text(shape.join('x')),
      from,
      to,
      bytesBefore,
      bytesAfter,
      error?.sqnrDb ?? '',
      error?.mse ?? '',
      error?.cosine ?? '',
      error?.maxAbsoluteError ?? '',
      text(kept ?? ''),
    ].join(','),
  );
  return `${[head, ...rows].join('\r\n')}\r\n`;
}

/** Sets up the panel. It stays hidden until a model is opened. */
export function startModelPanel(onLook: (name: string) => void): ModelPanel {
  const panel = byId('model', HTMLElement);
  const form = byId('model-form', HTMLFormElement);
  const target = byId('model-target', HTMLSelectElement);
  const group = byId('model-group', HTMLSelectElement);
  const box = (id: string) => byId(id, HTMLInputElement);
  const run = byId('model-run', HTMLButtonElement);
  const cancel = byId('model-cancel', HTMLButtonElement);
  const bar = byId('model-progress', HTMLProgressElement);
  const status = byId('model-status', HTMLElement);
  const after = byId('model-after', HTMLElement);
  const problem = byId('model-problem', HTMLElement);
  let open: Open | undefined;
  let running: AbortController | undefined;
  // Number of the newest plan. Plans are made asynchronously, and only the newest is shown.
  let planning = 0;
  void removeLeftovers();

  const formatOf = ({ file }: Open): ModelFormat => file.format;
  const table = startModelTable({
    onLook,
    onKeep(name) {
      if (open === undefined) return;
      const kept = new Set(open.choice.kept);
      if (!kept.delete(name)) kept.add(name);
      change({ ...open.choice, kept });
    },
  });

  const explain = (error: unknown) => {
    const place =
      error instanceof ScalepointError && error.byteOffset !== undefined ? ` (byte ${error.byteOffset})` : '';
    problem.replaceChildren();
    if (error === undefined) return;
    const words = `${messageOf(error).replace(/\.$/, '')}${place}.`;
    const card = html(
      'div',
      { class: 'problem' },
      html('p', {}, html('strong', {}, 'That did not work')),
      html('p', {}, words),
    );
    problem.append(card);
    // If the error names a tensor, a button offers to keep that tensor.
    const name = error instanceof ScalepointError ? error.tensor : undefined;
    if (name !== undefined && open !== undefined && !open.choice.kept.has(name)) {
      const keep = html('button', { type: 'button' }, `Keep ${name} as it is`);
      keep.addEventListener('click', () => {
        if (open !== undefined) change({ ...open.choice, kept: new Set([...open.choice.kept, name]) });
      });
      card.append(html('div', { class: 'row' }, keep));
    }
  };

  const groupSize = () => (group.value === 'default' ? 'default' : Number(group.value));

  /** Whether 8-bit activations are possible: they take one scale a row, which is also their default. */
  const isForRows = (size: ModelChoice['groupSize']) => size === 'default' || size === 0;

  /** Applies a choice and drops the plan and result of the choice before it. */
  const change = (choice: ModelChoice) => {
    if (open === undefined) return;
    open = { file: open.file, choice };
    void show();
  };

  /** Shows the choice, then makes and shows its plan. */
  async function show(): Promise<void> {
    if (open === undefined) return;
    const shown = open;
    const { file, choice } = shown;
    const format = formatOf(shown);
    target.value = choice.target;
    group.value = String(choice.groupSize);
    box('model-asymmetric').checked = choice.asymmetric;
    box('model-search').checked = choice.search;
    box('model-activations').checked = choice.activations;
    box('model-pure').checked = choice.pure;
    box('model-requantize').checked = choice.requantize;
    byId('model-integers', HTMLElement).hidden = !takes(format, choice, 'scheme');
    const takesActivations = takes(format, choice, 'activations') && isForRows(choice.groupSize);
    byId('model-activations-field', HTMLElement).hidden = !takesActivations;
    byId('model-ggml', HTMLElement).hidden = !takes(format, choice, 'pure');
    byId('model-requantize-field', HTMLElement).hidden = !takes(format, choice, 'requantize');
    for (const radio of form.querySelectorAll<HTMLInputElement>('input[name="preset"]')) {
      radio.checked = presetTarget(format, radio.value as Preset) === choice.target;
    }
    setText(byId('model-command', HTMLElement), commandOf(file.name, format, choice));
    after.hidden = true;
    setText(status, '');
    explain(undefined);

    const mine = ++planning;
    try {
      const plan = await planModel(file.files, optionsOf(format, choice));
      if (mine !== planning) return;
      shown.plan = plan;
      showTotals(plan.totals);
      table.show(plan.tensors, choice.kept);
      run.disabled = false;
      setText(byId('model-notes', HTMLElement), plan.notes.join('. '));
    } catch (error) {
      if (mine !== planning) return;
      run.disabled = true;
      for (const id of ['after', 'exact', 'ratio', 'bits']) setText(byId(`model-figure-${id}`, HTMLElement), '–');
      table.show(
        file.tensors.map(({ name, shape, dtype, bytes }) => {
          return { name, shape, from: dtype, to: dtype, bytesBefore: bytes, bytesAfter: bytes };
        }),
        choice.kept,
      );
      explain(error);
    }
  }

  function showTotals({ bytesBefore, bytesAfter, ratio, bitsPerWeight }: ModelPlan['totals']): void {
    setText(byId('model-figure-before', HTMLElement), formatBytes(bytesBefore));
    setText(byId('model-figure-after', HTMLElement), formatBytes(bytesAfter));
    byId('model-figure-after', HTMLDataElement).value = String(bytesAfter);
    setText(byId('model-figure-exact', HTMLElement), formatMany(bytesAfter, 'byte'));
    setText(byId('model-figure-ratio', HTMLElement), `${ratio.toFixed(2)} ×`);
    setText(byId('model-figure-bits', HTMLElement), bitsPerWeight.toFixed(2));
  }

  function showProgress(start: number) {
    return ({ tensor, bytesDone, bytesTotal }: Progress) => {
      const done = bytesDone / Math.max(bytesTotal, 1);
      bar.value = done;
      const left = ((performance.now() - start) / 1000 / Math.max(done, 1e-9)) * (1 - done);
      const rest = done > 0.02 && done < 1 ? `, about ${formatSeconds(left)} left` : '';
      setText(status, `${formatBytes(bytesDone)} of ${formatBytes(bytesTotal)}${rest}: ${tensor}`);
    };
  }

  const setRunning = (controller: AbortController | undefined) => {
    running = controller;
    run.hidden = controller !== undefined;
    cancel.hidden = controller === undefined;
    bar.hidden = controller === undefined;
    for (const field of form.querySelectorAll('fieldset')) field.disabled = controller !== undefined;
  };

  async function quantize(): Promise<void> {
    if (open === undefined || running !== undefined) return;
    const current = open;
    const format = formatOf(current);
    const name = outputName(current.file.name, format, current.choice);
    explain(undefined);
    const place = await choosePlace(name);
    if (place === undefined) return;
    const controller = new AbortController();
    setRunning(controller);
    cancel.focus();
    bar.value = 0;
    setText(status, 'Starting…');
    announce(`Quantizing ${current.file.name}`, 0);
    const start = performance.now();
    const work = (workers?: number) =>
      quantizeModel(current.file.files, {
        ...optionsOf(format, current.choice),
        // The dialog has asked about a file that is there.
        ...(place.output === undefined ? {} : { output: place.output, overwrite: true }),
        ...(workers === undefined ? {} : { workers }),
        signal: controller.signal,
        onProgress: showProgress(start),
      });
    try {
      let result: QuantizeModelResult;
      try {
        result = await work();
      } catch (error) {
        // If the page may not start workers, the main thread does the work. The page is less responsive then.
        if (!(error instanceof ScalepointError && error.code === 'WORKER')) throw error;
        result = await work(0);
      }
      await place.finish(result);
      current.result = result;
      showResult(current, name, (performance.now() - start) / 1000);
    } catch (error) {
      await place.discard();
      if (controller.signal.aborted) {
        setText(status, 'Cancelled. Nothing was saved.');
        announce('Cancelled', 0);
      } else {
        setText(status, '');
        explain(error);
      }
    } finally {
      setRunning(undefined);
      run.focus();
    }
  }

  function showResult(current: Open, name: string, seconds: number): void {
    const { result } = current;
    if (result === undefined || current !== open) return;
    const { tensors, totals } = result.report;
    table.show(tensors, current.choice.kept);
    showTotals(totals);
    const lowest = tensors.reduce<number | undefined>((low, { error }) => {
      return error === undefined || (low !== undefined && low <= error.sqnrDb) ? low : error.sqnrDb;
    }, undefined);
    const worst = lowest === undefined ? '' : `, lowest SQNR ${formatDecibels(lowest)}`;
    const words = `Saved ${name}, ${formatBytes(totals.bytesAfter)}, in ${seconds < 1 ? `${Math.round(seconds * 1000)} ms` : `${seconds.toFixed(1)} s`}${worst}.`;
    setText(status, words);
    announce(words, 0);
    after.hidden = false;
    byId('model-config', HTMLButtonElement).hidden = result.config === undefined;
  }

  run.addEventListener('click', () => void quantize());
  cancel.addEventListener('click', () => running?.abort(new DOMException('cancelled', 'AbortError')));
  form.addEventListener('submit', (event) => event.preventDefault());
  form.addEventListener('change', (event) => {
    if (open === undefined) return;
    const { choice } = open;
    const field = event.target;
    if (field instanceof HTMLInputElement && field.name === 'preset') {
      change(withTarget(choice, presetTarget(formatOf(open), field.value as Preset)));
      return;
    }
    if (field === target) {
      change(withTarget(choice, target.value as ModelChoice['target']));
      return;
    }
    change({
      ...choice,
      groupSize: groupSize(),
      asymmetric: box('model-asymmetric').checked,
      search: box('model-search').checked,
      activations: box('model-activations').checked && isForRows(groupSize()),
      pure: box('model-pure').checked,
      requantize: box('model-requantize').checked,
    });
  });

  /** Changes the target. The group size and activations go to the defaults of the new target. */
  const withTarget = (choice: ModelChoice, to: ModelChoice['target']): ModelChoice => ({
    ...choice,
    target: to,
    groupSize: 'default',
    activations: false,
  });

  const withResult = (use: (current: Open, result: QuantizeModelResult) => void) => () => {
    if (open?.result !== undefined) use(open, open.result);
  };
  const stem = (current: Open) =>
    outputName(current.file.name, formatOf(current), current.choice).replace(/\.[^.]*$/, '');
  const json = (value: unknown) => new Blob([`${JSON.stringify(value, null, 2)}\n`], { type: 'application/json' });
  byId('model-json', HTMLButtonElement).addEventListener(
    'click',
    withResult((current, { report }) => download(json(report), `${stem(current)}.report.json`)),
  );
  byId('model-csv', HTMLButtonElement).addEventListener(
    'click',
    withResult((current, result) =>
      download(new Blob([csvOf(result)], { type: 'text/csv' }), `${stem(current)}.report.csv`),
    ),
  );
  byId('model-config', HTMLButtonElement).addEventListener(
    'click',
    withResult((_, { config }) => download(json(config), 'config.json')),
  );
  byId('model-copy-command', HTMLButtonElement).addEventListener('click', () => {
    if (open !== undefined) void copy(commandOf(open.file.name, formatOf(open), open.choice), 'Command');
  });
  byId('model-copy-code', HTMLButtonElement).addEventListener('click', () => {
    if (open !== undefined) void copy(codeOf(open.file.name, formatOf(open), open.choice), 'Code');
  });

  return {
    open(file) {
      running?.abort(new DOMException('another file was opened', 'AbortError'));
      const choice = initialChoice(file.format);
      open = { file, choice: withTarget(choice, choice.target) };
      panel.hidden = false;
      target.replaceChildren(...targetsOf(file.format).map(({ value, label }) => html('option', { value }, label)));
      byId('model-filter', HTMLInputElement).value = '';
      const elements = file.tensors.reduce((sum, { shape }) => sum + shape.reduce((a, b) => a * b, 1), 0);
      setText(byId('model-name', HTMLElement), file.name);
      const { label } = infoOf(file.format);
      setText(
        byId('model-facts', HTMLElement),
        `${label}, ${formatMany(file.tensors.length, 'tensor')}, ${formatMany(elements, 'number')}`,
      );
      void show();
    },
  };
}
