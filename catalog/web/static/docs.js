// "Try it": a form of the documentation asks this server and shows the answer in the page. The
// forms are of no use without this script, which therefore is what shows them.

const docs = document.querySelector(".docs");
const SHOWN = 60000; // characters of an answer
const TURNS = /[\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069]/g; // the direction of what follows

function addressOf(form) {
  const encode = (text) => encodeURIComponent(text).replaceAll("'", "%27");
  let path = form.dataset.path;
  const query = [];
  for (const field of form.querySelectorAll("[data-place]")) {
    if (field.dataset.place === "path") path = path.replace(`{${field.name}}`, encode(field.value));
    else if (field.value) query.push(`${field.name}=${encode(field.value)}`);
  }
  return query.length ? `${path}?${query.join("&")}` : path;
}

function commandOf(form) {
  const method = form.method === "get" ? "" : `-X ${form.method.toUpperCase()} `;
  const url = docs.dataset.address + addressOf(form);
  return `curl -s ${method}${/^[\w@%+=:,./-]+$/.test(url) ? url : `'${url}'`}`;
}

function pretty(text) {
  try {
    text = JSON.stringify(JSON.parse(text), null, 2);
  } catch {
    // Whatever it is, it is shown.
  }
  const rest = text.length - SHOWN;
  return rest > 0 ? `${text.slice(0, SHOWN)}\n… and ${rest} characters more` : text;
}

// A bundle can be large; what is not shown is not fetched.
async function beginning(response) {
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let text = "";
  while (text.length <= SHOWN) {
    const { done, value } = await reader.read();
    if (done) return text;
    text += value;
  }
  reader.cancel();
  return `${text.slice(0, SHOWN)}\n… and more`;
}

async function textOf(response) {
  const isJson = response.headers.get("Content-Type")?.startsWith("application/json");
  const text = isJson ? pretty(await response.text()) : await beginning(response);
  return text.replace(TURNS, (turn) => `\\u${turn.codePointAt(0).toString(16).padStart(4, "0")}`);
}

async function ask(form) {
  const box = document.getElementById(form.dataset.answer);
  const outcome = box.querySelector(".outcome");
  const body = box.querySelector("pre");
  box.setAttribute("aria-busy", "true");
  try {
    const address = docs.dataset.prefix + addressOf(form);
    const response = await fetch(address, { method: form.method, cache: "no-store" });
    body.textContent = await textOf(response);
    const status = `${response.status} ${response.statusText}`.trim(); // HTTP/2 has no status text
    outcome.textContent = `${status} from ${address}`;
    box.dataset.ok = response.ok;
  } catch {
    outcome.textContent = "The server did not answer.";
    body.textContent = "";
    box.dataset.ok = false;
  }
  box.hidden = false;
  box.removeAttribute("aria-busy");
}

for (const form of document.querySelectorAll("form.try")) {
  form.hidden = false;
  form.addEventListener("input", () => {
    document.getElementById(form.dataset.command).textContent = commandOf(form);
  });
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    ask(form);
  });
}
