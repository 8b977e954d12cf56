// Builds elements from a tree of lists: text stays text, unknown elements and attributes are refused.
const SVG = "http://www.w3.org/2000/svg";
const TAGS = new Set(("a article b bdi br circle code dd desc details div dl dt g h1 h2 h3 h4 h5 li p path pre rect section " +
  "span strong sub summary svg table tbody td text th thead title tr ul").split(" "));
const ATTRIBUTES = /^(aria-label|class|cx|cy|d|data-formula|data-game|data-kind|data-name|height|href|id|open|r|role|rx|scope|tabindex|text-anchor|title|viewBox|width|x|y)$/;

function build(node, texts = [], inSvg = false, deferred = []) {
  if (typeof node === "string") return document.createTextNode(node);
  if (!Array.isArray(node)) {
    const text = document.createTextNode("");
    deferred.push(() => { text.data = node.t.map((index) => texts[index]).join(""); });
    return text;
  }
  const [tag, attributes, children] = node;
  if (!TAGS.has(tag)) throw new Error(`the element ${tag} is not allowed`);
  const isSvg = inSvg || tag === "svg";
  const element = isSvg ? document.createElementNS(SVG, tag) : document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (!ATTRIBUTES.test(name) || (name === "href" && !value.startsWith("#"))) throw new Error(`the attribute ${name} is not allowed`);
    element.setAttribute(name, value);
  }
  const folded = tag === "details" && !("open" in attributes) ? [] : deferred;
  element.append(...children.map((child) => build(child, texts, isSvg, folded)));
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
