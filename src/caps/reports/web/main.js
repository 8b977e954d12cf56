// Theme, receipts on demand, and what the page shows for an address.
const data = JSON.parse(await inflate(atob(document.getElementById("data").textContent)));
const overview = document.getElementById("overview");
const receiptView = document.getElementById("receipt");
const theme = document.getElementById("theme");
const dark = window.matchMedia("(prefers-color-scheme: dark)");
const receipts = new Map(), parts = new Map(), unpacking = [];
let table = null, shownRow = null;

function setTheme(name) {
  document.documentElement.dataset.theme = name;
  theme.textContent = name === "dark" ? "Light" : "Dark";
  theme.setAttribute("aria-label", `Switch to the ${name === "dark" ? "light" : "dark"} theme`);
}
theme.hidden = false;
setTheme(dark.matches ? "dark" : "light");
theme.addEventListener("click", () => setTheme(document.documentElement.dataset.theme === "dark" ? "light" : "dark"));

async function unpack(start, packed) {
  (await inflate(packed)).split("\0").forEach((receipt, index) => receipts.set(start + index, unfolded(receipt)));
}
// A line that was there before is its number.
function unfolded(receipt) {
  const lines = [];
  for (const line of receipt.split("\n")) lines.push(line[0] === "\x01" ? lines[line.slice(1)] : line);
  return lines.join("\n");
}
// Receipts beside the page are scripts that call this: a page from disk can load nothing else.
window.capsPart = (start, packed) => unpacking.push(unpack(start, packed));

function fetchPart(number) {
  const inside = document.getElementById(`part-${number}`);
  if (inside) return unpack(data.starts[number], atob(inside.textContent));
  return new Promise((done) => {
    const script = document.createElement("script");
    script.charset = "x-user-defined"; // each byte is a letter
    script.src = trusted.createScriptURL(`${data.folder}/${number}.js`);
    script.onload = script.onerror = () => { script.remove(); Promise.allSettled(unpacking).then(done); };
    document.head.append(script);
  });
}

async function load(index) {
  const number = data.starts === null ? index : data.starts.findLastIndex((start) => start <= index);
  if (receipts.has(index) || number < 0) return receipts.get(index) ?? null;
  if (!parts.has(number)) parts.set(number, fetchPart(number));
  await parts.get(number);
  if (!receipts.has(index)) parts.delete(number);
  return receipts.get(index) ?? null;
}

async function show(row, game) {
  if (row === shownRow) { if (game) openGame(`g${game}`); return; }
  shownRow = row;
  const loaded = await Promise.all(row.receipts.map(load));
  if (shownRow !== row) return;
  const articles = loaded.map((receipt, index) => {
    if (receipt) return separate(parsed(receipt).firstElementChild, index);
    const article = document.createElement("article");
    article.append(make("h1", `Case ${row.name}`),
      make("p", data.folder ? `The receipt is in the folder ${data.folder}, which is missing beside this page.`
        : "This page was written without receipts."));
    return article;
  });
  receiptView.replaceChildren(navigation(row), ...articles);
  receiptView.className = articles.length > 1 ? "both" : "";
  overview.hidden = true;
  receiptView.hidden = false;
  window.scrollTo(0, 0);
  const head = receiptView.querySelector("h1");
  head.tabIndex = -1;
  head.focus({ preventScroll: true });
  liven(receiptView);
  if (game) openGame(`g${game}`);
}

// The second of two receipts on a page gets separate anchors.
function separate(article, index) {
  if (data.runs.length) article.prepend(make("p", `Run ${data.runs[index]}`, { class: "run-name" }));
  if (index) {
    article.querySelectorAll("details[id]").forEach((one) => { one.id = `${one.id}-${index}`; });
    article.querySelectorAll("[role=region]").forEach((one) => one.setAttribute("aria-label", `${one.getAttribute("aria-label")}, run ${data.runs[index]}`));
    article.querySelectorAll("[data-game]").forEach((link) => link.setAttribute("href", `${link.getAttribute("href")}-${index}`));
  }
  return article;
}

// Browsers and people escape different characters of an id in an address.
function unescaped(text) {
  return text.replace(/(?:%[\da-f]{2})+/gi, (part) => { try { return decodeURIComponent(part); } catch { return part; } });
}

function route() {
  document.getElementById("no-case")?.remove();
  const [, name, game] = /^#case=(.*?)(?:&game=([\d-]+))?$/.exec(location.hash) ?? [];
  const row = name === undefined ? null : data.rows.find((one) => unescaped(name) === one.name);
  if (row) { show(row, game); return; }
  if (name !== undefined) overview.prepend(make("p", `There is no case ${unescaped(name)} on this page.`, { id: "no-case", class: "simulated", role: "status" }));
  const left = shownRow;
  const wasHidden = receiptView.hidden;
  shownRow = null;
  receiptView.hidden = true;
  overview.hidden = false;
  if (table?.read()) { if (wasHidden) table.root.scrollIntoView(); }
  if (!wasHidden) focusRow(left);
}

document.addEventListener("click", (event) => {
  const link = event.target.closest("[data-game]");
  if (!link) return;
  event.preventDefault();
  const id = link.getAttribute("href").slice(1);
  if (shownRow) history.replaceState(null, "", caseAddress(shownRow, id.slice(1)));
  openGame(id);
});
window.addEventListener("beforeprint", () => document.querySelectorAll("details.fold").forEach((fold) => { fold.open ||= fold.closest("#overview") !== null; }));

if (document.getElementById("listing")) {
  table = new Listing(data, (row) => { location.hash = caseAddress(row); });
  window.addEventListener("hashchange", route);
  route();
}

liven(overview);
document.documentElement.dataset.ready = "";
