// A small dashboard. It finds widgets in a catalog on another origin, loads them through an
// import map with integrity, and remembers them in this browser.

const query = new URLSearchParams(location.search);
const CATALOG = query.get("catalog") ?? document.body.dataset.catalog;
const SDK = query.get("sdk") ?? document.body.dataset.sdk;
const MAX_WAIT = 30; // seconds
const MAX_TRIES = 4;

// Maps scope/name to the version entry that is installed.
const installed = JSON.parse(localStorage.getItem("installed") ?? "{}");

const find = (id) => document.getElementById(id);

function save() {
  localStorage.setItem("installed", JSON.stringify(installed));
}

function tell(message) {
  find("status").textContent = message;
}

function create(tag, properties = {}, ...children) {
  const element = Object.assign(document.createElement(tag), properties);
  element.append(...children);
  return element;
}

// Returns the JSON of a response. A busy catalog says how long to wait: then the request is repeated.
async function request(path, parameters = [], options = {}) {
  const url = `${CATALOG}/api/v1/widgets/${path}?${new URLSearchParams(parameters)}`;
  for (let tries = 1; ; tries += 1) {
    const response = await fetch(url, options);
    const wait = Number(response.headers.get("Retry-After") ?? NaN);
    if (![429, 503].includes(response.status) || !(wait <= MAX_WAIT) || tries === MAX_TRIES) {
      const body = await response.json();
      if (!response.ok) throw new Error(body.error);
      return body;
    }
    tell(`The catalog is busy. Trying again in ${wait} s.`);
    await new Promise((resolve) => setTimeout(resolve, wait * 1000));
    tell("");
  }
}

// Adds an import map for these exact versions, and returns why any of them cannot be loaded.
async function mapVersions(entries) {
  const widgets = entries.map((each) => ["widget", `${each.scope}/${each.name}@${each.version}`]);
  const map = await request("importmap", [["compatSdk", SDK], ...widgets]);
  const { imports, integrity, unavailable } = map;
  const script = create("script", { type: "importmap" });
  script.textContent = JSON.stringify({ imports, integrity });
  document.head.append(script);
  return unavailable ?? {};
}

// Imports a mapped widget and mounts it in a cell of the grid.
async function show(path, entry) {
  const content = create("div");
  const remove = create("button", { textContent: "Remove" });
  const title = create("span", { textContent: `${entry.displayName} ${entry.version}` });
  const cell = create("section", { ariaLabel: entry.displayName }, create("header", {}, title, remove), content);
  cell.style.gridColumn = `span ${entry.minSize.w}`;
  cell.style.gridRow = `span ${entry.minSize.h}`;
  // The browser compares the bundle with its hash, and refuses to run a damaged one.
  const module = await import(path);
  const unmount = await module.mount(content, { id: path, sdk: SDK });
  remove.addEventListener("click", () => {
    unmount?.();
    cell.remove();
    delete installed[path];
    save();
    showCards();
  });
  find("grid").append(cell);
}

async function add(entry) {
  const path = `${entry.scope}/${entry.name}`;
  try {
    const unavailable = await mapVersions([entry]);
    if (unavailable[path]) throw new Error(unavailable[path]);
    await show(path, entry);
    installed[path] = entry;
    save();
    showCards();
    await request(`${path}/${entry.version}`, [], { method: "POST" });
  } catch (error) {
    tell(`${entry.displayName} cannot be added: ${error.message}`);
  }
}

// A browser cannot replace a module that it has loaded, so the page is loaded again.
function update(entry) {
  installed[`${entry.scope}/${entry.name}`] = entry;
  save();
  location.reload();
}

let widgets = [];

function showCards() {
  const others = widgets.filter((widget) => !(`${widget.scope}/${widget.name}` in installed));
  find("cards").replaceChildren(
    ...others.map(({ displayName, description, picture, latestCompatibleVersion: entry }) => {
      const button = create("button", { textContent: "Add", onclick: () => add(entry) });
      button.ariaLabel = `Add ${displayName}`;
      const { url, width, height } = picture ?? {};
      return create(
        "article",
        {},
        ...(picture ? [create("img", { src: url, width, height, alt: "", loading: "lazy" })] : []),
        create("strong", { textContent: `${displayName} ${entry.version}` }),
        create("p", { textContent: description }),
        button,
      );
    }),
  );
}

async function showUpdates() {
  const versions = Object.entries(installed).map(([path, entry]) => ["installed", `${path}@${entry.version}`]);
  const { updates } = await request("updates", [["compatSdk", SDK], ...versions]);
  for (const { update: entry, downgrade, reason } of updates.filter((each) => each.status === "update")) {
    const label = `${downgrade ? "Go back" : "Update"} to ${entry.version}`;
    const button = create("button", { textContent: label, onclick: () => update(entry) });
    button.ariaLabel = `${label} of ${entry.displayName}`;
    find("updates").append(create("li", {}, `${entry.displayName}: ${reason} `, button));
  }
}

async function start() {
  const entries = Object.entries(installed);
  const unavailable = entries.length ? await mapVersions(Object.values(installed)) : {};
  const problems = Object.entries(unavailable).map(([path, reason]) => `${path}: ${reason}`);
  for (const [path, entry] of entries.filter(([path]) => !(path in unavailable))) {
    // One widget that fails must not stop the others.
    await show(path, entry).catch((error) => problems.push(`${path}: ${error.message}`));
  }
  if (problems.length) tell(`Some widgets cannot be shown. ${problems.join(" ")}`);
  if (entries.length) await showUpdates();
  const parameters = { compatSdk: SDK, compatible: true, stable: true, include: "picture", limit: 100 };
  ({ widgets } = await request("search", parameters));
  showCards();
}

start().catch((error) => tell(`The catalog cannot be used: ${error.message}`));
