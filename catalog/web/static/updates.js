// Read the pasted list here and send only the versions in it: a lockfile is too long for an
// address, and nobody else needs the rest of it. It reads what installed_list.py
// reads; without this script the form sends the text.

const form = document.querySelector(".updates-form");
const { installed, compatSdk } = form.elements;
const VERSION_KEYS = ["version", "installed"];
const MAX_ADDRESS = 6000; // characters

const isPath = (text) => /^[^/]+\/[^/]+$/.test(text);
const versionOf = (value) => VERSION_KEYS.map((key) => value?.[key]).find((each) => typeof each === "string");

function isOfNpm(value) {
  return value?.lockfileVersion !== undefined && (value.packages ?? value.dependencies) !== undefined;
}

// Return what looks like an installed version in JSON of any shape.
function findVersions(value) {
  if (Array.isArray(value)) {
    return value.flatMap((each) => (typeof each === "string" ? [each].filter(isPath) : findVersions(each)));
  }
  if (value === null || typeof value !== "object") return [];
  const version = versionOf(value);
  if (version && value.scope && value.name) return [`${value.scope}/${value.name}@${version}`];
  return Object.entries(value).flatMap(([key, inner]) => {
    if (!isPath(key)) return findVersions(inner);
    const version = typeof inner === "string" ? inner : versionOf(inner);
    return [version && !/@\d/.test(key) ? `${key}@${version}` : key];
  });
}

function readJson(text) {
  try {
    return JSON.parse(text);
  } catch {
    return undefined;
  }
}

function showError(text) {
  const error = document.getElementById("installed-error");
  error.textContent = text;
  error.hidden = false;
  installed.setAttribute("aria-invalid", "true");
  installed.focus();
}

form.addEventListener("submit", (event) => {
  event.preventDefault();
  const text = installed.value.trim();
  let versions = text.split("\n");
  if (/^[{[]/.test(text)) {
    const value = readJson(text);
    if (value === undefined) return showError("This is not valid JSON: is it complete?");
    if (isOfNpm(value)) return showError("This is a lockfile of npm: it names packages of npm, not widgets.");
    versions = findVersions(value);
    if (!versions.length) return showError("This JSON names no version in a form like scope/name@version.");
  }
  const lines = versions.map((each) => each.trim()).filter((each) => each && !each.startsWith("#"));
  const query = new URLSearchParams({ compatSdk: compatSdk.value.trim() });
  let others = 0;
  for (const line of new Set(lines.length ? lines : [""])) {
    if (`${query}`.length + encodeURIComponent(line).length < MAX_ADDRESS) query.append("installed", line);
    else others += 1;
  }
  if (others) query.append("others", others);
  location.assign(`${new URL(form.action).pathname}?${query}`);
});
