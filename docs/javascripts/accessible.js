// The theme adds these elements while a page is read; they get what readers of screens and keyboards need.
function complete() {
  for (const group of document.querySelectorAll("nav.md-code__nav:not([role])")) group.setAttribute("role", "none");
  for (const wide of document.querySelectorAll(".md-typeset__scrollwrap:not([tabindex])")) wide.tabIndex = 0;
  for (const code of document.querySelectorAll("pre > code:not([tabindex])")) code.tabIndex = 0;
}
new MutationObserver(complete).observe(document.documentElement, { childList: true, subtree: true });
complete();
