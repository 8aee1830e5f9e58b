// Moon Phase: tonight's moon, computed from the date. Version 1.1 adds the next full moon.
export const name = "community/moon-phase";
export const version = "VERSION";

const MONTH = 29.530588853; // days from new moon to new moon
const NEW_MOON = Date.UTC(2000, 0, 6, 18, 14);
const DAY = 86_400_000; // milliseconds
const PHASES = [
  ["🌑", "New moon"],
  ["🌒", "Waxing crescent"],
  ["🌓", "First quarter"],
  ["🌔", "Waxing gibbous"],
  ["🌕", "Full moon"],
  ["🌖", "Waning gibbous"],
  ["🌗", "Last quarter"],
  ["🌘", "Waning crescent"],
];
const showsNext = version !== "1.0.0";

export function mount(element, settings = {}) {
  const now = settings.date ? Date.parse(settings.date) : Date.now();
  const age = ((((now - NEW_MOON) / DAY) % MONTH) + MONTH) % MONTH;
  const [picture, text] = PHASES[Math.round((age / MONTH) * 8) % 8];
  const moon = document.createElement("div");
  moon.textContent = picture;
  moon.style.fontSize = "3em";
  const label = document.createElement("div");
  label.textContent = text;
  element.append(moon, label);
  if (showsNext) {
    const days = Math.round((MONTH / 2 - age + MONTH) % MONTH);
    const next = document.createElement("div");
    next.textContent = days === 0 ? "Full moon tonight" : `Full moon in ${days} days`;
    element.append(next);
  }
}
