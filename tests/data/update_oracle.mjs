// Writes updates.json: random histories of widgets, and what node-semver says about their updates.
//
// To generate it again, in a folder with node-semver 7.8.6 (npm install semver@7.8.6):
//
//     NODE_PATH=$PWD/node_modules node …/tests/data/update_oracle.mjs >…/tests/data/updates.json
//
// The result is the same in every run. The rule is that of docs/reference/api.md, written without a look at
// catalog/domain/update_rule.py; versions and ranges are compared by node-semver alone.

import { createRequire } from "node:module";

const require = createRequire(`${process.env.NODE_PATH}/`);
const semver = require("semver");

const WIDGETS = 120;

// Mulberry32: a small generator with a seed, since Math.random() has none.
let state = 15;
function random() {
  state = (state + 0x6d2b79f5) | 0;
  let mixed = Math.imul(state ^ (state >>> 15), 1 | state);
  mixed = (mixed + Math.imul(mixed ^ (mixed >>> 7), 61 | mixed)) ^ mixed;
  return ((mixed ^ (mixed >>> 14)) >>> 0) / 2 ** 32;
}
const pick = (items) => items[Math.floor(random() * items.length)];

const CORES = [
  ...["0.0.1", "0.9.0", "0.10.0", "1.0.0", "1.0.1", "1.9.5", "1.10.0", "1.10.1", "2.0.0"],
  ...["2.0.1", "2.1.0", "10.0.0", "9007199254740991.0.0"],
];
const PRERELEASES = [
  ...["-0", "-1", "-9", "-10", "-alpha", "-alpha.1", "-alpha.beta", "-beta", "-beta.2"],
  ...["-beta.11", "-rc.1", "-rc.1.0", "-A", "-a-b", "--", "-1a", "-x.7.z.92"],
];
const BUILDS = ["", "", "", "", "", "+a", "+b", "+001", "+20250101.sha-5"];
const RANGES = [
  ...["^1.0.0", "^1.4.0", "^2.0.0", "~1.4", "~1.4.2", ">=1.2.0", ">=1.2.0 <2.0.0", "<1.4.0"],
  ...["*", "", "x", "1.x", "1.4.x", "1", "=1.4.0", "v1.4.0", "1.4.0", "1.2.3 - 1.4", "1.2 - 2"],
  ...["^0.9.5", "^0.0.3", "~0", "^0.x", ">1", "<=1.4", ">1.4", "<2", ">=2.0.0-0", "<2.0.0-0"],
  ...["^2.0.0-beta.1", ">=2.0.0-beta.1 <2.0.0", "~2.0.0-rc", "1.4.0 || ^3.0.0-beta.1"],
  ...["^1.0.0 || ^2.0.0 || ^3.0.0", ">=1.0.0 <1.4.0 || >1.4.0", "|| 1.4.0", "1.4.0 ||"],
  ...[" ^1.0.0 ", ">= 1.2.0", "^ 1.4", "~> 1.4", "<0.0.0-0", ">1.4.0 <1.4.0", "^1.4.0+build"],
  ...["none", "latest", "^1.0.0.0", ">=1.0.0 and <2.0.0", "1.4.0,2.0.0", "^01.0.0", "=>1.0.0"],
];
// Without these, few versions would run on the SDK.
const WIDE_RANGES = ["*", ">=1.0.0", "^1.0.0", "^1.0.0 || ^2.0.0 || ^3.0.0", ">=0.9.0 || >=2.0.0-0"];
const SDKS = [
  ...["0.0.3", "0.9.5", "1.0.0", "1.4.0", "1.4.0+build", "1.4.2", "2.0.0-beta.1", "2.0.0-beta.2"],
  ...["2.0.0-rc.1", "2.0.0", "3.0.0-beta.2", "3.0.0", "9007199254740991.0.0"],
];

function randomVersion(cores) {
  return pick(cores) + (random() < 0.4 ? pick(PRERELEASES) : "") + pick(BUILDS);
}

// [number, publishedAt as a day of January, yanked, range] of each version; some of the same day.
function randomHistory() {
  // Few cores, so that prereleases of the same version meet.
  const cores = Array.from({ length: 1 + Math.floor(random() * 5) }, () => pick(CORES));
  const yankShare = pick([0, 0.2, 0.4, 0.8]);
  const ranges = Array.from({ length: 1 + Math.floor(random() * 4) }, () =>
    pick(random() < 0.5 ? RANGES : WIDE_RANGES),
  );
  const history = new Map();
  const count = 1 + Math.floor(random() * 10);
  for (let tries = 0; tries < count; tries += 1) {
    const number = randomVersion(cores);
    const day = 1 + Math.floor(random() * 8);
    history.set(number, [number, day, random() < yankShare, pick(ranges)]);
  }
  return [...history.values()];
}

// By publishedAt, then by precedence, then by the text; the last one is the newest.
function compareAge([a, dayA], [b, dayB]) {
  return dayA - dayB || semver.compare(a, b) || (a < b ? -1 : 1);
}

function isOffered([number, , yanked, range], installed, sdk) {
  const own = semver.parse(installed);
  const other = semver.parse(number);
  const isSame = own.major === other.major && own.minor === other.minor && own.patch === other.patch;
  const isAllowed = !other.prerelease.length || (own.prerelease.length > 0 && isSame);
  return isAllowed && !yanked && semver.satisfies(sdk, range);
}

// [installed, status, compatible, number of the update or null, whether it is a downgrade]
function judge(history, installed, sdk) {
  const [, , isYanked, range] = history.find(([number]) => number === installed);
  const isCompatible = semver.satisfies(sdk, range);
  const offered = history.filter((version) => isOffered(version, installed, sdk)).sort(compareAge);
  const above = offered.filter(([number]) => semver.gt(number, installed));
  if (above.length) {
    return [installed, "update", isCompatible, above.at(-1)[0], false];
  }
  const below = offered.filter(([number]) => semver.lt(number, installed));
  if ((isYanked || !isCompatible) && below.length) {
    const highest = below.reduce((a, b) => (semver.gte(b[0], a[0]) ? b : a));
    return [installed, "update", isCompatible, highest[0], true];
  }
  return [installed, "current", isCompatible, null, false];
}

function randomWidget() {
  const versions = randomHistory();
  const sdks = [...new Set(["1.4.0", pick(SDKS), pick(SDKS)])];
  const results = sdks.map((sdk) => [sdk, versions.map(([number]) => judge(versions, number, sdk))]);
  return { versions, results };
}

const widgets = Array.from({ length: WIDGETS }, randomWidget);
const lines = widgets.map((widget) => JSON.stringify(widget));
const format =
  "widgets: versions: [number, day of publication, yanked, range]; " +
  "results: [SDK, [installed, status, compatible, update, is a downgrade] of each version]";
const head = `"node_semver": ${JSON.stringify(require("semver/package.json").version)}`;
console.log(`{\n${head},\n"format": ${JSON.stringify(format)},\n"widgets": [`);
console.log(`${lines.join(",\n")}\n]\n}`);
