// The OpenAPI description of this server as a page.

function kindOf(schema) {
  const kind = schema.enum ? schema.enum.join(" | ") : schema.oneOf ? schema.oneOf.map(kindOf).join(" or ") : [].concat(schema.type ?? "any").join(" or ");
  const limits = [["minimum", "at least"], ["maximum", "at most"], ["minItems", "at least"], ["maxItems", "at most"]]
    .filter(([name]) => schema[name] !== undefined).map(([name, words]) => `${words} ${schema[name]}`);
  const usual = schema.default === undefined ? [] : [`default ${JSON.stringify(schema.default)}`];
  return [kind, ...limits, ...usual].join(", ");
}

function fields(schema, prefix = "") {
  return Object.entries(schema?.properties ?? {}).flatMap(([name, own]) => {
    const required = (schema.required ?? []).includes(name) ? " (required)" : "";
    const row = make("div", "", {}, make("dt", "", {}, make("code", prefix + name), required), make("dd", own.description ?? "", {}, make("span", ` ${kindOf(own)}`, { class: "note" })));
    return [row, ...(own.properties ? fields(own, `${prefix + name}.`) : [])];
  });
}

function example(method, path, schema) {
  const required = schema?.required ?? [], values = { model: "caps/MODEL", messages: [{ role: "user", content: "…" }], problem: "…", candidates: ["…", "…"] };
  const body = Object.fromEntries(required.map((name) => [name, values[name] ?? (schema.properties[name].type === "integer" ? 1000 : "…")]));
  const data = method === "post" ? ` -H 'content-type: application/json' -d '${JSON.stringify(body)}'` : "";
  return `curl ${location.origin}${path}${data}`;
}

async function start() {
  const key = $("key").value;
  const response = await fetch("/openapi.json", { headers: key ? { authorization: `Bearer ${key}` } : {} });
  $("key-box").hidden = response.status !== 401 && !key;
  if (!response.ok) { $("status").textContent = response.status === 401 ? "enter a key of this server" : `failed: status ${response.status}`; return; }
  const found = await response.json();
  $("status").textContent = `version ${found.info.version}`;
  const sections = Object.entries(found.paths).flatMap(([path, methods]) => Object.entries(methods).map(([method, one]) => {
    const schema = one.requestBody?.content?.["application/json"]?.schema;
    const box = make("section", "", {}, make("h2", "", {}, make("span", method.toUpperCase(), { class: "tag" }), ` ${path}`), make("p", `${one.summary}.`), make("pre", example(method, path, schema), { tabindex: 0 }));
    const rows = fields(schema);
    if (rows.length) box.append(make("details", "", {}, make("summary", `${rows.length} fields`), make("dl", "", {}, ...rows)));
    const replies = Object.entries(one.responses ?? {}).map(([status, reply]) => make("div", "", {}, make("dt", status), make("dd", reply.description)));
    box.append(make("details", "", {}, make("summary", "Replies"), make("dl", "", {}, ...replies)));
    return box;
  }));
  $("paths").replaceChildren(...sections);
}
$("key-box").addEventListener("submit", (event) => { event.preventDefault(); start(); });
$("key").addEventListener("change", start);
start();
