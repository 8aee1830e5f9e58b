// On every page, the key / focuses the search field. A <button class="copy" data-copy="ID" hidden>
// copies the text of the element with that ID. Controls that need this script are hidden until it
// runs. All pages share one script file, because each further file would be a request.

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
// Screen readers announce changes only if the status element already exists.
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
// results, so that the form keeps its focus. Without this script, users submit the form.
function searchLive() {
  const form = document.getElementById("search");
  const sdk = form.elements.compatSdk;
  const compatible = form.elements.compatible;
  const UPDATED = "#results, #heading, #active-filters, #clear, .browse-head .field-error, .browse-head .notice";
  const COMPLETE_VERSION = /^$|^\d+\.\d+\.\d+([-+].*[^-+.])?$/;
  const DELAY = 150; // milliseconds
  let timer;
  let pending;
  // True if the current visit to a field already has its history entry.
  let isTyping = false;

  // The server rejects the checkbox without an SDK version.
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
      // Open the page, so that the browser shows the error.
      if (error.name !== "AbortError") location.assign(url);
      return;
    }
    const page = new DOMParser().parseFromString(html, "text/html");
    // An error page has no results: open it.
    if (!page.getElementById("results")) return location.assign(url);
    for (const element of page.querySelectorAll(UPDATED)) {
      document.getElementById(element.id).replaceWith(element);
    }
    // Replace the options, whose counts have changed, but not the fields, which keep their focus.
    // The options are copied, because moving the selected option would select the next one.
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

  // Listen on the document, because the form has fields in the header and in the page.
  document.addEventListener("input", ({ target }) => {
    if (target.form !== form) return;
    clearTimeout(timer);
    enableCompatible();
    // Do not report an incomplete version as invalid while it is typed.
    if (target === sdk && !COMPLETE_VERSION.test(sdk.value.trim())) return;
    // Do not search for an incomplete scope.
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
