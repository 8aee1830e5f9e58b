// Tasks: a to-do list that stays on this device. From version 1.3 on, a bar shows the progress.
export const name = "acme/tasks";
export const version = "VERSION";

const SAMPLES = ["Water the plants", "Call the plumber", "Book train tickets"];
const hasProgress = Number(version.split(".")[1]) >= 3;

export function mount(element, settings = {}) {
  const key = `${settings.id ?? name}:tasks`;
  const tasks =
    JSON.parse(localStorage.getItem(key) ?? "null") ??
    SAMPLES.map((text) => ({ text, done: false }));
  const progress = document.createElement("progress");
  progress.ariaLabel = "Finished tasks";
  progress.style.width = "100%";
  const list = document.createElement("div");
  const form = document.createElement("form");
  const field = document.createElement("input");
  field.ariaLabel = field.placeholder = "New task";

  function show() {
    localStorage.setItem(key, JSON.stringify(tasks));
    progress.max = Math.max(tasks.length, 1);
    progress.value = tasks.filter((task) => task.done).length;
    list.replaceChildren(...tasks.map(line));
  }

  function line(task) {
    const label = document.createElement("label");
    const box = Object.assign(document.createElement("input"), { type: "checkbox" });
    box.checked = task.done;
    box.addEventListener("change", () => {
      task.done = box.checked;
      show();
    });
    label.style.cssText = `display: block; ${task.done ? "text-decoration: line-through" : ""}`;
    label.append(box, " ", task.text);
    return label;
  }

  form.addEventListener("submit", (event) => {
    event.preventDefault();
    if (field.value.trim()) tasks.push({ text: field.value.trim(), done: false });
    field.value = "";
    show();
  });
  form.append(field);
  element.append(...(hasProgress ? [progress] : []), list, form);
  show();
}
