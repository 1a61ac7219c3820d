function update(box: HTMLElement): void {
  const scrolls = box.scrollWidth > box.clientWidth + 1 || box.scrollHeight > box.clientHeight + 1;
  if (scrolls === box.hasAttribute('tabindex')) return;
  if (scrolls) {
    box.tabIndex = 0;
    box.setAttribute('role', 'group');
    box.setAttribute('aria-label', box.dataset.name ?? '');
  } else {
    for (const attribute of ['tabindex', 'role', 'aria-label']) box.removeAttribute(attribute);
  }
}

let observer: ResizeObserver | undefined;

/**
 * Makes a box that scrolls reachable by keyboard. It gets a tab stop and a name only while its content overflows, so that useless stops are
 * avoided.
 */
export function watchScrollBox(box: Element): void {
  observer ??= new ResizeObserver((entries) => {
    for (const { target } of entries) {
      const scrolled = target.closest<HTMLElement>('.scroll');
      if (scrolled !== null) update(scrolled);
    }
  });
  // A box keeps its size when its content grows, so its children are observed too.
  for (const node of [box, ...box.children]) observer.observe(node);
}

/** Makes the scrolling boxes in a part of the page reachable by keyboard. */
export function watchScrollBoxes(part: ParentNode): void {
  for (const box of part.querySelectorAll('.scroll')) watchScrollBox(box);
}
