// Panel *Compare these two*: how far the tensors of one file are from those of another.
import { type CompareReport, compareModels } from 'scalepoint/model';
import { type ModelFile, nameInFolder } from '../shared/files.js';
import { formatDecibels, formatMany } from '../shared/format.js';
import { inputOf } from '../shared/page-files.js';
import { asSentence } from '../shared/problems.js';
import { breakable, html, nothing, scrollBox, type TemplateResult } from '../shared/template.js';
import { inPageWords } from './explain.js';
import { totalBytes } from './sizes.js';
import { closeness } from './wording.js';
import { savingWorkers, withWorkers } from './workers.js';

/** Tensors that are listed: those with the lowest SQNR. */
const mostListed = 20;

/** Sentences about a comparison. @param names of the original and of the other file */
function comparisonText(
  { tensors, total, skipped, onlyInA, onlyInB }: CompareReport,
  [original, other]: readonly [string, string],
): string {
  if (tensors.length === 0) return 'No tensor of one name, with one shape and with floats, is in both files.';
  const same = total.sqnrDb === Number.POSITIVE_INFINITY;
  const left = [
    ...(skipped.length === 0 ? [] : [`${formatMany(skipped.length, 'tensor')} of both cannot be compared`]),
    ...(onlyInA.length === 0 ? [] : [`${formatMany(onlyInA.length, 'tensor')} only in ${original}`]),
    ...(onlyInB.length === 0 ? [] : [`${formatMany(onlyInB.length, 'tensor')} only in ${other}`]),
  ];
  const words = same
    ? `${formatMany(tensors.length, 'tensor')} of both hold the same numbers.`
    : `${other} is ${closeness(total.sqnrDb)} to ${original}: ${formatDecibels(total.sqnrDb)} over ${formatMany(tensors.length, 'tensor')}.`;
  return left.length === 0 ? words : `${words} Besides: ${left.join(', ')}.`;
}

/** The comparison of two models. */
export class ComparePanel {
  readonly #redraw: () => void;
  #models: readonly ModelFile[] = [];
  #report: CompareReport | undefined;
  #share: number | undefined;
  #problem = '';
  #controller: AbortController | undefined;

  constructor(redraw: () => void) {
    this.#redraw = redraw;
  }

  /** The larger file counts as the original. */
  get #pair(): readonly [ModelFile, ModelFile] {
    const [a, b] = this.#models as [ModelFile, ModelFile];
    return totalBytes(a.files) >= totalBytes(b.files) ? [a, b] : [b, a];
  }

  #stop(): void {
    this.#controller?.abort();
    this.#controller = undefined;
    this.#share = undefined;
  }

  async #compare(): Promise<void> {
    const controller = new AbortController();
    const [original, other] = this.#pair;
    this.#controller = controller;
    this.#problem = '';
    this.#share = 0;
    this.#redraw();
    const work = (workers: number) =>
      compareModels(inputOf(original.files), inputOf(other.files), {
        workers,
        signal: controller.signal,
        onProgress: ({ bytesDone, bytesTotal }) => {
          this.#share = bytesDone / Math.max(1, bytesTotal);
          this.#redraw();
        },
      });
    try {
      const report = await withWorkers(savingWorkers, work);
      if (this.#controller === controller) this.#report = report;
    } catch (error) {
      if (!controller.signal.aborted) this.#problem = asSentence(`They could not be compared: ${inPageWords(error)}`);
    }
    if (this.#controller === controller) this.#stop();
    this.#redraw();
  }

  /** @param models in the list; two of them can be compared */
  view(models: readonly ModelFile[]): TemplateResult | typeof nothing {
    if (models !== this.#models) {
      this.#stop();
      this.#models = models;
      this.#report = undefined;
      this.#problem = '';
    }
    if (models.length !== 2) return nothing;
    const works = this.#share !== undefined;
    const [original, other] = this.#pair;
    const names = [original.name, other.name] as const;
    const isLarger = totalBytes(original.files) > totalBytes(other.files);
    const press = () => {
      if (!works) return void this.#compare();
      this.#stop();
      this.#redraw();
    };
    const worst = [...(this.#report?.tensors ?? [])]
      .sort((a, b) => a.error.sqnrDb - b.error.sqnrDb)
      .slice(0, mostListed);
    return html`
      <section class="compared" id="compared" aria-label="Comparison">
        <div class="row">
          <button type="button" id="compare-run" @click=${press}>${works ? 'Stop' : 'Compare these two'}</button>
          <progress id="compare-progress" max="1" value=${this.#share ?? 0} ?hidden=${!works} aria-label="Progress of comparing"></progress>
        </div>
        <p class="hint">${isLarger ? `The larger file, ${nameInFolder(original)},` : nameInFolder(original)} counts as the original. Tensors are paired by their names.</p>
        <p class="outputs-verdict" id="compare-words" role="status">${this.#report === undefined ? '' : comparisonText(this.#report, names)}</p>
        <p class="outputs-problem" id="compare-problem" role="alert" ?hidden=${this.#problem === ''}>${this.#problem}</p>
        <div class="scroll" data-name="Tensors that differ most" ?hidden=${worst.length === 0} ${scrollBox()}>
          <table class="several-table">
            <thead><tr><th scope="col">Tensor</th><th scope="col">Original</th><th scope="col">Other</th><th scope="col" class="number">SQNR</th></tr></thead>
            <tbody id="compare-rows">${worst.map(
              ({ name, a, b, error }) =>
                html`<tr><th scope="row"><bdi>${breakable(name)}</bdi></th><td>${a}</td><td>${b}</td><td class="number">${formatDecibels(error.sqnrDb)}</td></tr>`,
            )}</tbody>
          </table>
        </div>
      </section>`;
  }
}
