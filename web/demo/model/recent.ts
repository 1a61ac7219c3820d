// Models of earlier visits, listed below the place for files.
import { byId } from '../shared/dom.js';
import { forgetModels, type KeptModel, keptModels } from '../shared/kept.js';
import { breakable, html, render } from '../shared/template.js';

/** Lists what the browser can open again. @param reopen opens one, on a click */
export async function showRecent(reopen: (kept: KeptModel) => void): Promise<void> {
  const all = await keptModels();
  const section = byId('recent', HTMLElement);
  section.hidden = all.length === 0;
  const forget = async () => {
    await forgetModels();
    byId('choose', HTMLButtonElement).focus();
    await showRecent(reopen);
  };
  render(
    html`<h2 id="recent-title">Opened before</h2>
      <ul class="recent-list">${all.map((kept) => html`<li><button type="button" class="link" @click=${() => reopen(kept)}>${breakable(kept.name)}</button></li>`)}</ul>
      <button type="button" class="small" id="recent-forget" @click=${() => void forget()}>Forget them</button>`,
    section,
  );
}
