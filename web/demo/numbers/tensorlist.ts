import { byId, html, setText } from '../shared/dom.js';
import { formatBytes, formatMany, formatShape } from '../shared/format.js';
import type { TensorEntry } from './engine.js';

/** Most tensors that are listed without a filter. */
const manyTensors = 12;
/** Most numbers of a tensor that is read without being chosen. */
const unasked = 2 ** 22;

/** A file with tensors to choose from. */
export interface Listed {
  readonly name: string;
  readonly tensors: readonly TensorEntry[];
}

/** Sets up the list of the tensors of a file. */
export function startTensorList(onChoose: (index: number, name: string) => void) {
  const list = byId('tensor', HTMLSelectElement);
  const filter = byId('tensor-filter', HTMLInputElement);
  let file: Listed | undefined;

  const fill = () => {
    const wanted = filter.value.trim().toLowerCase();
    const selected = list.value;
    list.replaceChildren(
      ...(file?.tensors ?? []).flatMap((tensor, i) => {
        if (!tensor.name.toLowerCase().includes(wanted)) return [];
        const obstacle = tensor.shape.includes(0) ? ' (empty)' : tensor.readable ? '' : ' (no floats)';
        const label = `${tensor.name} · ${tensor.dtype} ${formatShape(tensor.shape)}${obstacle}`;
        const attributes = {
          value: i,
          title: `${label}, ${formatBytes(tensor.bytes)}`,
          disabled: obstacle !== '' && '',
        };
        return [html('option', attributes, label)];
      }),
    );
    list.value = selected;
  };
  const choose = () => {
    const entry = file?.tensors[Number(list.value)];
    if (entry !== undefined && list.value !== '') onChoose(Number(list.value), entry.name);
  };
  list.addEventListener('change', choose);
  filter.addEventListener('input', fill);

  return {
    /**
     * Shows the tensors of a file and chooses the first small matrix, or else the first small tensor. Undefined hides the list.
     * @returns whether any tensor can be read
     */
    show(opened: Listed | undefined): boolean {
      file = opened;
      byId('tensors', HTMLElement).hidden = opened === undefined;
      if (opened === undefined) return false;
      filter.value = '';
      byId('tensor-filter-field', HTMLElement).hidden = opened.tensors.length <= manyTensors;
      setText(byId('tensors-file', HTMLElement), opened.name);
      setText(byId('tensors-count', HTMLElement), formatMany(opened.tensors.length, 'tensor'));
      fill();
      const usable = [...list.options].filter((option) => !option.disabled);
      const shapeOf = (option: HTMLOptionElement) => opened.tensors[Number(option.value)]?.shape ?? [];
      const small = usable.filter((option) => shapeOf(option).reduce((a, b) => a * b, 1) <= unasked);
      // A matrix is more interesting than a bias.
      const first = small.find((option) => shapeOf(option).length > 1) ?? small[0];
      if (first === undefined) return usable.length > 0;
      list.value = first.value;
      choose();
      return true;
    },
  };
}
