// Starts the page *Your model*. Before a model is open, the page only takes files.
import { byId, setText } from '../shared/dom.js';
import { startDropping } from '../shared/drop.js';
import { chooseHandles, type Handle } from '../shared/handles.js';
import { takeFiles } from '../shared/handover.js';
import type { KeptModel } from '../shared/kept.js';
import { messageOf, showProblem } from '../shared/problems.js';
import { recall } from '../shared/remember.js';
import { pictureSample, sampleFile, storyteller } from '../shared/sample.js';
import { startSite } from '../shared/site.js';
import { isStep } from './address.js';
import { hubApp, linkOf, nameInLink, storedToken, storeToken } from './hub-link.js';
import type { Opening } from './panels.js';
import { removeLeftovers } from './save.js';

/** Files with which the system started the page, where the browser has such a queue. */
interface LaunchQueue {
  setConsumer(take: (launched: { readonly files: readonly FileSystemFileHandle[] }) => void): void;
}

let panels: Promise<Opening> | undefined;

/** Loads the panels, once. A failed attempt is repeated by the next call. */
function loadPanels(): Promise<Opening> {
  panels ??= import('./panels.js').then(({ startPanels }) => startPanels());
  panels.catch(() => {
    panels = undefined;
  });
  return panels;
}

/** Opens a model once the panels are there. */
async function withPanels(begin: (opening: Opening) => void, words = 'Opening…'): Promise<void> {
  const opening = byId('opening', HTMLElement);
  if (panels === undefined) setText(opening, words);
  try {
    begin(await loadPanels());
  } catch {
    setText(opening, '');
    showProblem('file', {
      title: 'The page is not all there',
      text: 'A part of it could not be loaded. Check the connection, load the page again, and open the file again.',
      action: { label: 'Load again', run: () => location.reload() },
    });
  }
}

const open = (files: readonly File[], how: 'open' | 'drop') => withPanels((opening) => opening[how](files));

/** Opens what is behind handles. */
const openHandles = (handles: readonly Handle[]) =>
  import('../shared/kept.js').then(({ filesBehind }) => filesBehind(handles)).then((files) => open(files, 'open'));

/** Opens a model of the hub. Where this page took the place of another one, whose policy lets it ask nobody, it is loaded anew. */
function openHub(name: string): void {
  const { endpoint } = hubApp();
  const policy = document.querySelector<HTMLMetaElement>('meta[http-equiv="Content-Security-Policy"]');
  if (policy !== null && !policy.content.includes(endpoint)) {
    history.replaceState(history.state, '', `${location.pathname}#${linkOf(name)}`);
    location.reload();
  } else void withPanels((opening) => opening.openHub(name, endpoint), `Asking ${new URL(endpoint).host}…`);
}

/** The button that signs in, in place of a token that is typed, and the return from the hub. */
async function startSigningIn(name: HTMLInputElement, token: HTMLInputElement): Promise<void> {
  const words = byId('hub-signed', HTMLElement);
  byId('hub-sign-in', HTMLButtonElement).addEventListener('click', () => {
    if (hubApp().client === '') {
      setText(
        words,
        'This site has no app on the hub to sign in with: it was built without SCALEPOINT_HUB_CLIENT. Type a token.',
      );
    } else if (self !== top) globalThis.open(location.href, '_blank');
    else void import('./sign-in.js').then(({ signIn }) => signIn(name.value));
  });
  if (!/[?&]state=/.test(location.search)) return;
  try {
    const signed = await (await import('./sign-in.js')).finishSignIn();
    if (signed === undefined) return;
    if (signed === 'elsewhere') {
      setText(words, 'You are signed in, in the other window. This one may be closed.');
      globalThis.close();
    } else {
      storeToken(signed.token);
      [token.value, name.value] = [signed.token, signed.name];
      setText(words, 'You are signed in for this tab.');
    }
  } catch (error) {
    setText(words, `You are not signed in: ${messageOf(error)}.`);
  }
  token.closest('details')?.setAttribute('open', '');
}

/** The field for a name, the one for a token, and the name in the address. */
function startNaming(): void {
  const [name, token] = [byId('hub-name', HTMLInputElement), byId('hub-token', HTMLInputElement)];
  token.value = storedToken();
  byId('hub', HTMLFormElement).addEventListener('submit', (event) => {
    event.preventDefault();
    storeToken(token.value.trim());
    openHub(name.value.trim());
  });
  const openLinked = () => {
    const linked = nameInLink(location.hash);
    if (linked === undefined) return;
    name.value = linked;
    openHub(linked);
  };
  startSigningIn(name, token).then(openLinked);
  // An address that was edited by hand. Steps of the page's own history have a state.
  addEventListener('popstate', ({ state }) => {
    if (state === null) openLinked();
  });
}

