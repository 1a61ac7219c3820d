// A picture of a result, to share: the model, its size before and after, and how close it stays.

import { formatBytes } from '../shared/format.js';
import { places } from './outputs.js';
import { closeness, shortDecibels } from './wording.js';

/** The words of a card. */
export interface CardFacts {
  readonly model: string;
  /** The type, or the size of a mixture. */
  readonly type: string;
  readonly bytesBefore: number;
  readonly bytesAfter: number;
  /** SQNR of the weights; undefined if it is not measured. */
  readonly sqnrDb: number | undefined;
  /** Share of places with the same most likely next token; undefined if outputs were not compared on a text. */
  readonly sameTop: number | undefined;
  /** Address of the settings. */
  readonly link: string;
}

/** The lines of a card, from the largest to the smallest. */
export function cardLines({ model, type, bytesBefore, bytesAfter, sqnrDb, sameTop, link }: CardFacts) {
  const share = Math.round((1 - bytesAfter / bytesBefore) * 100);
  return {
    title: model,
    sizes: `${formatBytes(bytesBefore)} → ${formatBytes(bytesAfter)}`,
    type: `${type}${share > 0 ? `, ${share} % smaller` : ''}`,
    figures: [
      ...(sqnrDb === undefined ? [] : [`Weights: ${closeness(sqnrDb)}, ${shortDecibels(sqnrDb)}`]),
      ...(sameTop === undefined ? [] : [`The same next token in ${places(sameTop)}`]),
    ],
    link: link.replace(/^https?:\/\//, ''),
  };
}

/** Size of a card in pixels, as link previews have it. */
export const [cardWidth, cardHeight] = [1200, 630];
const margin = 72;

/** Draws a card in the colors and the font of the page. */
export function drawCard(facts: CardFacts): Promise<Blob> {
  const { title, sizes, type, figures, link } = cardLines(facts);
  const canvas = Object.assign(document.createElement('canvas'), { width: cardWidth, height: cardHeight });
  const context = canvas.getContext('2d');
  if (context === null) throw new Error('this browser does not draw pictures');
  const style = getComputedStyle(document.body);
  const color = (name: string) => style.getPropertyValue(name).trim();
  context.fillStyle = color('--surface');
  context.fillRect(0, 0, cardWidth, cardHeight);
  context.fillStyle = color('--accent');
  context.fillRect(0, 0, 16, cardHeight);
  const write = (text: string, y: number, size: number, weight: number, ink: string) => {
    // A line that is too long gets smaller letters.
    context.font = `${weight} ${size}px ${style.fontFamily}`;
    const room = cardWidth - 2 * margin;
    const fitting = Math.floor(Math.min(1, room / context.measureText(text).width) * size);
    context.font = `${weight} ${fitting}px ${style.fontFamily}`;
    context.fillStyle = color(ink);
    context.fillText(text, margin, y);
  };
  write(title, 130, 48, 600, '--ink');
  write(sizes, 260, 92, 700, '--ink');
  write(type, 330, 44, 600, '--accent');
  for (const [i, text] of figures.entries()) write(text, 410 + 56 * i, 36, 400, '--ink');
  write(`Made with Scalepoint, in a browser · ${link}`, cardHeight - 56, 26, 400, '--muted');
  return new Promise((resolve, reject) => {
    canvas.toBlob(
      (blob) => (blob === null ? reject(new Error('no memory for the picture')) : resolve(blob)),
      'image/png',
    );
  });
}
