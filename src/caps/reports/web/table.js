// The table of cases: sorted, filtered and searched in memory, drawn a page at a time. What is shown is kept
// in the address (#filter=wrong&sort=-probability&find=triangle&page=2), so that it can be linked to.
const PER_PAGE = 100;
const LONG_SHOWN = 140;
const SIGNS = { 1: ["✓ right", "good"], 0: ["✗ wrong", "bad"] };

class Listing {
  constructor(data, open) {
    Object.assign(this, { data, open, filter: 0, query: "", sortColumn: -1, descending: false, page: 0, current: -1 });
    this.root = document.getElementById("listing");
    this.body = this.root.querySelector("tbody");
    this.chips = this.root.querySelector(".chips");
    this.count = this.root.querySelector(".count");
    this.search = this.root.querySelector("input");
    this.sorting = this.root.querySelector("select.sorting");
    this.found = data.columns.flatMap(([, kind], at) => (/^(text|long)/.test(kind) ? [at + 2] : []));
    this.search.addEventListener("input", () => { this.query = this.search.value; this.page = 0; this.changed(); });
    this.sorting.addEventListener("change", () => this.sort(this.sorting.value === "" ? -1 : Number(this.sorting.value)));
    this.root.querySelectorAll("th button").forEach((button, column) =>
      button.addEventListener("click", () => this.sort(column)));
    this.root.querySelector(".before").addEventListener("click", () => this.changePage(-1));
    this.root.querySelector(".after").addEventListener("click", () => this.changePage(1));
    this.root.querySelector(".tools").hidden = false;
    this.body.addEventListener("click", (event) => {
      const row = event.target.closest("tr");
      if (row && !event.target.closest("a") && !String(getSelection())) this.open(this.data.rows[Number(row.dataset.row)]);
    });
    document.addEventListener("keydown", (event) => this.key(event));
    this.read() || this.refresh();
  }

  // The address that shows the table as it is now; "#" where nothing is chosen.
  address() {
    const parts = new URLSearchParams();
    const name = this.data.filters[Math.log2(this.filter)];
    if (name) parts.set("filter", name);
    if (this.sortColumn >= 0) parts.set("sort", (this.descending ? "-" : "") + this.data.columns[this.sortColumn][0]);
    if (this.query) parts.set("find", this.query);
    if (this.page) parts.set("page", this.page + 1);
    return `#${parts}`;
  }

  // Show what the address asks for; returns whether it asks for anything.
  read() {
    const parts = new URLSearchParams(location.hash.slice(1));
    if (!["filter", "sort", "find", "page"].some((name) => parts.has(name))) return false;
    const bit = this.data.filters.indexOf(parts.get("filter"));
    const sort = parts.get("sort") ?? "";
    this.filter = bit < 0 ? 0 : 1 << bit;
    this.query = this.search.value = parts.get("find") ?? "";
    this.descending = sort.startsWith("-");
    this.sortColumn = this.data.columns.findIndex(([name]) => name === sort.replace(/^-/, ""));
    this.page = Math.max(0, Number(parts.get("page") ?? 1) - 1 || 0);
    this.refresh();
    return true;
  }

  changed() {
    this.refresh();
    history.replaceState(null, "", this.address());
  }

  refresh() {
    const { rows, filters } = this.data;
    this.chips.replaceChildren(...["all", ...filters].flatMap((name, bit) => {
      const flag = bit ? 1 << (bit - 1) : 0;
      const count = flag ? rows.reduce((sum, row) => sum + ((row[0] & flag) ? 1 : 0), 0) : rows.length;
      if (flag && !count && this.filter !== flag) return [];
      const chip = make("button", `${name} ${count.toLocaleString("en")}`, { type: "button", "aria-pressed": String(this.filter === flag) });
      chip.addEventListener("click", () => { this.filter = flag; this.page = 0; this.changed(); this.chips.querySelector("[aria-pressed=true]").focus(); });
      return [chip];
    }));
    const words = plainText(this.query);
    this.visible = rows.map((_, index) => index).filter((index) => (!this.filter || (rows[index][0] & this.filter))
      && (!words || this.textOf(index).includes(words)));
    if (this.sortColumn >= 0) this.sortRows();
    this.root.querySelectorAll("thead th").forEach((head, at) =>
      head.setAttribute("aria-sort", at === this.sortColumn ? (this.descending ? "descending" : "ascending") : "none"));
    this.sorting.value = this.sortColumn < 0 ? "" : String(this.sortColumn);
    this.page = Math.min(this.page, Math.max(0, Math.ceil(this.visible.length / PER_PAGE) - 1));
    this.current = -1;
    this.draw();
  }

