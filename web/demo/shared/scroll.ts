/**
 * Makes the scrolling boxes in a part of the page reachable by keyboard. A box gets a tab stop and a name only while its content overflows, so that
 * useless stops are avoided.
 */
export function watchScrollBoxes(part: ParentNode): void {
  const update = (box: HTMLElement) => {
    const scrolls = box.scrollWidth > box.clientWidth + 1 || box.scrollHeight > box.clientHeight + 1;
    if (scrolls === box.hasAttribute('tabindex')) return;
    if (scrolls) {
      box.tabIndex = 0;
      box.setAttribute('role', 'group');
      box.setAttribute('aria-label', box.dataset.name ?? '');
    } else {
      for (const attribute of ['tabindex', 'role', 'aria-label']) box.removeAttribute(attribute);
    }
  };
  // A box keeps its size when its content grows, so its children are observed too.
  const observer = new ResizeObserver((entries) => {
    for (const { target } of entries) {
      const box = target.closest<HTMLElement>('.scroll');
      if (box !== null) update(box);
    }
  });
  for (const box of part.querySelectorAll<HTMLElement>('.scroll')) {
    observer.observe(box);
    for (const child of box.children) observer.observe(child);
  }
}
