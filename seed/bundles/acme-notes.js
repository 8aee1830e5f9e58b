// Sticky Notes: one note that stays on this device. Version 2 counts its words.
export const name = "acme/notes";
export const version = "VERSION";

const countsWords = Number.parseInt(version, 10) >= 2;
const COLOURS = { 1: "#fef08a", 2: "#fed7aa" };

export function mount(element, settings = {}) {
  const key = `${settings.id ?? name}:note`;
  const note = document.createElement("textarea");
  note.ariaLabel = "Note";
  note.placeholder = "Write something down";
  note.value = localStorage.getItem(key) ?? "";
  note.style.cssText = `
    box-sizing: border-box; width: 100%; min-height: 6em; padding: .6em; border: 0;
    border-radius: .3em; color: #1c1917; font: inherit; resize: none;
    background: ${COLOURS[Number.parseInt(version, 10)]}`;
  const count = document.createElement("small");
  const show = () => {
    const words = note.value.split(/\s+/).filter(Boolean).length;
    count.textContent = `${words} ${words === 1 ? "word" : "words"}`;
  };
  note.addEventListener("input", () => {
    localStorage.setItem(key, note.value);
    show();
  });
  show();
  element.append(note, ...(countsWords ? [count] : []));
}
