// Metrics Graph: sample data, no network. Bars up to version 1, a line in 2, an area in 3.
export const name = "ops/metrics-graph";
export const version = "VERSION";

const SAMPLES = [31, 34, 30, 42, 47, 44, 52, 61, 58, 49, 55, 63, 71, 66, 60, 57];
const WIDTH = 160; // units of the drawing
const HEIGHT = 80;
const major = Number.parseInt(version, 10);

function shape(tag, attributes) {
  const element = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, value);
  return element;
}

export function mount(element, settings = {}) {
  const samples = settings.samples ?? SAMPLES;
  const step = WIDTH / (samples.length - 1);
  const height = (sample) => (sample / Math.max(...samples)) * (HEIGHT - 10);
  const graph = shape("svg", { viewBox: `0 0 ${WIDTH} ${HEIGHT}`, width: "100%", role: "img" });
  graph.setAttribute("aria-label", `Requests a second, now ${samples.at(-1)}`);
  if (major < 2) {
    for (const [index, sample] of samples.entries()) {
      const [x, size] = [index * (WIDTH / samples.length), height(sample)];
      graph.append(shape("rect", { x, y: HEIGHT - size, width: 7, height: size, fill: "#2563eb" }));
    }
  } else {
    const points = samples.map((sample, index) => `${index * step},${HEIGHT - height(sample)}`);
    if (major >= 3) {
      const area = `0,${HEIGHT} ${points.join(" ")} ${WIDTH},${HEIGHT}`;
      graph.append(shape("polygon", { points: area, fill: "#2563eb55" }));
    }
    const line = { points: points.join(" "), fill: "none", stroke: "#2563eb", "stroke-width": 2 };
    graph.append(shape("polyline", line));
  }
  const label = document.createElement("div");
  label.textContent = `${samples.at(-1)} requests a second`;
  element.append(label, graph);
}
