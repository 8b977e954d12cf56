// Ask the server, follow the samples and the probability, and show how the answer was chosen.
const SVG = "http://www.w3.org/2000/svg";
const percent = (share) => `${(100 * share).toFixed(1)} %`;
let stopping = null;

function headers(more = {}) {
  const key = $("key").value;
  return key ? { ...more, authorization: `Bearer ${key}` } : more;
}

async function get(path) {
  const response = await fetch(path, { headers: headers() });
  if (response.status === 401) $("key-box").hidden = false;
  return response.ok ? response.json() : null;
}

async function start() {
  const models = await get("/v1/models");
  const names = (models?.data ?? []).map((one) => one.id).filter((id) => id.startsWith("caps/"));
  $("model").replaceChildren(...names.map((name) => make("option", name.slice(5), { value: name })));
  $("status").textContent = models ? "ready" : $("key-box").hidden ? "the model server does not list its models" : "enter a key of this server";
  showRecent();
}

// The events of a stream: data lines as JSON, until [DONE].
async function* events(response) {
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  for (let rest = ""; ;) {
    const { done, value } = await reader.read();
    if (done) return;
    const lines = (rest + value).split("\n");
    rest = lines.pop();
    for (const line of lines) if (line.startsWith("data: {")) yield JSON.parse(line.slice(6));
  }
}

// How the probability moved: a line over the events, with each event as a tooltip.
function drawSteps(steps) {
  const width = Math.min(560, $("result").clientWidth || 560), height = 90, known = steps.filter((one) => one.probability !== null && one.probability !== undefined);
  const svg = document.createElementNS(SVG, "svg");
  const words = known.map((one) => `${one.samples} answers: ${percent(one.probability)}`).join("; ");
  for (const [name, value] of Object.entries({ viewBox: `0 0 ${width} ${height + 24}`, role: "img", class: "chart", width, "aria-label": `Probability after each event. ${words}` })) svg.setAttribute(name, value);
  const x = (at) => 44 + (width - 60) * (known.length < 2 ? 0 : at / (known.length - 1)), y = (share) => height - (height - 12) * share;
  const add = (tag, attributes, text = "") => { const one = document.createElementNS(SVG, tag); for (const [name, value] of Object.entries(attributes)) one.setAttribute(name, value); one.textContent = text; svg.append(one); return one; };
  for (const share of [0, 0.5, 1]) {
    add("path", { d: `M44 ${y(share)}H${width}`, class: "grid" });
    add("text", { x: 38, y: y(share) + 4, "text-anchor": "end", class: "note" }, `${100 * share} %`);
  }
  add("text", { x: 44, y: height + 20, class: "note" }, "How sure: after each answer and verdict");
  add("path", { d: known.map((one, at) => `${at ? "L" : "M"}${x(at)} ${y(one.probability)}`).join(""), class: "front" });
  known.forEach((one, at) => {
    const dot = add("circle", { cx: x(at), cy: y(one.probability), r: 4, class: "dot" });
    const title = document.createElementNS(SVG, "title");
    title.textContent = `${one.what}: ${percent(one.probability)} after ${one.samples} answers, ${one.seconds} s`;
    dot.append(title);
  });
  return svg;
}

function bars(facts) {
  const groups = new Map();
  for (const one of facts.candidates) {
    const found = groups.get(one.cluster) ?? { text: one.text, votes: 0, rank: Infinity };
    found.votes += 1;
    if ((one.rank ?? Infinity) < found.rank) { found.rank = one.rank; found.text = one.text; }
    groups.set(one.cluster, found);
  }
  const rows = [...groups.values()].sort((a, b) => a.rank - b.rank);
  const list = make("ol", "", { class: "answers" });
  for (const one of rows) {
    const boxed = /\\boxed\{([^{}]*)\}/.exec(one.text)?.[1];
    const short = boxed ?? one.text.trim().split("\n").pop().slice(0, 120);
    const meter = make("meter", "", { min: 0, max: facts.candidates.length, value: one.votes, "aria-label": `votes for ${short}` });
    list.append(make("li", "", {}, make("b", short), meter, make("span", ` ${one.votes} of ${facts.candidates.length} answers`),
      make("details", "", {}, make("summary", "Text"), make("pre", one.text, { tabindex: 0 }))));
  }
  return list;
}

