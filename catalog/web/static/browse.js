// The browse page while typing: the same page is fetched and its results are put in place, so that
// the form, its focus and its address stay as they are. Without this script the form is sent.

const form = document.getElementById("search");
const PARTS = ["results", "q-error", "compatSdk-error", "official-error"];
const COMPLETE = /^$|^\d+\.\d+\.\d+([-+].*[^-+.])?$/;
let timer;
let request;
let typing = false; // one entry of the history for each visit to a field, not for each letter

function address() {
  const filled = [...new FormData(form)].filter(([, value]) => value.trim() !== "");
  const query = new URLSearchParams(filled).toString();
  const { pathname } = new URL(form.action);
  return query ? `${pathname}?${query}` : pathname;
}

async function load(url) {
  request?.abort();
  request = new AbortController();
  let text;
  try {
    text = await (await fetch(url, { signal: request.signal })).text();
  } catch (error) {
    if (error.name !== "AbortError") location.assign(url); // the browser says what is wrong
    return;
  }
  const page = new DOMParser().parseFromString(text, "text/html");
  if (!page.getElementById("results")) return location.assign(url); // not this page: an error
  for (const id of PARTS) document.getElementById(id).replaceWith(page.getElementById(id));
  for (const { id, ariaInvalid } of page.querySelectorAll("#search [aria-describedby]")) {
    document.getElementById(id).ariaInvalid = ariaInvalid;
  }
  document.getElementById("status").textContent = page.getElementById("status").textContent;
  document.title = page.title;
}

function update() {
  clearTimeout(timer);
  const url = address();
  if (url === location.pathname + location.search) return;
  history[typing ? "replaceState" : "pushState"](null, "", url);
  typing = true;
  load(url);
}

form.addEventListener("input", ({ target }) => {
  clearTimeout(timer);
  // Half a version is no mistake yet.
  if (target.name === "compatSdk" && !COMPLETE.test(target.value.trim())) return;
  timer = setTimeout(update, target.tagName === "SELECT" ? 0 : 150);
});

form.addEventListener("change", update);
form.addEventListener("focusout", () => { typing = false; });
form.addEventListener("submit", (event) => { event.preventDefault(); update(); });

addEventListener("popstate", () => {
  const asked = new URLSearchParams(location.search);
  for (const field of form.elements) if (field.name) field.value = asked.get(field.name) ?? "";
  typing = false;
  load(location.href);
});

form.querySelector("kbd").hidden = false;
addEventListener("keydown", (event) => {
  const busy = event.target.closest("input, select, textarea, [contenteditable]");
  if (event.key !== "/" || busy || event.ctrlKey || event.metaKey || event.altKey) return;
  event.preventDefault();
  form.elements.q.focus();
  form.elements.q.select();
});
