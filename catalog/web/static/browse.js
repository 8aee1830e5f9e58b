// Live search on the browse page: fetch the page for the current form values and replace the
// results, so that the form keeps its focus. Without this script the form is submitted.

const form = document.getElementById("search");
const UPDATED_IDS = ["results", "q-error", "compatSdk-error", "official-error"];
const COMPLETE_VERSION = /^$|^\d+\.\d+\.\d+([-+].*[^-+.])?$/;
const DELAY = 150; // milliseconds
let timer;
let pending;
// One history entry for each visit to a field, not for each letter.
let isTyping = false;

function buildUrl() {
  const filled = [...new FormData(form)].filter(([, value]) => value.trim() !== "");
  const query = new URLSearchParams(filled).toString();
  const { pathname } = new URL(form.action);
  return query ? `${pathname}?${query}` : pathname;
}

async function load(url) {
  pending?.abort();
  pending = new AbortController();
  let html;
  try {
    html = await (await fetch(url, { signal: pending.signal })).text();
  } catch (error) {
    // Let the browser show what is wrong.
    if (error.name !== "AbortError") location.assign(url);
    return;
  }
  const page = new DOMParser().parseFromString(html, "text/html");
  // An error page has no results: open it.
  if (!page.getElementById("results")) return location.assign(url);
  for (const id of UPDATED_IDS) document.getElementById(id).replaceWith(page.getElementById(id));
  for (const { id, ariaInvalid } of page.querySelectorAll("#search [aria-describedby]")) {
    document.getElementById(id).ariaInvalid = ariaInvalid;
  }
  document.getElementById("status").textContent = page.getElementById("status").textContent;
  document.title = page.title;
}

function update() {
  clearTimeout(timer);
  const url = buildUrl();
  if (url === location.pathname + location.search) return;
  history[isTyping ? "replaceState" : "pushState"](null, "", url);
  isTyping = true;
  load(url);
}

form.addEventListener("input", ({ target }) => {
  clearTimeout(timer);
  // Do not report an incomplete version as invalid while it is typed.
  if (target.name === "compatSdk" && !COMPLETE_VERSION.test(target.value.trim())) return;
  timer = setTimeout(update, target.tagName === "SELECT" ? 0 : DELAY);
});

form.addEventListener("change", update);
form.addEventListener("focusout", () => { isTyping = false; });
form.addEventListener("submit", (event) => { event.preventDefault(); update(); });

addEventListener("popstate", () => {
  const query = new URLSearchParams(location.search);
  for (const field of form.elements) if (field.name) field.value = query.get(field.name) ?? "";
  isTyping = false;
  load(location.href);
});

form.querySelector("kbd").hidden = false;
addEventListener("keydown", (event) => {
  const isEditing = event.target.closest("input, select, textarea, [contenteditable]");
  if (event.key !== "/" || isEditing || event.ctrlKey || event.metaKey || event.altKey) return;
  event.preventDefault();
  form.elements.q.focus();
  form.elements.q.select();
});
