// Weather: sample data, no network. Version 2 adds the hours to come, version 3 the week.
export const name = "acme/weather";
export const version = "VERSION";

const HOURS = [
  ["12:00", "🌤️", 14],
  ["15:00", "🌦️", 15],
  ["18:00", "🌧️", 12],
  ["21:00", "☁️", 10],
];
const DAYS = [
  ["Mon", 9, 15],
  ["Tue", 8, 13],
  ["Wed", 10, 17],
  ["Thu", 11, 19],
  ["Fri", 9, 14],
];
const major = Number.parseInt(version, 10);

function block(text, style = "") {
  const element = document.createElement("div");
  element.textContent = text;
  element.style.cssText = style;
  return element;
}

export function mount(element, settings = {}) {
  const degrees = (celsius) =>
    settings.units === "imperial" ? `${Math.round(celsius * 1.8 + 32)} °F` : `${celsius} °C`;
  element.append(
    block(settings.place ?? "Sample Bay", "font-weight: 600"),
    block(`🌤️ ${degrees(14)}`, "font-size: 2em"),
  );
  if (major >= 2) {
    const hours = block("", "display: flex; justify-content: space-between; text-align: center");
    for (const [time, sky, celsius] of HOURS) {
      hours.append(block(`${time}\n${sky}\n${degrees(celsius)}`, "white-space: pre-line"));
    }
    element.append(hours);
  }
  if (major >= 3) {
    for (const [day, low, high] of DAYS) {
      element.append(block(`${day}  ${degrees(low)} to ${degrees(high)}`));
    }
  }
}
