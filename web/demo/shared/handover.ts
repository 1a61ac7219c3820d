let waiting: readonly File[] | undefined;

/** Takes the files that another page of the site was given for this one. */
export function takeFiles(): readonly File[] | undefined {
  const files = waiting;
  waiting = undefined;
  return files;
}

/** Leaves files for the next page. They stay in memory, so the next page has to be shown in this document: see `visit`. */
export function leaveFiles(files: readonly File[]): void {
  waiting = files;
}
