// Small helpers for elements of the page.

export const byId = (id) => document.getElementById(id);

/** An element with attributes and children; text is never read as HTML. */
export function make(tag, attributes = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (value !== null && value !== undefined && value !== false) element.setAttribute(name, value);
  }
  element.append(...children.filter((c) => c !== null && c !== undefined));
  return element;
}

export function fill(element, ...children) {
  element.replaceChildren(...children.filter((c) => c !== null && c !== undefined));
}

/** A count as people write it: 26,000. */
export const grouped = (n) => String(n).replace(/\B(?=(\d{3})+$)/g, ",");
