import { fileOfText, startDropping } from './drop.js';
import { visit } from './visit.js';

/** Has the pages for models and numbers take what is dropped on a page that takes nothing itself. */
export function startDroppingElsewhere(): void {
  startDropping(
    (files) => void visit('model/', files),
    (text) => void visit('numbers/', [fileOfText(text)]),
  );
}
