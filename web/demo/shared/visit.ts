import { leaveFiles } from './handover.js';
import { siteRoot } from './site.js';

/**
 * Shows another page of the site in this document and hands files to it. A link would lose them, since a new document starts empty.
 * Going back loads the page that was left anew.
 */
export async function visit(path: string, files: readonly File[]): Promise<void> {
  const address = new URL(path, siteRoot);
  const response = await fetch(address);
  const page = new DOMParser().parseFromString(await response.text(), 'text/html');
  // Resolve relative links by hand, since a parsed document has no address.
  const absolute = (node: Element, name: string) => new URL(node.getAttribute(name) ?? '', address).href;
  const sheets = [...page.querySelectorAll('link[rel="stylesheet"]')].map((link) => absolute(link, 'href'));
  const scripts = [...page.querySelectorAll('script[type="module"][src]')].map((script) => absolute(script, 'src'));
  await Promise.all(sheets.map(addSheet));
  // Relative links mean something else from now on.
  for (const link of document.querySelectorAll<HTMLAnchorElement | HTMLLinkElement>('a[href], link[href]')) {
    link.href = String(link.href);
  }
  history.pushState(null, '', address);
  addEventListener('popstate', () => {
    if (!location.href.startsWith(address.href)) location.reload();
  });
  document.title = page.title;
  // Pages of the guide have more around their main element.
  const content = 'body > main, body > :has(> main)';
  const [main, next] = [document.querySelector(content), page.querySelector(content)];
  if (main === null || next === null) throw new TypeError(`${address} has no main element`);
  main.replaceWith(document.importNode(next, true));
  for (const link of document.querySelectorAll<HTMLAnchorElement>('a[href]')) {
    const isHere = link.href === address.href;
    if (link.closest('.nav') === null) continue;
    if (isHere) link.setAttribute('aria-current', 'page');
    else link.removeAttribute('aria-current');
  }
  scrollTo(0, 0);
  leaveFiles(files);
  for (const script of scripts) await import(/* @vite-ignore */ script);
}

/** Adds a style sheet unless it is there, and waits for it. */
function addSheet(href: string): Promise<void> {
  if ([...document.styleSheets].some((sheet) => sheet.href === href)) return Promise.resolve();
  return new Promise((done) => {
    const link = document.createElement('link');
    link.rel = 'stylesheet';
    link.href = href;
    link.addEventListener('load', () => done());
    link.addEventListener('error', () => done());
    document.head.append(link);
  });
}
