// Headlines: sample stories, no network. Version 1 is a plain list, version 2 shows cards.
export const name = "acme/headlines";
export const version = "VERSION";

const STORIES = [
  ["Library lends telescopes", "Three instruments can be borrowed for a week each."],
  ["Night trains return in spring", "Tickets for the first route are on sale."],
  ["Town counts its swifts", "Volunteers found forty more nests than last year."],
];
const hasCards = Number.parseInt(version, 10) >= 2;

export function mount(element, settings = {}) {
  const list = document.createElement("ul");
  list.style.cssText = `margin: 0; padding: ${hasCards ? "0; list-style: none" : "0 0 0 1.2em"}`;
  for (const [title, summary] of settings.stories ?? STORIES) {
    const item = document.createElement("li");
    if (hasCards) {
      const heading = document.createElement("strong");
      heading.textContent = title;
      const text = document.createElement("div");
      text.textContent = summary;
      item.style.cssText = "margin-bottom: .5em; padding: .5em; border: 1px solid #8886; border-radius: .4em";
      item.append(heading, text);
    } else {
      item.textContent = title;
    }
    list.append(item);
  }
  element.append(list);
}
