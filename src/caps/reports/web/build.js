// Builds elements from a tree of lists: text stays text, unknown elements and attributes are refused.
// {t} is a long text, {f, v} a template with its values, {h} the place of a value in a template.
const SVG = "http://www.w3.org/2000/svg";
const TAGS = new Set(("a article b bdi br circle code dd desc details div dl dt g h1 h2 h3 h4 h5 li p path pre rect section " +
  "span strong sub summary svg table tbody td text th thead title tr ul").split(" "));
const ATTRIBUTES = /^(aria-label|class|cx|cy|d|data-formula|data-game|data-kind|data-name|height|href|id|open|r|role|rx|scope|tabindex|text-anchor|title|transform|viewBox|width|x|y)$/;
const written = (value) => (typeof value === "number" ? String(Math.round(10 * value) / 10) : value);

// The attributes of an element of a template, with its values in place of the holes.
function named(attributes, values) {
  const found = {};
  for (const [name, value] of Object.entries(attributes)) {
    if (typeof value === "string") found[name] = value;
    else if (values[value.h] !== null) found[name] = (value.p ?? "") + written(values[value.h]);
  }
  return found;
}

function build(node, texts = [], inSvg = false, deferred = [], values = null) {
  if (typeof node === "string" || typeof node === "number") return document.createTextNode(written(node));
  if (!Array.isArray(node)) {
    if ("f" in node) return build(data.templates[node.f], texts, inSvg, deferred, node.v);
    const text = document.createTextNode("");
    deferred.push(() => { text.data = node.t.map((index) => texts[index]).join(""); });
    return text;
  }
  const [tag, given, children] = node, attributes = values ? named(given, values) : given;
  if (!TAGS.has(tag)) throw new Error(`the element ${tag} is not allowed`);
  const isSvg = inSvg || tag === "svg";
  const element = isSvg ? document.createElementNS(SVG, tag) : document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (!ATTRIBUTES.test(name) || (name === "href" && !value.startsWith("#"))) throw new Error(`the attribute ${name} is not allowed`);
    element.setAttribute(name, value);
  }
  const folded = tag === "details" && !("open" in attributes) ? [] : deferred;
  for (const child of children) {
    // A list of lists is several children; an element is a list that begins with its name.
    const value = values && typeof child === "object" && "h" in child ? values[child.h] : child;
    const many = value === null ? [] : Array.isArray(value) && typeof value[0] !== "string" ? value : [value];
    for (const one of many) element.append(build(one, texts, isSvg, folded, value === child ? values : null));
  }
  // Long texts are inserted, rendered and compared when they are opened.
  if (attributes.class?.startsWith("rich")) folded.push(() => enrich(element));
  if ("data-formula" in attributes) folded.push(() => showFormula(element));
  if (attributes.class === "versus") folded.push(() => compareSides(element));
  if (tag === "details") element.addEventListener("toggle", () => folded !== deferred && folded.splice(0).forEach((fill) => fill()));
  return element;
}

function make(tag, text, attributes = {}) {
  const element = document.createElement(tag);
  element.textContent = text;
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
  return element;
}

function buildAll(node, texts) {
  const deferred = [];
  const element = build(node, texts, false, deferred);
  deferred.forEach((fill) => fill());
  return element;
}
