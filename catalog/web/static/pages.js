// On every page: the key / focuses the search field, and copy buttons
// <button class="copy" data-copy="id of an element" hidden> copy. The page hides what does nothing
// without this script.

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
