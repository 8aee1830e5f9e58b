// World Clock: the time in some cities. Version 1 shows local time only, version 2 adds cities.
export const name = "acme/clock";
export const version = "VERSION";

const CITIES = [
  ["Reykjavík", "Atlantic/Reykjavik"],
  ["New York", "America/New_York"],
  ["Nairobi", "Africa/Nairobi"],
  ["Tokyo", "Asia/Tokyo"],
];
const hasCities = Number.parseInt(version, 10) >= 2;

function format(timeZone) {
  // Twelve hours with "AM" or "PM" would not fit into a small cell.
  const options = { hour: "2-digit", minute: "2-digit", hourCycle: "h23", timeZone };
  return new Date().toLocaleTimeString([], options);
}

function addLine(element, label, size) {
  const line = document.createElement("div");
  const flex = "display: flex; align-items: baseline; justify-content: space-between; gap: 1em";
  line.style.cssText = flex;
  line.append(label, document.createElement("time"));
  line.lastChild.style.cssText = `font: ${size} system-ui; white-space: nowrap`;
  element.append(line);
  return line.lastChild;
}

export function mount(element, settings = {}) {
  const cities = hasCities ? (settings.cities ?? CITIES) : [];
  const clocks = [[addLine(element, "", "600 2em"), undefined]];
  for (const [city, timeZone] of cities) {
    clocks.push([addLine(element, city, "1em"), timeZone]);
  }
  const show = () => {
    for (const [clock, timeZone] of clocks) clock.textContent = format(timeZone);
  };
  show();
  const timer = setInterval(show, 1000);
  return () => clearInterval(timer);
}
