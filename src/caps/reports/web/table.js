// The table of cases: sorted, filtered and searched in memory, drawn a page at a time. What is shown is kept
// in the address (#filter=missed&group=domain:math&sort=-probability&find=triangle&page=2), so that it can be
// linked to. Rows are written by caps report; this script only chooses and orders them.
const PER_PAGE = 100;

class Listing {
  constructor(data, open) {
    Object.assign(this, { data, open, filter: 0, group: "", query: "", sortColumn: -1, descending: false, page: 0, current: -1 });
    this.root = document.getElementById("listing");
    this.body = this.root.querySelector("tbody");
    this.chips = this.root.querySelector(".chips");
    this.count = this.root.querySelector(".count");
    this.search = this.root.querySelector("input[type=search]");
    this.sorting = this.root.querySelector("select.sorting");
    this.boxes = [...this.root.querySelectorAll(".columns input")];
    this.found = data.columns.flatMap(({ kind }, at) => (/^(text|words|long)/.test(kind) ? [at] : []));
    this.search.addEventListener("input", () => { this.query = this.search.value; this.page = 0; this.changed(); });
    this.sorting.addEventListener("change", () => this.sort(this.sorting.value === "" ? -1 : Number(this.sorting.value)));
    this.root.querySelectorAll("th button").forEach((button, column) =>
      button.addEventListener("click", () => this.sort(column)));
    this.root.querySelector(".before").addEventListener("click", () => this.changePage(-1));
    this.root.querySelector(".after").addEventListener("click", () => this.changePage(1));
    this.root.querySelector(".csv").addEventListener("click", () => save("cases.csv", "text/csv", this.csv()));
    this.boxes.forEach((box) => {
      box.checked = this.root.querySelectorAll("thead th")[box.value].checkVisibility();
      box.addEventListener("change", () => { this.chosen = true; this.showColumns(); });
    });
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
    if (this.group) parts.set("group", this.group);
    if (this.sortColumn >= 0) parts.set("sort", (this.descending ? "-" : "") + this.data.columns[this.sortColumn].name);
    if (this.query) parts.set("find", this.query);
    if (this.page) parts.set("page", this.page + 1);
    return `#${parts}`;
  }

  // Show what the address asks for; returns whether it asks for anything.
  read() {
    const parts = new URLSearchParams(location.hash.slice(1));
    if (!["filter", "group", "sort", "find", "page"].some((name) => parts.has(name))) return false;
    const bit = this.data.filters.indexOf(parts.get("filter"));
    const sort = parts.get("sort") ?? "";
    this.filter = bit < 0 ? 0 : 1 << bit;
    this.group = parts.get("group") ?? "";
    this.query = this.search.value = parts.get("find") ?? "";
    this.descending = sort.startsWith("-");
    this.sortColumn = this.data.columns.findIndex(({ name }) => name === sort.replace(/^-/, ""));
    this.page = Math.max(0, Number(parts.get("page") ?? 1) - 1 || 0);
    this.refresh();
    return true;
  }

  changed() {
    this.refresh();
    history.replaceState(null, "", this.address());
  }

  chip(text, pressed, act) {
    const chip = make("button", text, { type: "button", "aria-pressed": String(pressed) });
    chip.addEventListener("click", () => { act(); this.page = 0; this.changed(); this.chips.querySelector("[aria-pressed=true]").focus(); });
    return chip;
  }

  refresh() {
    const { rows, filters, fields } = this.data;
    const chips = ["all", ...filters].flatMap((name, bit) => {
      const flag = bit ? 1 << (bit - 1) : 0;
      const count = flag ? rows.reduce((sum, row) => sum + ((row.flags & flag) ? 1 : 0), 0) : rows.length;
      if (flag && !count && this.filter !== flag) return [];
      return [this.chip(`${name} ${count.toLocaleString("en")}`, this.filter === flag, () => { this.filter = flag; })];
    });
    if (this.group) chips.push(this.chip(`${this.group.replace(":", ": ")} ×`, true, () => { this.group = ""; }));
    this.chips.replaceChildren(...chips);
    const words = plainText(this.query);
    const at = fields.findIndex((name) => this.group.startsWith(`${name}:`));
    const value = at < 0 ? null : this.group.slice(fields[at].length + 1);
    this.visible = rows.map((_, index) => index).filter((index) => (!this.filter || (rows[index].flags & this.filter))
      && (value === null || rows[index].groups[at] === value) && (!words || this.textOf(index).includes(words)));
    if (this.sortColumn >= 0) this.sortRows();
    this.root.querySelectorAll("thead th").forEach((head, column) =>
      head.setAttribute("aria-sort", column === this.sortColumn ? (this.descending ? "descending" : "ascending") : "none"));
    this.sorting.value = this.sortColumn < 0 ? "" : String(this.sortColumn);
    this.page = Math.min(this.page, Math.max(0, Math.ceil(this.visible.length / PER_PAGE) - 1));
    this.current = -1;
    this.draw();
  }

  // All that a search looks at, kept for the next letter of the query.
  textOf(index) {
    const row = this.data.rows[index];
    this.texts ??= [];
    return this.texts[index] ??= plainText(`${this.found.map((at) => row.values[at] ?? "").join("\n")}\n${row.words}`);
  }

  sortRows() {
    const { rows } = this.data, sign = this.descending ? -1 : 1;
    const text = new Intl.Collator("en", { numeric: true });
    this.visible.sort((a, b) => {
      const [one, other] = [a, b].map((index) => rows[index].values[this.sortColumn]);
      if (one === null || other === null) return (one === null) - (other === null) || a - b;
      return sign * (typeof one === "number" ? one - other : text.compare(one, other)) || a - b;
    });
  }

  sort(column) {
    const kind = column < 0 ? "" : this.data.columns[column].kind;
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
    const start = this.page * PER_PAGE, shown = this.visible.slice(start, start + PER_PAGE);
    const lines = parsed(`<table><tbody>${shown.map((index) => this.data.rows[index].html).join("")}</tbody></table>`);
    this.body.replaceChildren(...lines.querySelectorAll("tr"));
    [...this.body.children].forEach((line, at) => { line.dataset.row = shown[at]; });
    const end = start + shown.length, all = this.visible.length.toLocaleString("en");
    this.count.textContent = !this.visible.length ? "none found" : shown.length === this.visible.length ? `${all} shown` : `${start + 1}–${end} of ${all}`;
    this.root.querySelector(".before").disabled = !start;
    this.root.querySelector(".after").disabled = end >= this.visible.length;
    this.root.querySelectorAll(".before, .after").forEach((button) => { button.hidden = this.visible.length <= PER_PAGE; });
    this.showColumns();
  }

  // Until columns are chosen, the style of the page shows as many as fit.
  showColumns() {
    if (!this.chosen) return;
    for (const box of this.boxes) {
      for (const line of this.root.querySelectorAll("tr")) {
        line.children[box.value].hidden = !box.checked;
        line.children[box.value].classList.remove("wide", "chosen");
      }
    }
  }

  // The rows that are shown, on all pages; a text that a spreadsheet would take for a formula is quoted.
  csv() {
    const field = (value) => {
      const text = value === null ? "" : typeof value === "number" ? String(value) : value.replace(/^(?=[=+\-@\t\r])/, "'");
      return /[",\r\n]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
    };
    const lines = [this.data.columns.map(({ name }) => name), ...this.visible.map((index) => this.data.rows[index].values)];
    return lines.map((line) => line.map(field).join(",")).join("\r\n") + "\r\n";
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