  // All that a search looks at, kept for the next letter of the query.
  textOf(index) {
    const row = this.data.rows[index];
    this.texts ??= [];
    return this.texts[index] ??= plainText(`${this.found.map((at) => row[at] ?? "").join("\n")}\n${row[row.length - 2]}`);
  }

  sortRows() {
    const { rows } = this.data, cell = this.sortColumn + 2, sign = this.descending ? -1 : 1;
    const text = new Intl.Collator("en", { numeric: true });
    this.visible.sort((a, b) => {
      const [one, other] = [rows[a][cell], rows[b][cell]];
      if (one === null || other === null) return (one === null) - (other === null) || a - b;
      return sign * (typeof one === "number" ? one - other : text.compare(one, other)) || a - b;
    });
  }

  sort(column) {
    const kind = column < 0 ? "" : this.data.columns[column][1];
    // The least likely first, otherwise the largest first; names from A to Z.
    this.descending = this.sortColumn === column ? !this.descending : /^(number|money|mark)/.test(kind);
    this.sortColumn = column;
    this.page = 0;
    this.changed();
  }

  changePage(step) {
    this.page += step;
    this.draw();
    history.replaceState(null, "", this.address());
    this.root.scrollIntoView();
  }

  draw() {
    const { rows, columns } = this.data, start = this.page * PER_PAGE;
    const shown = this.visible.slice(start, start + PER_PAGE);
    this.body.replaceChildren(...shown.map((index) => {
      const line = document.createElement("tr");
      line.dataset.row = index;
      columns.forEach(([name, kind], at) => line.append(this.cell(kind, rows[index][at + 2], at, name)));
      return line;
    }));
    const end = start + shown.length, all = this.visible.length.toLocaleString("en");
    this.count.textContent = !this.visible.length ? "none found" : shown.length === this.visible.length ? `${all} shown` : `${start + 1}–${end} of ${all}`;
    this.root.querySelector(".before").disabled = !start;
    this.root.querySelector(".after").disabled = end >= this.visible.length;
    this.root.querySelectorAll(".before, .after").forEach((button) => { button.hidden = this.visible.length <= PER_PAGE; });
  }

  cell(kind, value, at, name) {
    if (at === 0) {
      const head = make("th", "", { scope: "row" });
      const link = make("a", value, { href: `#case=${encodeURIComponent(value)}` });
      head.append(link);
      return head;
    }
    if (kind === "mark") { const [text, tone] = SIGNS[value] ?? ["–", "mark"]; return make("td", text, { class: tone, "data-name": name }); }
    if (!/^(long|text)/.test(kind)) return make("td", cellText(kind, value), { class: kind, "data-name": name });
    const cell = make("td", "", { class: kind, "data-name": name });
    cell.append(make("span", cellText(kind, value), { class: "clamp" }));
    return cell;
  }

  // j and k move through the rows, Enter opens one, / searches.
  key(event) {
    if (event.defaultPrevented || event.ctrlKey || event.metaKey || event.altKey || !this.root.checkVisibility()) return;
    const typing = event.target.closest?.("input, select, textarea");
    if (event.key === "Escape" && typing === this.search) {
      this.search.value = this.query = "";
      this.search.blur();
      this.changed();
    } else if (typing) return;
    else if (event.key === "/") { event.preventDefault(); this.search.focus(); this.search.select(); }
    else if (event.key === "j" || event.key === "k") {
      const links = this.body.querySelectorAll("th a");
      const at = [...links].indexOf(document.activeElement);
      const next = at < 0 ? this.current + (event.key === "j" ? 1 : -1) : at + (event.key === "j" ? 1 : -1);
      this.current = Math.min(Math.max(next, 0), links.length - 1);
      links[this.current]?.focus();
    }
  }
}

function plainText(text) { return text.toLowerCase().split(/\s+/).filter(Boolean).join(" "); }

function cellText(kind, value) {
  if (value === null || value === undefined) return "–";
  if (kind.startsWith("share")) return `${(100 * value).toFixed(1)} %`;
  if (kind.startsWith("money")) return value >= 1 ? `$${value.toFixed(2)}` : value >= 0.001 ? `$${value.toFixed(4)}` : `$${Number(value.toPrecision(2))}`;
  if (kind.startsWith("long")) { const line = value.slice(0, 2 * LONG_SHOWN).split(/\s+/).join(" "); return line.length > LONG_SHOWN ? `${line.slice(0, LONG_SHOWN - 1)}…` : line; }
  return typeof value === "number" ? value.toLocaleString("en") : value;
}
