// Applies a stored theme before the page is painted, so that it does not flash.
try {
  const theme = localStorage.getItem('scalepoint-theme');
  if (theme === 'light' || theme === 'dark') document.documentElement.dataset.theme = theme;
} catch {
  // Storage may be forbidden. The theme of the system remains.
}
