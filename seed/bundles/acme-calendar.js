// Calendar: the current month. From version 1.10 on, today's events are listed below it.
export const name = "acme/calendar";
export const version = "VERSION";

const EVENTS = [
  ["09:30", "Stand-up"],
  ["12:00", "Lunch with Ines"],
  ["16:15", "Dentist"],
];
const hasAgenda = Number(version.split(".")[1]) >= 10;

function cell(text, style = "") {
  const element = document.createElement("span");
  element.textContent = text;
  element.style.cssText = `padding: .2em; text-align: center; border-radius: .4em; ${style}`;
  return element;
}

export function mount(element, settings = {}) {
  const today = new Date();
  const first = new Date(today.getFullYear(), today.getMonth(), 1);
  const days = new Date(today.getFullYear(), today.getMonth() + 1, 0).getDate();
  const title = document.createElement("strong");
  title.textContent = today.toLocaleDateString([], { month: "long", year: "numeric" });
  const grid = document.createElement("div");
  grid.style.cssText = "display: grid; grid-template-columns: repeat(7, 1fr); margin: .5em 0";
  for (const day of ["Mo", "Tu", "We", "Th", "Fr", "Sa", "Su"]) grid.append(cell(day, "opacity: .6"));
  // Weeks begin on Monday; getDay() counts from Sunday.
  for (let blank = 0; blank < (first.getDay() + 6) % 7; blank += 1) grid.append(cell(""));
  for (let day = 1; day <= days; day += 1) {
    grid.append(cell(day, day === today.getDate() ? "background: #2563eb; color: white" : ""));
  }
  element.append(title, grid);
  if (!hasAgenda) return;
  for (const [time, text] of settings.events ?? EVENTS) {
    const line = document.createElement("div");
    line.textContent = `${time}  ${text}`;
    element.append(line);
  }
}
