// Panels that save, show the progress, and say how to use the result.
import type { QuantizeModelResult } from 'scalepoint/model';
import { noteText } from '../../src/tooling.js';
import { copy, download, jsonBlob } from '../shared/copy.js';
import { titleOf } from '../shared/files.js';
import { formatBytes, formatMany } from '../shared/format.js';
import { sentence } from '../shared/problems.js';
import { html, type nothing, type TemplateResult } from '../shared/template.js';
import { formatFor, outputOf, weightsIn } from './choice.js';
import { pageWords } from './controls.js';
import { findQuantized, offersNothing } from './offers-panel.js';
import { mayBeLanguage, readersIn } from './programs.js';
import type { Runner } from './run.js';
import type { ModelSession } from './session.js';
import { totalBytes } from './sizes.js';
import { isSaving, type OpenState, reportOf, totalSqnr } from './state.js';
import { csvOf, formatSeconds, leftText } from './wording.js';
import { savingWorkers } from './workers.js';

/** Memory that each worker takes at most, in bytes. */
const workerBytes = 64 * 2 ** 20;

/** Bytes of memory that are worth a word. */
const muchMemory = 5e8;

/** Estimated time and memory of saving. */
function expectation({ model, plan, expectedSeconds }: OpenState): string {
  if (plan === undefined) return '';
  const hasFiles = 'storage' in navigator && 'getDirectory' in navigator.storage;
  const sizes = totalBytes(model.files);
  // A small model never fills the memory of a worker.
  const memory = savingWorkers * Math.min(workerBytes, 2 ** 22 + 3 * sizes) + (hasFiles ? 0 : plan.totals.bytesAfter);
  return [
    expectedSeconds === undefined ? [] : `Takes about ${formatSeconds(expectedSeconds)}.`,
    memory < muchMemory ? [] : `Needs up to ${formatBytes(Math.ceil(memory / 1e6) * 1e6)} of memory.`,
    model.hub === undefined ? [] : `Downloads ${formatBytes(plan.totals.bytesBefore)} from ${model.hub.host}.`,
  ]
    .flat()
    .join(' ');
}

/** Name of the result, saved or planned. */
const resultName = ({ run, model, choice }: OpenState) => (run.kind === 'saved' ? run.name : outputOf(model, choice));

/** One line about the run. */
function runText(state: OpenState): string {
  const { run, plan } = state;
  switch (run.kind) {
    case 'asking':
      return 'Where should it go?';
    case 'cancelled':
      return 'Cancelled. Nothing was saved.';
    case 'saved':
      return `Saved ${run.name}. See below how to use it.`;
    case 'running':
      if (run.bytesTotal === 0) return 'Starting…';
      return `${formatBytes(run.bytesDone)} of ${formatBytes(run.bytesTotal)}${leftText(run.secondsLeft)} · ${run.tensor}`;
    default:
      return plan === undefined ? '' : resultName(state);
  }
}

/** One sentence about a file that is quantized already. */
function quantizedText({ types, canAgain }: NonNullable<ReturnType<typeof findQuantized>>): string {
  const listed = types.slice(0, 3).join(', ');
  const so = `This file is quantized already${listed === '' ? '' : ` (${listed})`}: `;
  return canAgain
    ? `${so}quantizing it again adds to its errors.`
    : `${so}start from the model in floats to make another size.`;
}

/** The size of the result, the button that makes it, and the progress. */
export function saveView(state: OpenState, session: ModelSession, runner: Runner): TemplateResult {
  const { run, isPushing, plan, choice } = state;
  const { totals } = plan ?? {};
  const works = isSaving(run);
  const isIdle = totals !== undefined && totals.quantized + totals.cast === 0;
  const quantized = works || run.kind === 'saved' ? undefined : findQuantized(state);
  // Layers of other kinds than linear ones have codes only if that is asked for.
  const hasOthers = quantized === undefined && isIdle && plan?.notes.some(({ kind }) => kind === 'leftLayers') === true;
  const idleText =
    quantized === undefined
      ? `Nothing to convert${hasOthers ? ': this type is for linear layers, and this model has others.' : ' with these settings.'}`
      : quantizedText(quantized);
  const facts = totals && [
    `${formatBytes(totals.bytesBefore)} now`,
    `${totals.ratio.toFixed(2)} × smaller`,
    `${totals.bitsPerWeight.toFixed(2)} bits a weight`,
    `${formatMany(totals.bytesAfter, 'byte')} exactly`,
  ];
  // Tensors that the visitor kept.
  const kept = [...choice.kept];
  const others = kept.length === 1 ? '' : ` and ${formatMany(kept.length - 1, 'other')}`;
  return html`
    <div class="save">
      <p class="save-size"><data id="model-size" value=${totals?.bytesAfter ?? ''}>${totals === undefined ? '' : formatBytes(totals.bytesAfter)}</data></p>
      <p class="hint" id="model-totals">${facts?.join(' · ') ?? ''}</p>
      <div class="kept-line" id="model-kept" ?hidden=${kept.length === 0}>
        <p class="hint" id="model-kept-words">${kept.length === 0 ? '' : `Kept by you: ${kept.at(-1)}${others}`}</p>
        <button type="button" class="small" id="model-undo" data-next="#model-run" aria-label="Undo: convert ${kept.at(-1) ?? ''}"
          ?disabled=${plan === undefined || works} @click=${() => session.undoKeep()}>Undo</button>
      </div>
      <div class="save-row">
        <button type="button" class="primary big" id="model-run" data-next="#model-cancel" ?hidden=${works || offersNothing(state)} ?disabled=${plan === undefined || isIdle || isPushing}
          @click=${() => void runner.start()}>Quantize and save</button>
        <button type="button" class="big" id="model-cancel" data-next="#model-run" ?hidden=${!works} @click=${() => runner.cancel()}>Cancel</button>
      </div>
      <progress id="model-progress" max="1" value=${run.kind === 'running' ? run.bytesDone / Math.max(1, run.bytesTotal) : 0} aria-label="Progress" ?hidden=${!works}></progress>
      <p class="save-status" id="model-status">${quantized !== undefined || (isIdle && !works) ? idleText : runText(state)}</p>
      <button type="button" id="model-again" data-next="#model-run" ?hidden=${!quantized?.canAgain && !hasOthers}
        @click=${() => (hasOthers ? session.setWords({ all: true }) : session.quantizeAgain())}>${hasOthers ? 'Convert them as well' : 'Quantize it again'}</button>
      <p class="hint" id="model-expectation">${works || isIdle || run.kind === 'saved' ? '' : expectation(state)}</p>
    </div>`;
}

