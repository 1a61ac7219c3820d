/** Workers that save. One processor is left to the page. */
export const savingWorkers = Math.max(1, Math.min(8, (navigator.hardwareConcurrency ?? 2) - 1));
