// Finds and makes elements; text stays text.
const $ = (id) => document.getElementById(id);

function make(tag, text = "", attributes = {}, ...children) {
  const element = document.createElement(tag);
  element.textContent = text;
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
  element.append(...children);
  return element;
}

