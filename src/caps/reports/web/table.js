// The cases: sorted, filtered and searched in memory, drawn a page at a time.
const PER_PAGE = 100;
const SIGNS = { 1: ["✓ right", "good"], 0: ["✗ wrong", "bad"] };

class Listing {
  constructor(data, open) {
    Object.assign(this, { data, open, kept: 0, words: "", by: -1, down: false, page: 0 });
    this.root = document.getElementById("listing");
    this.body = this.root.querySelector("tbody");
    this.chips = this.root.querySelector(".chips");
    this.count = this.root.querySelector(".count");
    this.search = this.root.querySelector("input");
    this.search.addEventListener("input", () => { this.words = this.search.value.toLowerCase(); this.again(); });
    this.root.querySelectorAll("th button").forEach((button, place) =>
      button.addEventListener("click", () => this.sort(place)));
    this.root.querySelector(".before").addEventListener("click", () => this.turn(-1));
    this.root.querySelector(".after").addEventListener("click", () => this.turn(1));
    this.root.querySelector(".tools").hidden = false;
    this.body.addEventListener("click", (event) => {
      const row = event.target.closest("tr");
      if (row && !event.target.closest("a")) this.open(this.data.rows[Number(row.dataset.row)]);
    });
    this.again();
  }

  again() {
    const { rows, filters } = this.data;
    this.chips.replaceChildren(...["all", ...filters].map((name, bit) => {
      const flag = bit ? 1 << (bit - 1) : 0;
      const many = flag ? rows.reduce((sum, row) => sum + ((row[0] & flag) ? 1 : 0), 0) : rows.length;
      const chip = make("button", `${name} ${many.toLocaleString("en")}`, { type: "button", "aria-pressed": String(this.kept === flag) });
      chip.disabled = flag && !many;
      chip.addEventListener("click", () => { this.kept = flag; this.page = 0; this.again(); this.chips.children[bit].focus(); });
      return chip;
    }));
    this.seen = rows.map((_, place) => place).filter((place) => (!this.kept || (rows[place][0] & this.kept))
      && (!this.words || String(rows[place][2]).toLowerCase().includes(this.words)));
    if (this.by >= 0) this.order();
    this.page = Math.min(this.page, Math.max(0, Math.ceil(this.seen.length / PER_PAGE) - 1));
    this.draw();
  }

  order() {
    const { rows } = this.data, cell = this.by + 2, sign = this.down ? -1 : 1;
    const text = new Intl.Collator("en", { numeric: true });
    this.seen.sort((a, b) => {
      const [one, other] = [rows[a][cell], rows[b][cell]];
      if (one === null || other === null) return (one === null) - (other === null) || a - b;
      return sign * (typeof one === "number" ? one - other : text.compare(one, other)) || a - b;
    });
  }

  sort(place) {
    this.down = this.by === place ? !this.down : !this.data.columns[place][1].startsWith("text");
    this.by = place;
    this.page = 0;
    this.root.querySelectorAll("thead th").forEach((head, at) =>
      head.setAttribute("aria-sort", at === place ? (this.down ? "descending" : "ascending") : "none"));
    this.again();
  }

  turn(step) { this.page += step; this.draw(); this.root.scrollIntoView(); }

  draw() {
    const { rows, columns } = this.data, start = this.page * PER_PAGE;
    const shown = this.seen.slice(start, start + PER_PAGE);
    this.body.replaceChildren(...shown.map((place) => {
      const line = document.createElement("tr");
      line.dataset.row = place;
      columns.forEach(([, kind], at) => line.append(this.cell(kind, rows[place][at + 2], at)));
      return line;
    }));
    const end = start + shown.length;
    this.count.textContent = this.seen.length ? `${start + 1}–${end} of ${this.seen.length.toLocaleString("en")}` : "none";
    this.root.querySelector(".before").disabled = !start;
    this.root.querySelector(".after").disabled = end >= this.seen.length;
  }

  cell(kind, value, at) {
    if (at === 0) {
      const head = make("th", "", { scope: "row" });
      const link = make("a", value, { href: `#case=${encodeURIComponent(value)}` });
      head.append(link);
      return head;
    }
    if (kind === "mark") { const [words, tone] = SIGNS[value] ?? ["–", ""]; return make("td", words, { class: tone }); }
    return make("td", value === null ? "–" : typeof value === "number" ? value.toLocaleString("en") : value, { class: kind });
  }
}
