// A tree of lists becomes elements: text stays text, unknown elements and attributes are refused.
const SVG = "http://www.w3.org/2000/svg";
const TAGS = new Set(("a article b bdi br circle dd details div dl dt g h1 h2 h3 h4 h5 li p path pre rect section " +
  "span strong sub summary svg table tbody td text th thead title tr ul").split(" "));
const ATTRIBUTES = /^(aria-label|class|cx|cy|d|data-game|height|href|id|r|role|rx|scope|tabindex|text-anchor|title|viewBox|width|x|y)$/;

function build(node, texts = [], inside = false, waiting = []) {
  if (typeof node === "string") return document.createTextNode(node);
  if (!Array.isArray(node)) {
    const text = document.createTextNode("");
    waiting.push(() => { text.data = node.t.map((place) => texts[place]).join(""); });
    return text;
  }
  const [tag, attributes, ...children] = node;
  if (!TAGS.has(tag)) throw new Error(`no element may be called ${tag}`);
  const drawn = inside || tag === "svg";
  const element = drawn ? document.createElementNS(SVG, tag) : document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (!ATTRIBUTES.test(name) || (name === "href" && !value.startsWith("#"))) throw new Error(`no ${name} may be set`);
    element.setAttribute(name, value);
  }
  const folded = tag === "details" ? [] : waiting;
  element.append(...children.map((child) => build(child, texts, drawn, folded)));
  // Long texts are put in when someone opens them.
  if (tag === "details") element.addEventListener("toggle", () => folded.splice(0).forEach((fill) => fill()));
  return element;
}

function make(tag, words, attributes = {}) {
  const element = document.createElement(tag);
  element.textContent = words;
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
  return element;
}

function grown(node, texts) {
  const waiting = [];
  const element = build(node, texts, false, waiting);
  waiting.forEach((fill) => fill());
  return element;
}
