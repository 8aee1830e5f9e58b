// "Try it" on the reference page: send the request of a form to this server and show the response.
// The page hides the forms, because without this script they do nothing.

const docs = document.querySelector(".docs");
const MAX_CHARACTERS = 60000;
// Characters that change the direction of the text after them.
const BIDI_CONTROLS = /[\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069]/g;

function buildTarget(form) {
  const encode = (text) => encodeURIComponent(text).replaceAll("'", "%27");
  let path = form.dataset.path;
  const query = [];
  for (const { name, value, dataset } of form.querySelectorAll("[data-location]")) {
    if (dataset.location === "path") path = path.replace(`{${name}}`, encode(value));
    else if (value) query.push(`${name}=${encode(value)}`);
  }
  return query.length ? `${path}?${query.join("&")}` : path;
}

function buildCommand(form) {
  const method = form.method === "get" ? "" : `-X ${form.method.toUpperCase()} `;
  const url = docs.dataset.server + buildTarget(form);
  return `curl -s ${method}${/^[\w@%+=:,./-]+$/.test(url) ? url : `'${url}'`}`;
}

function formatJson(text) {
  try {
    text = JSON.stringify(JSON.parse(text), null, 2);
  } catch {
    // Not JSON: show the text as it is.
  }
  const remaining = text.length - MAX_CHARACTERS;
  if (remaining <= 0) return text;
  return `${text.slice(0, MAX_CHARACTERS)}\n… and ${remaining} characters more`;
}

// A bundle can be large: read only as much as is shown.
async function readStart(response) {
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let text = "";
  while (text.length <= MAX_CHARACTERS) {
    const { done, value } = await reader.read();
    if (done) return text;
    text += value;
  }
  reader.cancel();
  return `${text.slice(0, MAX_CHARACTERS)}\n… and more`;
}

function escapeCharacter(character) {
  return `\\u${character.codePointAt(0).toString(16).padStart(4, "0")}`;
}

async function readText(response) {
  const isJson = response.headers.get("Content-Type")?.startsWith("application/json");
  const text = isJson ? formatJson(await response.text()) : await readStart(response);
  return text.replace(BIDI_CONTROLS, escapeCharacter);
}

async function send(form) {
  const box = document.getElementById(form.dataset.response);
  const outcome = box.querySelector(".outcome");
  const body = box.querySelector("pre");
  box.setAttribute("aria-busy", "true");
  try {
    const target = docs.dataset.prefix + buildTarget(form);
    const response = await fetch(target, { method: form.method, cache: "no-store" });
    body.textContent = await readText(response);
    // HTTP/2 has no status text.
    const status = `${response.status} ${response.statusText}`.trim();
    outcome.textContent = `${status} from ${target}`;
    box.dataset.ok = response.ok;
  } catch {
    outcome.textContent = "The server did not respond.";
    body.textContent = "";
    box.dataset.ok = false;
  }
  box.hidden = false;
  box.removeAttribute("aria-busy");
}

for (const form of document.querySelectorAll("form.try")) {
  form.hidden = false;
  form.addEventListener("input", () => {
    document.getElementById(form.dataset.command).textContent = buildCommand(form);
  });
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    send(form);
  });
}

// Mark the section that is being read in the table of contents.
const links = new Map(
  [...document.querySelectorAll(".contents a")].map((link) => [link.hash.slice(1), link]),
);
const headings = [...links.keys()].map((id) => document.getElementById(id));
function markCurrent() {
  const current = headings.findLast((heading) => heading.getBoundingClientRect().top < 120);
  for (const [id, link] of links) {
    if (id === current?.id) link.setAttribute("aria-current", "true");
    else link.removeAttribute("aria-current");
  }
}
addEventListener("scroll", markCurrent, { passive: true });
markCurrent();