function receipt(facts, usage) {
  const box = make("div");
  const sure = facts.sureness ? `, ${facts.sureness}` : "";
  box.append(make("p", `${facts.samples} answers in ${facts.clusters} groups, chosen by ${facts.strategy}${sure}.`, { class: "lead" }));
  if (facts.candidates) box.append(make("h3", "The answers"), bars(facts));
  if (facts.explanation?.length) {
    const list = make("ol");
    for (const one of facts.explanation) list.append(make("li", `${one.what}: ${one.change >= 0 ? "+" : ""}${(100 * one.change).toFixed(1)} points, to ${percent(one.to)}`));
    box.append(make("h3", "What moved the probability"), list);
  }
  const calls = usage?.caps?.verifier?.calls, money = facts.costs?.total;
  const cost = [`${usage?.total_tokens?.toLocaleString("en") ?? "?"} tokens`];
  if (calls !== undefined) cost.push(`${calls} judge calls`);
  if (money !== null && money !== undefined) cost.push(`$${money}`);
  box.append(make("p", `Cost: ${cost.join(", ")}. Run ${facts.run_id}.`, { class: "note" }));
  return box;
}

async function ask(event) {
  event.preventDefault();
  const result = $("result"), steps = [], now = make("p", "Waiting for the first answer …", { class: "note" });
  const picture = make("div", "", { class: "drawn" }), answer = make("pre", "", { class: "answer", tabindex: 0 }), below = make("div");
  answer.hidden = true;
  result.replaceChildren(make("h2", "Answer"), answer, now, picture, below);
  result.hidden = false;
  stopping = new AbortController();
  [$("send").hidden, $("stop").hidden] = [true, false];
  const count = $("samples").value;
  const body = {
    model: $("model").value, stream: true, messages: [{ role: "user", content: $("question").value }],
    stream_options: { include_progress: true, include_usage: true },
    caps: { n: count === "auto" ? count : Number(count), explain: true },
  };
  let facts = null, usage = null;
  try {
    const response = await fetch("/v1/chat/completions", { method: "POST", body: JSON.stringify(body), headers: headers({ "content-type": "application/json" }), signal: stopping.signal });
    if (!response.ok) throw new Error((await response.json()).error?.message ?? `status ${response.status}`);
    for await (const one of events(response)) {
      if (one.error) throw new Error(one.error.message);
      if (one.caps?.progress) {
        steps.push(one.caps.progress);
        const { samples, probability, what } = one.caps.progress;
        now.textContent = `${samples} answers so far${probability === null ? "" : `, probability ${percent(probability)}`}: ${what}`;
        picture.replaceChildren(drawSteps(steps));
      } else if (one.caps) facts = one.caps;
      if (one.usage) usage = one.usage;
      const text = one.choices?.[0]?.delta?.content;
      if (text) { answer.hidden = false; answer.textContent += text; }
    }
    now.textContent = "";
    if (facts) below.replaceChildren(receipt(facts, usage));
  } catch (error) {
    now.textContent = error.name === "AbortError" ? "Stopped." : `Failed: ${error.message}`;
    now.classList.add("bad");
  }
  [$("send").hidden, $("stop").hidden] = [false, true];
  showRecent();
}

async function showRecent() {
  const found = await get("/recent");
  $("recent").hidden = !found?.requests;
  if (!found?.requests) return;
  const rows = found.requests.map((one) => {
    const sure = one.sureness ? ` · ${one.sureness}` : "";
    return make("details", "", {}, make("summary", `${one.time} · ${one.model}${sure} · ${one.samples} answers · ${one.seconds} s · ${one.question.slice(0, 80)}`),
      make("pre", one.question, { tabindex: 0 }), make("pre", one.answer, { tabindex: 0 }));
  });
  $("requests").replaceChildren(...(rows.length ? rows : [make("p", "None yet.", { class: "note" })]));
}

$("ask").addEventListener("submit", ask);
$("stop").addEventListener("click", () => stopping?.abort());
$("key").addEventListener("change", start);
$("question").addEventListener("keydown", (event) => { if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) $("ask").requestSubmit(); });
start();
