// The table of cases: sorted, filtered and searched in memory, drawn a page at a time.
const PER_PAGE = 100;
const SIGNS = { 1: ["✓ right", "good"], 0: ["✗ wrong", "bad"] };

class Listing {
  constructor(data, open) {
    Object.assign(this, { data, open, filter: 0, query: "", sortColumn: -1, descending: false, page: 0 });
    this.root = document.getElementById("listing");
    this.body = this.root.querySelector("tbody");
    this.chips = this.root.querySelector(".chips");
    this.count = this.root.querySelector(".count");
    this.search = this.root.querySelector("input");
    this.search.addEventListener("input", () => { this.query = this.search.value.toLowerCase(); this.refresh(); });
    this.root.querySelectorAll("th button").forEach((button, column) =>
      button.addEventListener("click", () => this.sort(column)));
    this.root.querySelector(".before").addEventListener("click", () => this.changePage(-1));
    this.root.querySelector(".after").addEventListener("click", () => this.changePage(1));
    this.root.querySelector(".tools").hidden = false;
    this.body.addEventListener("click", (event) => {
      const row = event.target.closest("tr");
      if (row && !event.target.closest("a")) this.open(this.data.rows[Number(row.dataset.row)]);
    });
    this.refresh();
  }

  refresh() {
    const { rows, filters } = this.data;
    this.chips.replaceChildren(...["all", ...filters].map((name, bit) => {
      const flag = bit ? 1 << (bit - 1) : 0;
      const count = flag ? rows.reduce((sum, row) => sum + ((row[0] & flag) ? 1 : 0), 0) : rows.length;
      const chip = make("button", `${name} ${count.toLocaleString("en")}`, { type: "button", "aria-pressed": String(this.filter === flag) });
      chip.disabled = flag && !count;
      chip.addEventListener("click", () => { this.filter = flag; this.page = 0; this.refresh(); this.chips.children[bit].focus(); });
      return chip;
    }));
    this.visible = rows.map((_, index) => index).filter((index) => (!this.filter || (rows[index][0] & this.filter))
      && (!this.query || String(rows[index][2]).toLowerCase().includes(this.query)));
    if (this.sortColumn >= 0) this.sortRows();
    this.page = Math.min(this.page, Math.max(0, Math.ceil(this.visible.length / PER_PAGE) - 1));
    this.draw();
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
    this.descending = this.sortColumn === column ? !this.descending : !this.data.columns[column][1].startsWith("text");
    this.sortColumn = column;
    this.page = 0;
    this.root.querySelectorAll("thead th").forEach((head, at) =>
      head.setAttribute("aria-sort", at === column ? (this.descending ? "descending" : "ascending") : "none"));
    this.refresh();
  }

  changePage(step) { this.page += step; this.draw(); this.root.scrollIntoView(); }

  draw() {
    const { rows, columns } = this.data, start = this.page * PER_PAGE;
    const shown = this.visible.slice(start, start + PER_PAGE);
    this.body.replaceChildren(...shown.map((index) => {
      const line = document.createElement("tr");
      line.dataset.row = index;
      columns.forEach(([, kind], at) => line.append(this.cell(kind, rows[index][at + 2], at)));
      return line;
    }));
    const end = start + shown.length;
    this.count.textContent = this.visible.length ? `${start + 1}–${end} of ${this.visible.length.toLocaleString("en")}` : "none";
    this.root.querySelector(".before").disabled = !start;
    this.root.querySelector(".after").disabled = end >= this.visible.length;
  }

  cell(kind, value, at) {
    if (at === 0) {
      const head = make("th", "", { scope: "row" });
      const link = make("a", value, { href: `#case=${encodeURIComponent(value)}` });
      head.append(link);
      return head;
    }
    if (kind === "mark") { const [text, tone] = SIGNS[value] ?? ["–", ""]; return make("td", text, { class: tone }); }
    return make("td", value === null ? "–" : typeof value === "number" ? value.toLocaleString("en") : value, { class: kind });
  }
}
