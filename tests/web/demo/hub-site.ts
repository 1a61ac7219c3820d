// The built site with a hub of the tests in place of the real one.
import { mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, afterEach, beforeAll } from 'vitest';
import { type HubOptions, startHub, type TestHub } from '../support/hub/hub.mjs';
import { copySiteFor } from './hub-folder.mjs';
import { path, type Site, startSite } from './site.js';

/** A site whose page for models asks a hub of the tests. */
interface HubSite {
  readonly site: Site;
  readonly hub: TestHub;
  /** A folder of this file, which holds the site. */
  readonly folder: string;
  /** Addresses to return to after signing in, by the app. */
  readonly clients: Record<string, string[]>;
}

/** Starts a site and its hub for the tests of a file. */
export function startHubSite(options: HubOptions, settings: Parameters<typeof startSite>[0] = {}): HubSite {
  const folder = mkdtempSync(join(tmpdir(), 'scalepoint-page-hub-'));
  const clients: Record<string, string[]> = {};
  let hub: TestHub | undefined;
  // Registered before those of the site, which serves the pages with the addresses of this hub.
  beforeAll(async () => {
    hub = await startHub({ ...options, clients });
    copySiteFor(path('build/demo'), folder, hub);
  });
  afterAll(async () => {
    await hub?.close();
    rmSync(folder, { recursive: true });
  });
  const site = startSite({ ...settings, folder: () => folder });
  // Pages of such a file ask the hub, and the browser reports its refusals.
  afterEach(() => {
    const isOfHub = (complaint: string) =>
      Object.values(hub?.origins ?? {}).some((origin) => complaint.startsWith(`request to ${origin}`)) ||
      /^Failed to load resource: .* (401|403|404|409|412|429|503) /.test(complaint);
    site.complaints = site.complaints.filter((complaint) => !isOfHub(complaint));
    if (hub === undefined) return;
    hub.requests.length = 0;
    hub.troubles.length = 0;
  });
  return {
    site,
    folder,
    clients,
    get hub() {
      return hub as TestHub;
    },
  };
}

/** Waits until a model is open and planned. */
export const planned = ({ page }: Site) =>
  page.waitForFunction(() => {
    const size = Number((document.querySelector('#model-size') as HTMLDataElement | null)?.value);
    return size > 0 && !(document.querySelector('#opened') as HTMLElement).hidden;
  });

/** Saves the open model. */
export async function saved({ page }: Site): Promise<{ name: string; bytes: Buffer }> {
  const [download] = await Promise.all([page.waitForEvent('download'), page.click('#model-run')]);
  return { name: download.suggestedFilename(), bytes: readFileSync(await download.path()) };
}
