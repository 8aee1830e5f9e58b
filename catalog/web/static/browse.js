// Live search on the browse page: fetch the page for the current form values and replace the
// results, so that the form keeps its focus. Without this script the form is submitted.

const form = document.getElementById("search");
const sdk = form.elements.compatSdk;
const compatible = form.elements.compatible;
const UPDATED = "#results, #active-filters, #search .field-error, #search .notice";
const COMPLETE_VERSION = /^$|^\d+\.\d+\.\d+([-+].*[^-+.])?$/;
const DELAY = 150; // milliseconds
let timer;
let pending;
// One history entry for each visit to a field, not for each letter.
let isTyping = false;

const DAY = 86_400_000; // milliseconds
// The units of an age with their length in days, the longest first.
const UNITS = [["year", 365.25], ["month", 30.44], ["week", 7], ["day", 1]];

// Show when a widget was updated as an age in days of UTC. The page itself contains dates, so that
// it stays the same from day to day.
function showAges(page) {
  for (const time of page.querySelectorAll(".card time")) {
    const days = Math.floor(Date.now() / DAY) - Math.floor(Date.parse(time.dateTime) / DAY);
    const [unit, length] = UNITS.find(([, length]) => days >= length) ?? UNITS.at(-1);
    // Of days, "today" and "yesterday".
    const numeric = unit === "day" ? "auto" : "always";
    const format = new Intl.RelativeTimeFormat("en", { numeric });
    time.textContent = format.format(-Math.floor(days / length), unit);
  }
}

// Without an SDK version, the server would refuse the checkbox.
function enableCompatible() {
  compatible.disabled = sdk.value.trim() === "";
}

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
  showAges(page);
  for (const element of page.querySelectorAll(UPDATED)) {
    document.getElementById(element.id).replaceWith(element);
  }
  // The options have other counts. The fields themselves stay, so that they keep their focus.
  // Copies of the options: moving the selected one would select the next.
  for (const { id, options } of page.querySelectorAll("#search select, #search datalist")) {
    const copies = [...options].map((option) => document.importNode(option, true));
    document.getElementById(id).replaceChildren(...copies);
  }
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
  enableCompatible();
  // Do not report an incomplete version as invalid while it is typed.
  if (target === sdk && !COMPLETE_VERSION.test(sdk.value.trim())) return;
  // Nor search for a part of a scope.
  const values = [...(target.list?.options ?? [])].map(({ value }) => value);
  if (target.list && target.value && !values.includes(target.value)) return;
  timer = setTimeout(update, target.matches("select, [type=checkbox]") ? 0 : DELAY);
});

form.addEventListener("change", update);
form.addEventListener("focusout", () => { isTyping = false; });
form.addEventListener("submit", (event) => { event.preventDefault(); update(); });

addEventListener("popstate", () => {
  const query = new URLSearchParams(location.search);
  for (const field of form.elements) {
    if (field === compatible) field.checked = query.get(field.name) === field.value;
    else if (field.name) field.value = query.get(field.name) ?? "";
  }
  enableCompatible();
  isTyping = false;
  load(location.href);
});

showAges(document);
enableCompatible();
form.querySelector("kbd").hidden = false;
addEventListener("keydown", (event) => {
  const isEditing = event.target.closest("input, select, textarea, [contenteditable]");
  if (event.key !== "/" || isEditing || event.ctrlKey || event.metaKey || event.altKey) return;
  event.preventDefault();
  form.elements.q.focus();
  form.elements.q.select();
});