function startChoosing(): void {
  const picker = byId('file', HTMLInputElement);
  /** Has the visitor choose. @param instead chooses where the browser gives no handles */
  const choose = async (kind: 'files' | 'folder', instead: HTMLInputElement) => {
    const handles = await chooseHandles(kind);
    if (handles === undefined) instead.click();
    else if (handles.length > 0) void openHandles(handles);
  };
  byId('choose', HTMLButtonElement).addEventListener('click', () => void choose('files', picker));
  picker.addEventListener('change', () => {
    const files = [...(picker.files ?? [])];
    // Cleared, so that choosing the same file again is a change.
    picker.value = '';
    if (files.length > 0) void open(files, 'open');
  });
  const sampleFailed = (error: unknown) =>
    showProblem('file', { title: 'The sample could not be loaded', text: messageOf(error) });
  const openSample = (fetched: Promise<readonly File[]>) => fetched.then((files) => open(files, 'open'), sampleFailed);
  byId('sample', HTMLButtonElement).addEventListener('click', () => openSample(sampleFile().then((file) => [file])));
  byId('sample-picture', HTMLButtonElement).addEventListener('click', () => openSample(pictureSample()));
  byId('sample-story', HTMLButtonElement).addEventListener('click', () => openSample(storyteller()));
  const folder = byId('folder', HTMLInputElement);
  const chooseFolder = byId('choose-folder', HTMLButtonElement);
  chooseFolder.hidden = !('webkitdirectory' in folder || 'showDirectoryPicker' in globalThis);
  chooseFolder.addEventListener('click', () => void choose('folder', folder));
  folder.addEventListener('change', () => {
    const files = [...(folder.files ?? [])].map((file) => ({ path: file.webkitRelativePath, file }));
    folder.value = '';
    const model = import('../shared/folder.js').then(({ modelInFolder }) => modelInFolder(files));
    void model.then((found) =>
      open(
        found.map(({ file }) => file),
        'open',
      ),
    );
  });
  startDropping((files) => void open(files, 'drop'));
}

/** Says that the address carries settings, and forgets them if that is wanted. The panels say which settings these are. */
function startLinked(): void {
  const linked = byId('linked', HTMLElement);
  linked.hidden = location.hash.length < 2 || nameInLink(location.hash) !== undefined;
  byId('linked-forget', HTMLButtonElement).addEventListener('click', () => {
    history.replaceState(history.state, '', location.pathname);
    linked.hidden = true;
    byId('choose', HTMLButtonElement).focus();
  });
}

/** Loads the panels when the visitor begins to do something, so that they are there when a file comes. */
function loadSoon(): void {
  const load = () => void loadPanels().catch(() => {});
  for (const event of ['pointermove', 'pointerdown', 'keydown', 'dragenter'])
    addEventListener(event, load, { once: true });
  // A step of an earlier visit is shown again, where the browser can.
  if (location.hash.length > 1 || (isStep(history.state) && history.state.kept !== undefined)) load();
}

/** Removes temporary files of earlier visits, such as one that ended during a save, and says so. */
async function tidyUp(): Promise<void> {
  const count = await removeLeftovers();
  if (count === 0) return;
  const what = count === 1 ? 'a temporary file' : `${count} temporary files`;
  setText(byId('tidied', HTMLElement), `Removed ${what} that an earlier visit left in this browser.`);
}

function start(): void {
  startSite();
  void tidyUp();
  startChoosing();
  startLinked();
  startNaming();
  loadSoon();
  // Where the site is installed, the system opens models with this page.
  const { launchQueue } = globalThis as { launchQueue?: LaunchQueue };
  launchQueue?.setConsumer(({ files }) => {
    if (files.length > 0) void openHandles(files);
  });
  // List what was open before.
  if (recall('kept') !== '') {
    const reopen = (kept: KeptModel) => void withPanels((opening) => opening.reopen(kept));
    void import('./recent.js').then(({ showRecent }) => showRecent(reopen));
  }
  // Take files that another page handed over.
  const files = takeFiles();
  if (files !== undefined) void open(files, 'open');
}

start();
