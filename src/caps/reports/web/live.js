// A run that goes on: its progress, and new figures and rows as they come, all written by the server.
if (data.live) {
  const kind = table ? "run" : "waiting", progress = document.getElementById("progress");
  const events = new EventSource(`events?kind=${kind}&rows=${data.rows.length}`);
  events.addEventListener("progress", (event) => {
    const news = JSON.parse(event.data);
    progress.hidden = !news;
    progress.replaceChildren(parsed(news));
  });
  events.addEventListener("message", (event) => {
    const update = JSON.parse(event.data);
    if (update.reload) { events.close(); location.reload(); return; }
    for (const name of ["figures", "details"]) document.getElementById(name).replaceChildren(parsed(update[name]));
    document.getElementById("status").textContent = update.status;
    data.rows.push(...update.rows);
    table.refresh();
    if (update.finished) { events.close(); progress.hidden = true; }
  });
}
