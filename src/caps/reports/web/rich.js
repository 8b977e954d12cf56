// Elements: those of this script, and markup that caps wrote. It escapes every text; beyond that, only these
// elements and attributes are let onto the page, and links lead nowhere but into it.
const TAGS = new Set(("a article b bdi br circle code dd desc details div dl dt g h1 h2 h3 h4 h5 input label li p path pre progress rect " +
  "section span strong sub summary svg table tbody td text th thead title tr ul").split(" "));
const ATTRIBUTES = /^(aria-hidden|aria-label|class|cx|cy|d|data-formula|data-game|data-kind|data-name|height|href|id|max|open|preserveAspectRatio|r|role|rx|scope|tabindex|text-anchor|title|type|value|viewBox|width|x|y)$/;

function parsed(markup) {
  const template = document.createElement("template");
  template.innerHTML = trusted.createHTML(markup);
  for (const element of template.content.querySelectorAll("*")) {
    if (!TAGS.has(element.localName)) throw new Error(`the element ${element.localName} is not allowed`);
    for (const { name, value } of element.attributes)
      if (!ATTRIBUTES.test(name) || (name === "href" && !value.startsWith("#"))) throw new Error(`the attribute ${name} is not allowed`);
  }
  return template.content;
}

function make(tag, text, attributes = {}) {
  const element = document.createElement(tag);
  element.textContent = text;
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
  return element;
}

// Texts of candidates and judges, rendered when they are opened: Markdown, formulas, code, diffs, tool calls.
// Libraries are packed inside the page. No text is ever parsed as HTML: libraries return tokens or trees, and
// only the elements and attributes named here are built from them.
const LONGEST_RENDERED = 60_000; // characters; longer texts stay as they are
const LONGEST_FORMULA = 2_000;
const MATHML = "http://www.w3.org/1998/Math/MathML";
const MATH_TAGS = new Set(("math semantics mrow mi mn mo ms mtext mspace msup msub msubsup mfrac msqrt mroot mover munder munderover mtable mtr mtd " +
  "mstyle mpadded mphantom menclose").split(" "));
const MATH_ATTRIBUTES = /^(mathvariant|stretchy|fence|separator|accent|accentunder|displaystyle|scriptlevel|linethickness|lspace|rspace|minsize|maxsize|movablelimits|width|height|depth|voffset|notation|columnalign|columnspacing|rowspacing|largeop|symmetric)$/;
// Colours are left out: a text may not hide itself.
const MARKDOWN_TAGS = { p: "p", ul: "ul", ol: "ol", li: "li", blockquote: "blockquote", strong: "strong", em: "em", s: "s", table: "table",
  thead: "thead", tbody: "tbody", tr: "tr", th: "th", td: "td", h1: "p", h2: "p", h3: "p", h4: "p", h5: "p", h6: "p", a: "span" };
const LANGUAGES = { py: "python", python3: "python", js: "javascript", ts: "typescript", "c++": "cpp", sh: "bash", shell: "bash", rs: "rust",
  rb: "ruby", cs: "csharp", kt: "kotlin", html: "markup", xml: "markup" };
const unchanged = (text) => text;
const trusted = (window.trustedTypes ?? { createPolicy: (_, rules) => rules })
  .createPolicy("caps", { createHTML: unchanged, createScriptURL: unchanged, createScript: unchanged });
let libraries = null, markdown = null;

