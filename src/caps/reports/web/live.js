// A run that goes on: its progress, and new figures and rows as they come.
function progressView(news) {
  const box = document.createElement("section");
  box.id = "progress";
  const bar = make("progress", "", { max: news.total ?? 1, "aria-label": `${news.what} done` });
  if (news.total !== null) bar.value = news.done;
  const count = news.total === null ? news.done.toLocaleString("en") : `${news.done.toLocaleString("en")} of ${news.total.toLocaleString("en")}`;
  const line = make("p", "", { class: "meter" });
  line.append(make("b", `${count} ${news.what}`));
  for (const [name, text] of news.facts) line.append(make("span", `${name} ${text}`));
  box.append(bar, line);
  if (news.silent) box.append(make("p", news.silent, { class: "note bad" }));
  if (news.in_play) {
    const shown = news.playing.slice(0, 12), rest = news.in_play - shown.length;
    box.append(make("p", `In play: ${shown.join(", ")}${rest > 0 ? ` and ${rest} more` : ""}`, { class: "note" }));
  }
  return box;
}

if (data.live) {
  const kind = table ? "run" : "waiting";
  const events = new EventSource(`events?kind=${kind}&rows=${data.rows.length}`);
  events.addEventListener("progress", (event) => {
    const news = JSON.parse(event.data);
    document.getElementById("progress")?.remove();
    if (news) document.getElementById("figures").before(progressView(news));
  });
  events.addEventListener("message", (event) => {
    const update = JSON.parse(event.data);
    if (update.reload) { events.close(); location.reload(); return; }
    for (const name of ["figures", "details"]) document.getElementById(name).replaceChildren(...update[name].map((node) => buildAll(node, [])));
    document.getElementById("status").textContent = update.status;
    data.rows.push(...update.rows);
    table.refresh();
    if (update.finished) { events.close(); document.getElementById("progress")?.remove(); }
  });
}
