// System Load: sample values, no network. From version 1.4 on, high values are red.
export const name = "ops/system-load";
export const version = "VERSION";

const GAUGES = [
  ["Processor", 42],
  ["Memory", 67],
  ["Disk", 91],
  ["Network", 18],
];
const HIGH = 85; // percent
const marksHigh = Number(version.split(".")[1]) >= 4;

export function mount(element, settings = {}) {
  for (const [label, percent] of settings.gauges ?? GAUGES) {
    const line = document.createElement("label");
    line.style.cssText = "display: block; margin-bottom: .4em";
    const meter = document.createElement("meter");
    Object.assign(meter, { min: 0, max: 100, value: percent });
    // A meter is green up to its high value; without one it is green throughout.
    if (marksHigh) Object.assign(meter, { low: HIGH, high: HIGH, optimum: 0 });
    meter.style.cssText = "display: block; width: 100%";
    line.append(`${label} ${percent} %`, meter);
    element.append(line);
  }
}