async function inflate(packed) {
  const bytes = Uint8Array.from(packed, (letter) => letter.charCodeAt(0));
  return new Response(new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"))).text();
}

// The policy of the page allows this script by its digest, and no other.
function loadLibraries() {
  libraries ??= inflate(atob(document.getElementById("libraries").textContent)).then((code) => {
    const script = document.createElement("script");
    script.text = trusted.createScript(code);
    document.head.append(script);
    script.remove();
    markdown = window.markdownit({ html: false, linkify: false, breaks: true });
    markdown.inline.ruler.before("escape", "formula", formulaRule);
    // What is not clearly Markdown stays as it was written: rules that would eat signs of a formula or a program.
    markdown.disable(["escape", "entity", "autolink", "reference", "lheading"]);
    markdown.validateLink = (address) => /^(https?:|mailto:)/i.test(address);
    const { prototype } = markdown.inline.State, scanned = prototype.scanDelims;
    prototype.scanDelims = function scanDelims(start, canSplitWord) {
      const run = scanned.call(this, start, canSplitWord);
      const opens = /^$|[\s(["'“‘]/.test(this.src.slice(start - 1, start)), closes = /^$|[\s.,;:!?)\]"'”’]/.test(this.src[start + run.length] ?? "");
      return { ...run, can_open: run.can_open && opens, can_close: run.can_close && closes };
    };
  });
  return libraries;
}

// $x$, $$x$$, \(x\), \[x\] and a bare \boxed{x}.
const FORMULAS = [["$$", "$$", true], ["\\[", "\\]", true], ["\\(", "\\)", false], ["$", "$", false]];
function formulaRule(state, silent) {
  const { src, pos } = state;
  let found = null;
  for (const [open, close, display] of FORMULAS) {
    if (!src.startsWith(open, pos)) continue;
    const start = pos + open.length, end = src.indexOf(close, start);
    if (end < 0 || end === start || end - start > LONGEST_FORMULA) continue;
    const body = src.slice(start, end);
    if (open === "$" && (/^\s|\s$/.test(body) || /[\w$]/.test(src[end + 1] ?? "") || /\n\s*\n/.test(body))) continue;
    found = { body, display, end: end + close.length };
    break;
  }
  if (!found && src.startsWith("\\boxed{", pos)) {
    let depth = 0;
    for (let at = pos + 6; at < Math.min(src.length, pos + LONGEST_FORMULA); at += 1) {
      depth += (src[at] === "{") - (src[at] === "}");
      if (!depth) { found = { body: src.slice(pos, at + 1), display: false, end: at + 1 }; break; }
    }
  }
  if (!found) return false;
  if (!silent) { const token = state.push("formula", "", 0); token.content = found.body; token.markup = found.display ? "block" : ""; }
  state.pos = found.end;
  return true;
}

function formula(source, display) {
  try {
    const tree = window.katex.__renderToDomTree(source, { output: "mathml", displayMode: display, throwOnError: true, trust: false, strict: "ignore", maxExpand: 300, maxSize: 20 });
    const built = mathNode(tree);
    if (built) { if (display) built.setAttribute("display", "block"); return built; }
  } catch { /* what is not a formula is shown as it was written */ }
  return make("code", source, { class: "formula" });
}

function mathNode(node) {
  if (node.text !== undefined) return document.createTextNode(node.text);
  if (node.character !== undefined && !node.type) return document.createTextNode(node.character ?? " ");
  if (!MATH_TAGS.has(node.type)) return (node.children ?? []).map(mathNode).find((one) => one) ?? null;
  const element = document.createElementNS(MATHML, node.type);
  for (const [name, value] of Object.entries(node.attributes ?? {})) if (MATH_ATTRIBUTES.test(name)) element.setAttribute(name, String(value));
  const children = node.type === "semantics" ? node.children.slice(0, 1) : node.children; // without the source
  element.append(...children.map(mathNode).filter((one) => one));
  return element;
}

function code(source, language = "") {
  const name = LANGUAGES[language.toLowerCase()] ?? language.toLowerCase();
  const grammar = source.length <= LONGEST_RENDERED && Object.hasOwn(window.Prism.languages, name) ? window.Prism.languages[name] : null;
  const element = make("pre", "", { class: "code", tabindex: "0" });
  element.append(...(typeof grammar === "object" && grammar ? colour(window.Prism.tokenize(source, grammar)) : [source]));
  return element;
}

function colour(tokens) {
  return [tokens].flat().map((token) => {
    if (typeof token === "string") return document.createTextNode(token);
    const span = make("span", "", { class: `t-${/^[a-z-]+$/.test(token.type) ? token.type : "other"}` });
    span.append(...colour(token.content));
    return span;
  });
}

function guessLanguage(source) {
  const signs = [["cpp", /^\s*#include\b/m], ["java", /\bpublic\s+(static|class)\b/], ["rust", /\bfn\s+\w+\s*\(/], ["go", /^package\s+\w+/m],
    ["python", /^\s*(def|import|from|class|print|for|if)\b/m], ["javascript", /\b(function|const|let)\b/]];
  return signs.find(([, sign]) => sign.test(source))?.[0] ?? "";
}

function diffView(source) {
  const element = make("pre", "", { class: "code diff", tabindex: "0" });
  for (const line of source.split("\n")) {
    const kind = /^(diff |index |--- |\+\+\+ |new file|deleted file)/.test(line) ? "file" : line.startsWith("@@") ? "hunk" : line[0] === "+" ? "added" : line[0] === "-" ? "removed" : "same";
    element.append(make("span", `${line}\n`, { class: kind }));
  }
  return element;
}

// The tokens of markdown-it as elements; links and images become text, so nothing can be loaded or followed.
function markdownNodes(tokens) {
  const root = document.createDocumentFragment(), stack = [root];
  const top = () => stack[stack.length - 1];
  for (const token of tokens) {
    if (token.type === "inline") top().append(markdownNodes(token.children));
    else if (token.type === "fence" || token.type === "code_block") top().append(fenced(token.content, (token.info ?? "").trim().split(/\s+/)[0] ?? ""));
    else if (token.type === "formula") top().append(formula(token.content, token.markup === "block"));
    else if (token.type === "code_inline") top().append(make("code", token.content));
    else if (token.type === "softbreak" || token.type === "hardbreak") top().append(document.createElement("br"));
    else if (token.type === "hr") top().append(document.createElement("hr"));
    else if (token.type === "image") top().append(`[image: ${token.content}]`);
    else if (token.nesting === 1) {
      const element = document.createElement(MARKDOWN_TAGS[token.tag] ?? "div");
      if (/^h\d$/.test(token.tag)) element.className = "heading";
      if (token.tag === "ol") element.start = token.attrGet("start") ?? 1;
      if (token.tag === "a") { element.className = "link"; element.title = token.attrGet("href") ?? ""; }
      top().append(element);
      stack.push(element);
    } else if (token.nesting === -1) { if (stack.length > 1) stack.pop(); }
    else top().append(token.content ?? "");
  }
  return root;
}

function fenced(source, language) {
  if (language === "diff" || language === "patch") return diffView(source);
  return code(source.replace(/\n$/, ""), language);
}

function prose(text) {
  // Markdown would take the lines of a formula apart; code stays as it is.
  const parts = text.split(/(^```[\s\S]*?(?:^```|$(?![\s\S]))|^~~~[\s\S]*?(?:^~~~|$(?![\s\S])))/m);
  const joined = parts.map((part, at) => (at % 2 ? part
    : part.replace(/\$\$[\s\S]{1,2000}?\$\$|\\\[[\s\S]{1,2000}?\\\]/g, (found) => found.replace(/\s*\n\s*/g, " "))));
  return markdownNodes(markdown.parse(joined.join(""), {}));
}

function toolCall(name, parameters) {
  const box = make("div", "", { class: "call" });
  const text = typeof parameters === "string" ? parameters : JSON.stringify(parameters, null, 2);
  let shown = text ?? "";
  try { shown = JSON.stringify(JSON.parse(shown), null, 2); } catch { /* not JSON */ }
  box.append(make("p", `→ ${name}`, { class: "call-name" }), code(shown, "json"));
  return box;
}

function callOf(value) {
  const call = value?.function ?? value;
  if (!call || typeof call !== "object" || typeof call.name !== "string") return null;
  const parameters = call.arguments ?? call.parameters ?? call.input;
  return parameters === undefined ? null : toolCall(call.name, parameters);
}

function message(one) {
  const box = make("div", "", { class: "message" });
  box.append(make("p", String(one.role ?? "message"), { class: "role" }));
  const content = typeof one.content === "string" ? one.content : one.content == null ? "" : JSON.stringify(one.content, null, 2);
  if (content) box.append(one.role === "tool" ? code(content) : prose(content));
  box.append(...[one.tool_calls ?? []].flat().map(callOf).filter((call) => call));
  return box;
}

function json(text) {
  let value;
  try { value = JSON.parse(text); } catch { return null; }
  if (typeof value !== "object" || value === null) return null;
  const list = [value].flat();
  if (list.length && list.every((one) => one && typeof one === "object" && typeof one.role === "string")) return list.map(message);
  const calls = (Array.isArray(value.tool_calls) ? value.tool_calls : list).map(callOf);
  return calls.length && calls.every((call) => call) ? calls : [code(JSON.stringify(value, null, 2), "json")];
}

const THOUGHTS = /<(think|thinking|thought|reasoning)>([\s\S]*?)(?:<\/\1>|$)/;
function rendered(text, kind) {
  if (kind === "code") return [code(text, guessLanguage(text))];
  const trimmed = text.trim();
  if (/^[[{]/.test(trimmed)) { const found = json(trimmed); if (found) return found; }
  if (kind === "patch" ? /^(@@|[-+])/m.test(text) && !text.includes("```") : /^(diff --git |--- \S[^\n]*\n\+\+\+ )/.test(trimmed)) return [diffView(text)];
  const thought = THOUGHTS.exec(text);
  if (thought) {
    const fold = make("details", "", { class: "fold" });
    fold.append(make("summary", "Thoughts"), prose(thought[2]));
    return [prose(text.slice(0, thought.index)), fold, ...rendered(text.slice(thought.index + thought[0].length), kind)];
  }
  if (text.includes("<tool_call>")) {
    return text.split(/(<tool_call>[\s\S]*?<\/tool_call>)/).map((part) => {
      const call = /^<tool_call>([\s\S]*)<\/tool_call>$/.exec(part);
      return (call && json(call[1].trim())?.[0]) || prose(part);
    });
  }
  return [prose(text)];
}

// A text is shown as it is at once, and as what it is a moment later; a button leads back.
function enrich(element) {
  const text = element.textContent;
  element.dataset.plain = "";
  if (!text.trim() || text.length > LONGEST_RENDERED || !document.getElementById("libraries")) return;
  loadLibraries().then(() => {
    const show = (asWritten) => {
      const button = make("button", asWritten ? "Rendered" : "As written", { type: "button", class: "as-written" });
      button.addEventListener("click", () => { show(!asWritten); element.querySelector(".as-written").focus(); });
      element.toggleAttribute("data-plain", asWritten);
      element.replaceChildren(button, ...(asWritten ? [text] : rendered(text, element.dataset.kind ?? "")));
    };
    show(false);
  }).catch(() => { element.replaceChildren(text); element.dataset.plain = ""; });
}

function showFormula(element) {
  if (!document.getElementById("libraries")) return;
  loadLibraries().then(() => {
    const built = formula(element.dataset.formula, false);
    if (built.localName === "math") element.replaceChildren(built);
  }).catch(() => {});
}

// Two texts side by side, with what only one of them has marked.
const LEAST_COMMON = 0.25;
function compareSides(box) {
  const [a, b] = [...box.querySelectorAll("pre")], texts = [a.textContent, b.textContent];
  if (texts[0].length + texts[1].length > LONGEST_RENDERED || !document.getElementById("libraries")) return;
  loadLibraries().then(() => {
    const parts = window.Diff.diffWordsWithSpace(...texts, { timeout: 400, maxEditLength: 3000 });
    const common = (parts ?? []).reduce((sum, part) => sum + (part.added || part.removed ? 0 : part.value.length), 0);
    if (!parts || common < LEAST_COMMON * Math.min(texts[0].length, texts[1].length)) {
      box.after(make("p", "The two have little in common, so their differences are not marked.", { class: "note" }));
      return;
    }
    for (const [side, own, other] of [[a, "removed", "added"], [b, "added", "removed"]])
      side.replaceChildren(...parts.filter((part) => !part[other]).map((part) => (part[own] ? make("mark", part.value) : part.value)));
  }).catch(() => {});
}
