// The flows of the Firefox run, in the whole Chromium. Other files open their pages in its headless shell if there is one.
import { expect, it } from 'vitest';
import { findFirefox } from '../../../scripts/firefox.mjs';
import { flows, hubFlows, hubOfFlows } from './flows.mjs';
import { startHubSite } from './hub-site.js';

const home = startHubSite(hubOfFlows, { whole: true });
const { site } = home;

it.each([...flows, ...hubFlows])('$name', async ({ run }) => {
  const page = await site.open('guide/');
  await run(page, site.url, home.hub);
  expect(page.url().startsWith(site.url)).toBe(true);
});

it('finds Firefox where the environment says, else on PATH, else says what to install', () => {
  const at = (...present: string[]) => ({ exists: (path: string) => present.includes(path) });
  const path = '/usr/games:/usr/bin';
  expect(findFirefox({ FIREFOX: '/opt/fox' }, at('/opt/fox'))).toBe('/opt/fox');
  expect(findFirefox({ PATH: path }, at('/usr/bin/firefox-esr'))).toBe('/usr/bin/firefox-esr');
  expect(findFirefox({ PATH: path }, at('/usr/games/firefox', '/usr/bin/firefox-esr'))).toBe('/usr/bin/firefox-esr');
  expect(() => findFirefox({ PATH: path }, at())).toThrow(/apt-get install firefox-esr/);
  expect(() => findFirefox({ FIREFOX: '/opt/fox', PATH: path }, at('/usr/bin/firefox'))).toThrow('/opt/fox');
});
