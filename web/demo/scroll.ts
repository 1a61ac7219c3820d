/**
 * Lets the keyboard scroll the boxes that scroll inside of the page. A box is a stop for the Tab key, with a name, only while there is
 * something to scroll: otherwise it would be a stop for nothing.
 */
export function startScrollBoxes(): void {
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
  // A box keeps its size when its content grows, so both are watched.
  const observer = new ResizeObserver((entries) => {
    for (const { target } of entries) {
      const box = target.closest<HTMLElement>('.scroll');
      if (box !== null) update(box);
    }
  });
  for (const box of document.querySelectorAll<HTMLElement>('.scroll')) {
    observer.observe(box);
    for (const child of box.children) observer.observe(child);
  }
}
