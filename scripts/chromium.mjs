// Options by which tests, benchmarks and scripts start Chromium through Playwright.

/** Options of `chromium.launch`. The variable CHROMIUM names another program than Debian's. */
export const launchOptions = {
  executablePath: process.env.CHROMIUM ?? '/usr/bin/chromium',
  args: ['--no-sandbox', '--disable-gpu', '--disable-dev-shm-usage', '--disable-background-networking'],
};
