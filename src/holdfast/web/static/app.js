// Live updates, charts and keys of the pages. Pages are complete without this script.

const $ = (selector, root = document) => root.querySelector(selector);
const $$ = (selector, root = document) => [...root.querySelectorAll(selector)];
const root = document.documentElement;
const base = root.dataset.base ?? "";

// -- theme: a cookie, so that the server renders the page in the right theme --------------------

function currentTheme() {
  return root.dataset.theme || (matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light");
}

function switchTheme() {
  const theme = currentTheme() === "dark" ? "light" : "dark";
  root.dataset.theme = theme;
  document.cookie = `holdfast_theme=${theme}; path=${base || "/"}; max-age=31536000; samesite=lax`;
  drawCharts();
}

// -- copying ----------------------------------------------------------------------------------

async function copy(button) {
  const text = $("code", button.parentElement)?.textContent ?? "";
  try {
    await navigator.clipboard.writeText(text);
    announce("Copied.");
  } catch {
    getSelection().selectAllChildren($("code", button.parentElement));
    announce("Press Ctrl+C to copy.");
  }
}

/** Announce a text to screen readers. */
function announce(text) {
  const status = $("#said");
  if (status) status.textContent = text;
}

// -- live: the server names the parts of the store that changed; the page is fetched again --------

// The banner of the stop switch is on every page: it alone opens no stream.
const isLive = $$("[data-live]:not(#stop-switch)").length > 0;
/** Parts of the store that changed since the last refresh. */
const changed = new Set();
/** Ids of sections whose update waits until the reader has finished with them. */
const postponed = new Set();
/** The last answer to a refresh. Viewers share it: it does not hold the token that forms of this page need. */
let received = { etag: "", text: "" };
const formToken = $("[name=form_token]")?.value ?? "";
let source = null;
let polling = null;
let fetching = false;
let ticks = 0;

/** The reason not to replace a section now; empty if it may be replaced. */
function blockedBy(section) {
  const active = document.activeElement;
  if (active && active !== document.body && section.contains(active)) return "focus";
  const selection = getSelection();
  if (selection && !selection.isCollapsed && selection.anchorNode && section.contains(selection.anchorNode)) return "selection";
  if ($("details[open]:not([data-stays])", section)) return "open";
  if ($(".select:checked", section)) return "chosen";
  return "";
}

function showLiveState(state) {
  const indicator = $("#live");
  if (!indicator) return;
  indicator.dataset.liveState = state;
  indicator.textContent = { on: "live", held: "held while you read", off: "not live", poll: "looks every 5 s" }[state];
}

function isAffected(section, names) {
  return section.dataset.live.split(" ").some((name) => names.has(name));
}

/** The main part of this page as it is now. The server sends it only if it differs from the last one. */
async function fetchMain() {
  const headers = { "X-Holdfast-Live": "1", "If-None-Match": received.etag };
  const answer = await fetch(root.dataset.self ?? location.href, { headers, credentials: "same-origin" });
  if (answer.status !== 304) {
    if (!answer.ok || answer.redirected) throw new Error(answer.status);
    received = { etag: answer.headers.get("ETag") ?? "", text: await answer.text() };
  }
  return new DOMParser().parseFromString(received.text, "text/html");
}

async function refresh() {
  if (fetching || document.hidden || !changed.size) return;
  const open = $$("[data-live]").filter((section) => isAffected(section, changed));
  if (!open.length) {
    changed.clear();
    return;
  }
  if (open.every((section) => blockedBy(section))) {
    for (const section of open) postponed.add(section.id);
    showLiveState("held");
    return;
  }
  fetching = true;
  // Changes that arrive meanwhile may be missing in the answer: they stay in the set.
  const names = new Set(changed);
  changed.clear();
  let complete = false;
  try {
    complete = replace(await fetchMain(), names);
    showLiveState(!complete ? "held" : polling ? "poll" : "on");
  } catch {
    showLiveState("off");
  } finally {
    fetching = false;
  }
  if (!complete) for (const name of names) changed.add(name);
  else refresh();
}

/** Replace the sections that these names affect. Returns whether all could be replaced; the others are postponed. */
function replace(fresh, names) {
  let waiting = false;
  for (const section of $$("[data-live]")) {
    const next = section.id && fresh.getElementById(section.id);
    if (!next || next.innerHTML === section.dataset.was || !isAffected(section, names)) continue;
    if (blockedBy(section)) {
      waiting = true;
      postponed.add(section.id);
      continue;
    }
    postponed.delete(section.id);
    const scrolled = $$("[data-keep]", section).map((each) => [each.dataset.keep, each.scrollTop, each.scrollLeft]);
    section.dataset.was = next.innerHTML;
    for (const field of $$("[name=form_token]", next)) field.value = formToken;
    section.replaceChildren(...document.adoptNode(next).childNodes);
    for (const [name, top, left] of scrolled) {
      const place = $(`[data-keep="${CSS.escape(name)}"]`, section);
      if (place) place.scrollTo(left, top);
    }
    prepare(section);
  }
  mark(current);
  return !waiting;
}

function listen() {
  if (source || document.hidden || !isLive) return;
  if (!window.EventSource) {
    poll();
    return;
  }
  source = new EventSource(`${base}/live`);
  source.addEventListener("changed", (event) => {
    for (const name of event.data.split(" ")) changed.add(name);
    refresh();
  });
  source.addEventListener("open", () => {
    stopPolling();
    showLiveState("on");
  });
  source.addEventListener("error", () => {
    if (source && source.readyState === EventSource.CLOSED) {
      source = null;
      poll();
    } else showLiveState("off");
  });
}

function disconnect() {
  source?.close();
  source = null;
  stopPolling();
}

function poll() {
  if (polling) return;
  showLiveState("poll");
  polling = setInterval(() => {
    changeAll();
    refresh();
  }, 5000);
}

function stopPolling() {
  clearInterval(polling);
  polling = null;
}

function changeAll() {
  for (const section of $$("[data-live]")) for (const name of section.dataset.live.split(" ")) changed.add(name);
}

/** Refresh every 30 s, since ages grow without a change, and a followed log every 2 s. A postponed section is refreshed once it is free. */
function tick() {
  ticks += 1;
  if (ticks % ($(".log[data-follow]") ? 2 : 30) === 0) changeAll();
  const free = [...postponed].some((id) => !document.getElementById(id) || !blockedBy(document.getElementById(id)));
  if (free || ticks % 5 === 0 || $(".log[data-follow]")) refresh();
}

// -- charts: drawn from the tables next to them ---------------------------------------------------

const charts = new Map();

function colour(name) {
  return getComputedStyle(root).getPropertyValue(`--${name}`).trim();
}

/** The browser resolves light-dark() only on an element. */
function resolved(name) {
  const probe = document.createElement("i");
  probe.style.color = `var(--${name})`;
  document.body.append(probe);
  const value = getComputedStyle(probe).color;
  probe.remove();
  return value || colour(name);
}

/** The number in a cell; null, which draws nothing, if it is not known. */
function value(cell) {
  const number = Number(cell.dataset.value ?? cell.textContent);
  return Number.isNaN(number) ? null : number;
}

function drawCharts(within = document) {
  if (!window.uPlot) return;
  for (const figure of $$("[data-chart]", within)) {
    const place = $(".plot", figure);
    const table = $("table", figure);
    if (!place || !table) continue;
    charts.get(place)?.destroy();
    place.replaceChildren();
    const heads = $$("thead th", table);
    const rows = $$("tbody tr", table).map((row) => [...row.cells].map((cell) => value(cell)));
    const data = heads.map((_, column) => rows.map((row) => row[column]));
    const axis = { stroke: resolved("quiet"), grid: { stroke: resolved("line"), width: 1 }, ticks: { show: false } };
    const series = heads.map((head, column) =>
      column === 0
        ? {}
        : { label: head.textContent, stroke: resolved(head.dataset.colour), width: 1.5, dash: column > 1 ? [5, 3] : [], points: { show: false } },
    );
    const height = Number(place.dataset.height ?? 170);
    const options = { width: place.clientWidth || figure.clientWidth, height, series, scales: { x: { time: false } }, legend: { show: false }, axes: [{ ...axis, values: (_, ticks) => ticks.map((tick) => (tick ? `${tick} min` : "now")) }, { ...axis, size: 44 }], cursor: { drag: { x: false, y: false } } };
    place.hidden = false;
    charts.set(place, new window.uPlot(options, data, place));
  }
}

function fitCharts() {
  for (const [place, chart] of charts) {
    if (!place.isConnected) charts.delete(place);
    else chart.setSize({ width: place.clientWidth, height: chart.height });
  }
}

// -- rows: j and k move, x selects, Enter opens ----------------------------------------

let current = -1;
let last = null;

function rows() {
  return $$("tr[data-row]");
}

function mark(to) {
  const all = rows();
  current = all.length ? Math.max(-1, Math.min(to, all.length - 1)) : -1;
  all.forEach((row, at) => row.classList.toggle("here", at === current));
  return all[current];
}

function go(step) {
  const row = mark(current < 0 && step < 0 ? 0 : current + step);
  row?.scrollIntoView({ block: "nearest" });
  const link = row && $("a", row);
  if (link) link.focus({ preventScroll: true });
}

function choose(row) {
  const box = row && $(".select", row);
  if (!box) return;
  box.checked = !box.checked;
  count();
}

function chooseTo(box) {
  const boxes = $$(".select");
  if (last && boxes.includes(last)) {
    const [from, to] = [boxes.indexOf(last), boxes.indexOf(box)].sort((a, b) => a - b);
    for (const each of boxes.slice(from, to + 1)) each.checked = box.checked;
  }
}

function count() {
  const chosen = $$(".select:checked").length;
  for (const each of $$("[data-chosen]")) each.textContent = chosen ? `${chosen.toLocaleString("en")} selected` : "none selected";
  for (const button of $$("button[data-needs-chosen]")) button.disabled = chosen === 0;
  const all = $("#select-all");
  if (all) {
    const boxes = $$(".select");
    all.checked = boxes.length > 0 && chosen === boxes.length;
    all.indeterminate = chosen > 0 && chosen < boxes.length;
  }
}

// -- keys ------------------------------------------------------------------------------------------

let after = "";
let afterTimer = null;

function typing(target) {
  return target.closest("input:not([type=checkbox]):not([type=radio]), textarea, select, [contenteditable]");
}

function jump(letter) {
  const link = $(`.nav a[data-key="${CSS.escape(letter)}"]`);
  if (link) location.href = link.href;
}

function pressed(event) {
  if (event.ctrlKey || event.metaKey || event.altKey) return;
  if (event.key === "Escape") {
    for (const menu of $$("details.menu[open]")) menu.open = false;
    if (typing(event.target)) event.target.blur();
    return;
  }
  if (typing(event.target) || $("dialog[open]")) return;
  const key = event.key;
  if (after === "g") {
    after = "";
    clearTimeout(afterTimer);
    jump(key);
    return;
  }
  const actions = {
    "/": () => ($("[data-search]") ?? $("#seek"))?.focus(),
    "?": () => $("#keys")?.showModal(),
    g: () => {
      after = "g";
      afterTimer = setTimeout(() => (after = ""), 1500);
    },
    j: () => go(1),
    k: () => go(-1),
    x: () => choose(rows()[current]),
    o: () => $("a", rows()[current] ?? document.createElement("i"))?.click(),
    t: switchTheme,
    r: () => location.reload(),
  };
  if (actions[key]) {
    event.preventDefault();
    actions[key]();
  }
}

// -- times: the server writes UTC, because viewers in all zones share a page; readers see their own clock -------------

const zone = Intl.DateTimeFormat().resolvedOptions().timeZone;

/** Date, time and zone by the clock of this browser: 2030-01-02, 13:45:10, CET. */
function localTime(at) {
  const two = (number) => String(number).padStart(2, "0");
  const parts = new Intl.DateTimeFormat("en-GB", { timeZoneName: "short" }).formatToParts(at);
  const date = [at.getFullYear(), two(at.getMonth() + 1), two(at.getDate())].join("-");
  const time = [at.getHours(), at.getMinutes(), at.getSeconds()].map(two).join(":");
  return [date, time, parts.find((part) => part.type === "timeZoneName").value];
}

function showLocalTimes(section) {
  const [today] = localTime(new Date());
  for (const each of $$("time[data-shows]", section)) {
    const [date, ...time] = localTime(new Date(each.dateTime));
    const isShort = each.dataset.shows === "clock" && date === today;
    if (each.dataset.shows !== "age") each.textContent = (isShort ? time : [date, ...time]).join(" ");
    each.title = `${[date, ...time].join(" ")} (${each.title})`;
  }
  for (const each of $$("[name=zone]", section)) each.value = zone;
  for (const each of $$("[data-zone-name]", section)) each.textContent = zone;
}

// -- sections that were just added -----------------------------------------------------------------------

/** Prepare a new section: draw its charts, show its times and buttons, scroll its log. */
function prepare(section) {
  drawCharts(section);
  showLocalTimes(section);
  for (const each of $$("[data-js]", section)) each.hidden = false;
  for (const each of $$(".log[data-follow]", section)) each.scrollTop = each.scrollHeight;
  count();
}

document.addEventListener("keydown", pressed);
document.addEventListener("click", (event) => {
  const button = event.target.closest("[data-copy], [data-theme-switch], [data-keys]");
  if (button?.hasAttribute("data-copy")) copy(button);
  if (button?.hasAttribute("data-theme-switch")) switchTheme();
  if (button?.hasAttribute("data-keys")) $("#keys")?.showModal();
  for (const menu of $$("details.menu[open]")) if (!menu.contains(event.target)) menu.open = false;
  if (event.target.matches(".select")) {
    if (event.shiftKey) chooseTo(event.target);
    last = event.target;
    count();
  }
});
document.addEventListener("change", (event) => {
  if (event.target.id === "select-all") {
    for (const box of $$(".select")) box.checked = event.target.checked;
    count();
  }
  if (event.target.matches("select[data-goes]")) event.target.form.requestSubmit();
});
document.addEventListener("visibilitychange", () => (document.hidden ? disconnect() : (listen(), refresh())));
addEventListener("pagehide", disconnect);
addEventListener("pageshow", (event) => event.persisted && listen());
addEventListener("resize", fitCharts);
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => drawCharts());

prepare(document);
if (isLive) {
  listen();
  setInterval(tick, 1000);
} else $("#live")?.remove();
