// Copy buttons: <button class="copy" data-copy="id of an element" hidden>. They are of no use
// without this script, which therefore is what shows them.

const buttons = document.querySelectorAll("button.copy");
const status = document.createElement("p"); // there from the start, or a screen reader says nothing
status.id = "copied";
status.className = "quiet";
status.setAttribute("role", "status");
if (buttons.length) document.body.append(status);
for (const button of buttons) button.hidden = false;

async function copy(element) {
  try {
    await navigator.clipboard.writeText(element.textContent);
    return true;
  } catch {
    // Browsers keep that clipboard from pages that came over plain http from another machine.
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
  const done = await copy(document.getElementById(button.dataset.copy));
  button.textContent = done ? "Copied" : "Press Ctrl+C";
  status.textContent = button.textContent;
  setTimeout(() => { button.textContent = "Copy"; status.textContent = ""; }, 2000);
});
