// Theme, receipts on demand, and updates of a running run.
const data = JSON.parse(document.getElementById("data").textContent);
const overview = document.getElementById("overview");
const receiptView = document.getElementById("receipt");
const theme = document.getElementById("theme");
const dark = window.matchMedia("(prefers-color-scheme: dark)");
const shards = new Map();
const receipts = new Map((data.receipts ?? []).map((receipt, index) => [index, receipt]));
let table = null, shownRow = null;

function setTheme(name) {
  document.documentElement.dataset.theme = name;
  theme.textContent = name === "dark" ? "Light" : "Dark";
  theme.setAttribute("aria-label", `Switch to the ${name === "dark" ? "light" : "dark"} theme`);
}
theme.hidden = false;
setTheme(dark.matches ? "dark" : "light");
theme.addEventListener("click", () => setTheme(document.documentElement.dataset.theme === "dark" ? "light" : "dark"));

// Receipts beside the page are compressed scripts: a page from disk can load nothing else.
async function unpack(start, packed) {
  JSON.parse(await inflate(packed)).forEach((receipt, index) => receipts.set(start + index, receipt));
}
const unpacking = [];
window.capsShard = (start, packed) => unpacking.push(unpack(start, packed));

function shardOf(index) {
  if (data.shards === null) return index;
  let shard = 0;
  data.shards.forEach((start, number) => { if (start <= index) shard = number; });
  return shard;
}

function load(index) {
  if (receipts.has(index)) return Promise.resolve(receipts.get(index));
  if (!data.folder) return Promise.resolve(null);
  const number = shardOf(index);
  if (!shards.has(number)) {
    shards.set(number, new Promise((done) => {
      const script = document.createElement("script");
      const address = `${data.folder}/${number}.js`;
      script.src = trusted ? trusted.createScriptURL(address) : address;
      script.onload = script.onerror = () => { script.remove(); Promise.allSettled(unpacking).then(done); };
      document.head.append(script);
    }));
  }
  return shards.get(number).then(() => {
    if (!receipts.has(index)) shards.delete(number);
    return receipts.get(index) ?? null;
  });
}

async function show(row, game) {
  if (row === shownRow) { if (game) openGame(`g${game}`); return; }
  shownRow = row;
  const loaded = await Promise.all(row[1].map(load));
  if (shownRow !== row) return;
  const articles = loaded.map((receipt, index) => {
    if (receipt) return separate(buildAll(receipt.tree, receipt.texts), index);
    const article = document.createElement("article");
    article.append(make("h1", `Case ${row[2]}`),
      make("p", data.folder ? `The receipt is in the folder ${data.folder}, which is missing beside this page. Judge calls in short:`
        : "This page was written without receipts. Judge calls in short:"),
      make("p", row[row.length - 1], { class: "log" }));
    return article;
  });
  receiptView.replaceChildren(navigation(row), ...articles);
  receiptView.querySelectorAll(".figure-box").forEach(pictureTools);
  receiptView.className = articles.length > 1 ? "both" : "";
  overview.hidden = true;
  receiptView.hidden = false;
  window.scrollTo(0, 0);
  const head = receiptView.querySelector("h1");
  head.tabIndex = -1;
  head.focus({ preventScroll: true });
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
  const row = name === undefined ? null : data.rows.find((one) => unescaped(name) === one[2]);
  if (row) { show(row, game); return; }
  if (name !== undefined) overview.prepend(make("p", `There is no case ${unescaped(name)} on this page.`, { id: "no-case", class: "simulated", role: "status" }));
  const left = shownRow;
  const last = shownRow ? caseAddress(shownRow) : "", wasHidden = receiptView.hidden;
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
  table = new Listing(data, (row) => { location.hash = `case=${encodeURIComponent(row[2])}`; });
  window.addEventListener("hashchange", route);
  route();
}

liven(overview);
