// Theme, receipts on demand, and a run that goes on while one looks.
const data = JSON.parse(document.getElementById("data").textContent);
const overview = document.getElementById("overview");
const room = document.getElementById("receipt");
const theme = document.getElementById("theme");
const dark = window.matchMedia("(prefers-color-scheme: dark)");
const trusted = window.trustedTypes?.createPolicy("caps", { createScriptURL: (address) => address });
const shards = new Map();
const receipts = new Map((data.receipts ?? []).map((receipt, place) => [place, receipt]));
let table = null;

function paint(name) {
  document.documentElement.dataset.theme = name;
  theme.textContent = name === "dark" ? "Light" : "Dark";
  theme.setAttribute("aria-label", `Switch to the ${name === "dark" ? "light" : "dark"} theme`);
}
theme.hidden = false;
paint(dark.matches ? "dark" : "light");
theme.addEventListener("click", () => paint(document.documentElement.dataset.theme === "dark" ? "light" : "dark"));

// Receipts beside the page come packed; a file from disk can only be loaded as a script, so that is what they are.
async function unpack(start, packed) {
  const bytes = Uint8Array.from(atob(packed), (letter) => letter.charCodeAt(0));
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"));
  JSON.parse(await new Response(stream).text()).forEach((receipt, place) => receipts.set(start + place, receipt));
}
const unpacking = [];
window.capsShard = (start, packed) => unpacking.push(unpack(start, packed));

function shardOf(place) {
  if (data.shards === null) return place;
  let found = 0;
  data.shards.forEach((start, number) => { if (start <= place) found = number; });
  return found;
}

function load(place) {
  if (receipts.has(place)) return Promise.resolve(receipts.get(place));
  if (!data.folder) return Promise.resolve(null);
  const number = shardOf(place);
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
    if (!receipts.has(place)) shards.delete(number);
    return receipts.get(place) ?? null;
  });
}

async function show(row) {
  const held = await Promise.all(row[1].map(load));
  const back = make("a", "← all cases", { href: "#", class: "back" });
  const drawn = held.map((receipt, place) => {
    if (receipt) return apart(grown(receipt.tree, receipt.texts), place);
    const article = document.createElement("article");
    article.append(make("h1", `Case ${row[2]}`),
      make("p", data.folder ? `The receipt is in the folder ${data.folder}, which is not beside this page. The games in short:`
        : "This page was written without receipts. The games in short:"),
      make("p", row[row.length - 1], { class: "log" }));
    return article;
  });
  room.replaceChildren(back, ...drawn);
  room.className = drawn.length > 1 ? "both" : "";
  overview.hidden = true;
  room.hidden = false;
  window.scrollTo(0, 0);
  const head = room.querySelector("h1");
  head.tabIndex = -1;
  head.focus({ preventScroll: true });
}

// Of two receipts on a page the second gets anchors of its own.
function apart(article, place) {
  if (data.runs.length) article.prepend(make("p", data.runs[place], { class: "brand" }));
  if (place) {
    article.querySelectorAll("details.game").forEach((game) => { game.id = `${game.id}-${place}`; });
    article.querySelectorAll("[data-game]").forEach((link) => link.setAttribute("href", `${link.getAttribute("href")}-${place}`));
  }
  return article;
}

function route() {
  const row = data.rows.find((one) => location.hash === `#case=${encodeURIComponent(one[2])}`);
  if (row) { show(row); return; }
  if (room.hidden) return;
  room.hidden = true;
  overview.hidden = false;
  table?.search.focus({ preventScroll: true });
}

document.addEventListener("click", (event) => {
  const link = event.target.closest("[data-game]");
  if (!link) return;
  event.preventDefault();
  const game = document.getElementById(link.getAttribute("href").slice(1));
  game.open = true;
  game.scrollIntoView({ block: "start" });
  game.querySelector("summary").focus({ preventScroll: true });
});
window.addEventListener("beforeprint", () => document.querySelectorAll("details.fold").forEach((fold) => { fold.open ||= fold.closest("#overview") !== null; }));

if (document.getElementById("listing")) {
  table = new Listing(data, (row) => { location.hash = `case=${encodeURIComponent(row[2])}`; });
  window.addEventListener("hashchange", route);
  route();
}

if (data.live) {
  const news = new EventSource(`events?rows=${data.rows.length}`);
  news.addEventListener("message", (event) => {
    const told = JSON.parse(event.data);
    if (told.again) { location.reload(); return; }
    document.getElementById("figures").replaceChildren(...told.figures.map((node) => grown(node, [])));
    document.getElementById("status").textContent = told.status;
    data.rows.push(...told.rows);
    table.again();
    if (told.finished) news.close();
  });
}
