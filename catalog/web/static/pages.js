// On every page: the key / focuses the search field, and copy buttons
// <button class="copy" data-copy="id of an element" hidden> copy. The page hides what does nothing
// without this script. One file for all pages: each further file is a request.

const searchField = document.getElementById("q");
searchField.form.querySelector("kbd").hidden = false;
addEventListener("keydown", (event) => {
  const isEditing = event.target.closest("input, select, textarea, [contenteditable]");
  if (event.key !== "/" || isEditing || event.ctrlKey || event.metaKey || event.altKey) return;
  event.preventDefault();
  searchField.focus();
  searchField.select();
});

const buttons = document.querySelectorAll("button.copy");
// Screen readers announce changes only of a status element that was there before.
const status = document.createElement("p");
status.id = "copy-status";
status.className = "visually-hidden";
status.setAttribute("role", "status");
if (buttons.length) document.body.append(status);
for (const button of buttons) button.hidden = false;

async function copy(element) {
  try {
    await navigator.clipboard.writeText(element.textContent);
    return true;
  } catch {
    // Browsers block navigator.clipboard on pages loaded over plain HTTP from another host.
    const range = document.createRange();
    range.selectNodeContents(element);
    getSelection().removeAllRanges();
    getSelection().addRange(range);
    return document.execCommand("copy");
  }
}

document.addEventListener("click", async (event) => {
  const button = event.target.closest("button.copy");
  if (!button) return;
  button.dataset.label ??= button.textContent;
  const isCopied = await copy(document.getElementById(button.dataset.copy));
  button.textContent = isCopied ? "Copied" : "Press Ctrl+C";
  status.textContent = button.textContent;
  setTimeout(() => { button.textContent = button.dataset.label; status.textContent = ""; }, 2000);
});

// Live search on the browse page: fetch the page for the current form values and replace the
// results, so that the form keeps its focus. Without this script the form is submitted.
function searchLive() {
  const form = document.getElementById("search");
  const sdk = form.elements.compatSdk;
  const compatible = form.elements.compatible;
  const UPDATED = "#results, #heading, #active-filters, #clear, .browse-head .field-error, .browse-head .notice";
  const COMPLETE_VERSION = /^$|^\d+\.\d+\.\d+([-+].*[^-+.])?$/;
  const DELAY = 150; // milliseconds
  let timer;
  let pending;
  // One history entry for each visit to a field, not for each letter.
  let isTyping = false;

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
    for (const element of page.querySelectorAll(UPDATED)) {
      document.getElementById(element.id).replaceWith(element);
    }
    // The options have other counts. The fields themselves stay, so that they keep their focus.
    // Copies of the options: moving the selected one would select the next.
    for (const { id, children } of page.querySelectorAll(".browse-head :is(select, datalist)")) {
      const copies = [...children].map((child) => document.importNode(child, true));
      document.getElementById(id).replaceChildren(...copies);
    }
    for (const { id, ariaInvalid } of page.querySelectorAll(".browse-head [aria-describedby]")) {
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

  // The fields of the form are in the header and in the page.
  document.addEventListener("input", ({ target }) => {
    if (target.form !== form) return;
    clearTimeout(timer);
    enableCompatible();
    // Do not report an incomplete version as invalid while it is typed.
    if (target === sdk && !COMPLETE_VERSION.test(sdk.value.trim())) return;
    // Nor search for a part of a scope.
    const values = [...(target.list?.options ?? [])].map(({ value }) => value);
    if (target.list && target.value && !values.includes(target.value)) return;
    timer = setTimeout(update, target.matches("select, [type=checkbox]") ? 0 : DELAY);
  });

  document.addEventListener("change", ({ target }) => { if (target.form === form) update(); });
  document.addEventListener("focusout", () => { isTyping = false; });
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

  enableCompatible();
}

if (document.getElementById("results")) searchLive();