/** The notes of the plan as sentences. */
export const notesText = ({ plan }: OpenState): string =>
  plan?.notes.map((note) => sentence(noteText(note, pageWords))).join(' ') ?? '';

/** The file with which older loaders of GPTQ and AWQ find the settings of codes. */
export function settingsFile({ quantizeConfig, quantConfig }: QuantizeModelResult) {
  if (quantizeConfig !== undefined) return { name: 'quantize_config.json', content: quantizeConfig };
  return quantConfig && { name: 'quant_config.json', content: quantConfig };
}

/** Programs that read the result. */
export function readersOf({ model, choice, plan, outputs }: OpenState, name: string) {
  const architecture = plan?.architecture ?? outputs?.architecture;
  const format = formatFor(model, choice.to);
  return readersIn(model.format, format, choice.to, architecture, name, mayBeLanguage({ model, outputs }));
}

/** Code and commands that use the result. It has its room while the file is written, so that nothing moves at the end. @param push the panel that pushes it, and its button */
export function savedView(
  state: OpenState,
  push: { readonly panel: TemplateResult | typeof nothing; readonly button: TemplateResult },
): TemplateResult {
  const { run } = state;
  const name = resultName(state);
  const result = run.kind === 'saved' ? run.result : undefined;
  const title =
    run.kind === 'saved'
      ? `Saved ${name}: ${formatBytes(run.result.report.totals.bytesAfter)} in ${formatSeconds(run.seconds)}`
      : `How to use ${name}`;
  const settings = result && settingsFile(result);
  const isHidden = !isSaving(run) && run.kind !== 'saved';
  return html`
    <section class="saved" id="saved" aria-labelledby="saved-title" ?hidden=${isHidden}>
      <div class="saved-head">
        <h2 id="saved-title">${isHidden ? 'How to use it' : title}</h2>
        <button type="button" id="model-config" ?hidden=${result?.config === undefined}
          @click=${() => download(jsonBlob(result?.config), 'config.json')}>Save config.json</button>
        <button type="button" id="model-settings" ?hidden=${settings === undefined}
          @click=${() => settings && download(jsonBlob(settings.content), settings.name)}>Save ${settings?.name}</button>
        ${push.button}
      </div>
      ${push.panel}
      <div class="readers" id="readers">${
        isHidden
          ? []
          : readersOf(state, weightsIn(state.model, state.choice, name)).map(
              ({ program, code, needs }) => html`<div class="reader">
                <h3>${program}</h3>
                ${needs === undefined ? '' : html`<p class="hint">${needs}</p>`}
                <div class="reader-code"><pre class="snippet wrap"><code>${code}</code></pre><button type="button" aria-label="Copy the code for ${program}"
                  @click=${() => void copy(code, 'Code')}>Copy</button></div>
              </div>`,
            )
      }</div>
    </section>`;
}

/** The buttons that save the report, and the card. @param sameTop share of places with the same next token, if it is known */
export function reportView(state: OpenState, sameTop: number | undefined): TemplateResult {
  const isDisabled = state.plan === undefined || isSaving(state.run);
  const save = (extension: string, make: (report: NonNullable<ReturnType<typeof reportOf>>) => Blob) => () => {
    const report = reportOf(state);
    const stem = resultName(state).replace(/\.[^.]*$/, '');
    if (report !== undefined) download(make(report), `${stem}.report.${extension}`);
  };
  const card = async () => {
    const { model, choice, plan, errors } = state;
    if (plan === undefined) return;
    const { bytesBefore, bytesAfter } = plan.totals;
    const figures = { bytesBefore, bytesAfter, sqnrDb: totalSqnr(plan.tensors, errors), sameTop };
    const { drawCard } = await import('./card.js');
    const blob = await drawCard({
      model: titleOf(model),
      type: choice.size ?? choice.to,
      ...figures,
      link: location.href,
    });
    const name = `${resultName(state).replace(/\.[^.]*$/, '')}.card.png`;
    const file = new File([blob], name, { type: blob.type });
    // Phones have a menu of programs to share with.
    const isPhone = matchMedia('(pointer: coarse)').matches && navigator.canShare?.({ files: [file] }) === true;
    if (isPhone) await navigator.share({ files: [file], url: location.href }).catch(() => {});
    else download(blob, name);
  };
  const csv = save('csv', ({ tensors }) => new Blob([csvOf(tensors)], { type: 'text/csv' }));
  return html`
    <div class="row report">
      <button type="button" id="model-json" ?disabled=${isDisabled} @click=${save('json', jsonBlob)}>Report as JSON</button>
      <button type="button" id="model-csv" ?disabled=${isDisabled} @click=${csv}>Report as CSV</button>
      <button type="button" id="model-card" ?disabled=${isDisabled} @click=${() => void card()}>Card to share</button>
    </div>`;
}
