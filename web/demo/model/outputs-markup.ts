// Elements of the panel *What does it do to the outputs?*
import { html, svg } from '../shared/dom.js';
import { formatCount } from '../shared/format.js';
import { tokenChoices } from './outputs.js';

const fileInput = (id: string, accept: string, label: string) =>
  html('input', {
    type: 'file',
    id,
    accept,
    class: 'hidden',
    tabindex: -1,
    'aria-label': label,
    ...(id === 'outputs-tokenizer' && { multiple: '' }),
  });

/** The content of the section. Parts of other kinds of models are hidden. */
export function markup(): Node[] {
  // Make the parts that repeat.
  const radios = tokenChoices.map((count) => {
    const radio = html('input', { type: 'radio', name: 'outputs-tokens', value: count });
    return html('label', {}, radio, html('span', {}, formatCount(count)));
  });
  const button = (id: string, label: string, style: string | false = 'small') =>
    html('button', { type: 'button', id, class: style }, label);
  // Lay out the section.
  return [
    html('p', { class: 'hint', id: 'outputs-why', hidden: '' }),
    html(
      'div',
      { class: 'outputs-box', id: 'outputs-box' },
      html(
        'div',
        { class: 'outputs-words' },
        html('h2', { id: 'outputs-title' }, 'What does it do to the outputs?'),
        html('p', { class: 'outputs-verdict', id: 'outputs-verdict', role: 'status' }),
        html('p', { class: 'outputs-places', id: 'outputs-places-text' }),
        html(
          'div',
          { class: 'scroll outputs-places', id: 'outputs-places-box', 'data-name': 'Speed in each place', hidden: '' },
          html('table', { id: 'outputs-places' }),
        ),
        html('p', { class: 'hint', id: 'outputs-basis' }),
        html(
          'details',
          { class: 'more outputs-figures', id: 'outputs-figures', hidden: '' },
          html('summary', {}, 'All figures'),
          html(
            'div',
            { class: 'scroll', 'data-name': 'Figures of the outputs' },
            html('table', { id: 'outputs-table' }),
          ),
        ),
        html(
          'div',
          { class: 'outputs-data', id: 'outputs-data' },
          html(
            'fieldset',
            { class: 'segments', id: 'outputs-kind' },
            html('legend', {}, 'Compared on'),
            ...(['texts', 'arrays'] as const).map((kind) =>
              html(
                'label',
                {},
                html('input', { type: 'radio', name: 'outputs-kind', value: kind }),
                html('span', {}, kind === 'texts' ? 'A text' : 'Arrays'),
              ),
            ),
          ),
          html(
            'div',
            { class: 'outputs-source', id: 'outputs-source-row' },
            html('span', { class: 'outputs-name', id: 'outputs-source' }),
            button('outputs-choose', 'Choose…'),
            button('outputs-usual', 'Built-in'),
          ),
          html(
            'fieldset',
            { class: 'segments', id: 'outputs-tokens' },
            html('legend', {}, 'Tokens of the text'),
            ...radios,
          ),
          fileInput('outputs-file', '', 'Text or inputs'),
          fileInput('outputs-tokenizer', '.json', 'tokenizer.json'),
        ),
        html(
          'div',
          { class: 'outputs-work' },
          html(
            'div',
            { class: 'row' },
            button('outputs-run', 'Compare the outputs', false),
            button('outputs-cancel', 'Stop', false),
          ),
          html('progress', { id: 'outputs-progress', max: 1, value: 0, 'aria-label': 'Progress of comparing outputs' }),
          html('p', { class: 'hint', id: 'outputs-status' }),
        ),
        html('p', { class: 'outputs-problem', id: 'outputs-problem', role: 'alert' }),
      ),
      html(
        'div',
        { class: 'outputs-picture', id: 'outputs-picture', hidden: '' },
        chartNode(),
        html('p', { class: 'hint', id: 'outputs-caption' }),
        html('div', {
          class: 'outputs-types',
          id: 'outputs-types',
          role: 'group',
          'aria-label': 'Types in the picture',
        }),
      ),
    ),
  ];
}

const chartNode = (): SVGSVGElement =>
  svg('svg', { class: 'chart', id: 'outputs-chart', role: 'img' }, svg('title'), svg('desc'));
