// Receipts: previous and next, keys, links to a game.
const help = document.getElementById("keys");
help.querySelector("button").addEventListener("click", () => help.close());

const caseAddress = (row, game = null) => `#case=${encodeURIComponent(row.name)}${game === null ? "" : `&game=${game}`}`;

// The rows as the table shows them: j and k follow its order and its filter.
function neighbour(row, step) {
  const shown = table?.visible?.length ? table.visible.map((index) => data.rows[index]) : data.rows;
  const at = shown.indexOf(row);
  return at < 0 ? null : shown[at + step] ?? null;
}

function navigation(row) {
  const bar = make("nav", "", { class: "cases-nav", "aria-label": "Cases" });
  const back = make("a", "← all cases", { href: table?.address?.() ?? "#", class: "back" });
  bar.append(back);
  for (const [step, text] of [[-1, "‹ previous"], [1, "next ›"]]) {
    const other = neighbour(row, step);
    bar.append(other ? make("a", text, { href: caseAddress(other), class: "step", title: `Case ${other.name}` }) : make("span", text, { class: "step off" }));
  }
  const keys = make("button", "Keys", { type: "button", class: "keys" });
  keys.addEventListener("click", () => help.showModal());
  bar.append(keys);
  return bar;
}

// Back among all cases, the one that was open is in focus.
function focusRow(row) {
  const link = row && [...document.querySelectorAll("#listing tbody a")].find((one) => one.getAttribute("href") === caseAddress(row));
  (link ?? table?.search)?.focus({ preventScroll: !link });
}

function openGame(id) {
  const game = document.getElementById(id);
  if (!game) return;
  game.open = true;
  game.scrollIntoView({ block: "start" });
  game.querySelector("summary").focus({ preventScroll: true });
}

document.addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey || help.open) return;
  if (event.target.closest?.("input, select, textarea")) { if (event.key === "Escape") event.target.blur(); return; }
  if (event.key === "?") { event.preventDefault(); help.showModal(); return; }
  if (!table || !shownRow) return;
  if (event.key === "/") {
    event.preventDefault();
    addEventListener("hashchange", () => table.search.focus(), { once: true });
    location.hash = table.address?.() ?? "";
  } else if (event.key === "Escape") location.hash = table.address?.() ?? "";
  else if (event.key === "j" || event.key === "k") {
    const other = neighbour(shownRow, event.key === "j" ? 1 : -1);
    if (other) location.hash = caseAddress(other);
  }
});

function save(name, type, text) {
  const link = make("a", "", { href: URL.createObjectURL(new Blob([text], { type })), download: name });
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 1000);
}

// Texts are rendered and compared when they are opened.
function liven(root) {
  root.querySelectorAll("[data-formula]").forEach(showFormula);
  root.querySelectorAll(".rich, .versus").forEach((element) => {
    const act = () => (element.classList.contains("rich") ? enrich(element) : compareSides(element));
    const closed = element.closest("details:not([open])");
    if (closed) closed.addEventListener("toggle", act, { once: true }); else act();
  });
}
