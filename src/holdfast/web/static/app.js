// Holdfast: what pages can do beyond links and forms. Nothing here is needed to read or to act.

const $ = (selector, root = document) => root.querySelector(selector);
const $$ = (selector, root = document) => [...root.querySelectorAll(selector)];
const root = document.documentElement;
const base = root.dataset.base ?? "";

// -- theme: kept in a cookie, so that the server can send the page as it should look ------------

function shownTheme() {
  return root.dataset.theme || (matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light");
}

function switchTheme() {
  const theme = shownTheme() === "dark" ? "light" : "dark";
  root.dataset.theme = theme;
  document.cookie = `holdfast_theme=${theme}; path=${base || "/"}; max-age=31536000; samesite=lax`;
  drawCharts();
}

// -- copying ----------------------------------------------------------------------------------

async function copy(button) {
  const text = $("code", button.parentElement)?.textContent ?? "";
  try {
    await navigator.clipboard.writeText(text);
    say("Copied.");
  } catch {
    getSelection().selectAllChildren($("code", button.parentElement));
    say("Press Ctrl+C to copy.");
  }
}

function say(text) {
  const place = $("#said");
  if (place) place.textContent = text;
}

// -- live: the server says what changed; the page is fetched again, and its live parts replaced --

const parts = $$("[data-live]").length > 0;
const wanted = new Set();
const late = new Set();
let source = null;
let polling = null;
let fetching = false;
let slow = 0;

/** Why a part of the page must stay as it is; empty when it may change. */
function heldBy(part) {
  const active = document.activeElement;
  if (active && active !== document.body && part.contains(active)) return "focus";
  const selection = getSelection();
  if (selection && !selection.isCollapsed && selection.anchorNode && part.contains(selection.anchorNode)) return "selection";
  if ($("details[open]:not([data-stays])", part)) return "open";
  if ($(".select:checked", part)) return "chosen";
  return "";
}

function show(state) {
  const light = $("#live");
  if (!light) return;
  light.dataset.liveState = state;
  light.textContent = { on: "live", held: "held while you read", off: "not live", poll: "looks every 5 s" }[state];
}

function touches(part) {
  return part.dataset.live.split(" ").some((word) => wanted.has(word));
}

async function refresh() {
  if (fetching || document.hidden || !wanted.size) return;
  const open = $$("[data-live]").filter(touches);
  if (open.length && open.every((part) => heldBy(part))) {
    for (const part of open) late.add(part.id);
    show("held");
    return;
  }
  fetching = true;
  try {
    const answer = await fetch(root.dataset.self ?? location.href, { headers: { "X-Holdfast-Live": "1" }, credentials: "same-origin" });
    if (!answer.ok || answer.redirected) throw new Error(answer.status);
    const fresh = new DOMParser().parseFromString(await answer.text(), "text/html");
    const held = replace(fresh);
    show(held ? "held" : polling ? "poll" : "on");
    if (!held) wanted.clear();
  } catch {
    show("off");
  } finally {
    fetching = false;
  }
}

/** Put the new parts in the place of the old ones; answers whether one of them is held. */
function replace(fresh) {
  let held = false;
  for (const part of $$("[data-live]")) {
    const next = part.id && fresh.getElementById(part.id);
    if (!next || next.innerHTML === part.dataset.was || !touches(part)) continue;
    if (heldBy(part)) {
      held = true;
      late.add(part.id);
      continue;
    }
    late.delete(part.id);
    const scrolled = $$("[data-keep]", part).map((each) => [each.dataset.keep, each.scrollTop, each.scrollLeft]);
    part.dataset.was = next.innerHTML;
    part.replaceChildren(...document.adoptNode(next).childNodes);
    for (const [name, top, left] of scrolled) {
      const place = $(`[data-keep="${CSS.escape(name)}"]`, part);
      if (place) place.scrollTo(left, top);
    }
    dress(part);
  }
  mark(place);
  return held;
}

function listen() {
  if (source || document.hidden || !parts) return;
  if (!window.EventSource) {
    poll();
    return;
  }
  source = new EventSource(`${base}/live`);
  source.addEventListener("changed", (event) => {
    for (const word of event.data.split(" ")) wanted.add(word);
    refresh();
  });
  source.addEventListener("open", () => {
    stopPolling();
    show("on");
  });
  source.addEventListener("error", () => {
    if (source && source.readyState === EventSource.CLOSED) {
      source = null;
      poll();
    } else show("off");
  });
}

function hush() {
  source?.close();
  source = null;
  stopPolling();
}

function poll() {
  if (polling) return;
  show("poll");
  polling = setInterval(() => {
    wantAll();
    refresh();
  }, 5000);
}

function stopPolling() {
  clearInterval(polling);
  polling = null;
}

function wantAll() {
  for (const part of $$("[data-live]")) for (const word of part.dataset.live.split(" ")) wanted.add(word);
}

/** Ages grow though nothing changes: look again twice a minute, at a log that grows more often. What was held is shown as soon as it is let go. */
function tick() {
  slow += 1;
  if (slow % ($(".log[data-follow]") ? 2 : 30) === 0) wantAll();
  const freed = [...late].some((id) => !document.getElementById(id) || !heldBy(document.getElementById(id)));
  if (freed || slow % 5 === 0 || $(".log[data-follow]")) refresh();
}

// -- charts: drawn from the tables beside them ---------------------------------------------------

const drawn = new Map();

function colour(name) {
  return getComputedStyle(root).getPropertyValue(`--${name}`).trim();
}

/** light-dark() is only resolved on an element. */
function resolved(name) {
  const probe = document.createElement("i");
  probe.style.color = `var(--${name})`;
  document.body.append(probe);
  const found = getComputedStyle(probe).color;
  probe.remove();
  return found || colour(name);
}

function drawCharts(within = document) {
  if (!window.uPlot) return;
  for (const figure of $$("[data-chart]", within)) {
    const place = $(".plot", figure);
    const table = $("table", figure);
    if (!place || !table) continue;
    drawn.get(place)?.destroy();
    place.replaceChildren();
    const heads = $$("thead th", table);
    const rows = $$("tbody tr", table).map((row) => [...row.cells].map((cell) => Number(cell.dataset.value ?? cell.textContent)));
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
    drawn.set(place, new window.uPlot(options, data, place));
  }
}

function fitCharts() {
  for (const [place, chart] of drawn) {
    if (!place.isConnected) drawn.delete(place);
    else chart.setSize({ width: place.clientWidth, height: chart.height });
  }
}

// -- rows: j and k go through them, x chooses, Enter opens ----------------------------------------

let place = -1;
let last = null;

function rows() {
  return $$("tr[data-row]");
}

function mark(to) {
  const all = rows();
  place = all.length ? Math.max(-1, Math.min(to, all.length - 1)) : -1;
  all.forEach((row, at) => row.classList.toggle("here", at === place));
  return all[place];
}

function go(step) {
  const row = mark(place < 0 && step < 0 ? 0 : place + step);
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
  for (const each of $$("[data-chosen]")) each.textContent = chosen ? `${chosen.toLocaleString("en")} chosen` : "none chosen";
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
    x: () => choose(rows()[place]),
    o: () => $("a", rows()[place] ?? document.createElement("i"))?.click(),
    t: switchTheme,
    r: () => location.reload(),
  };
  if (actions[key]) {
    event.preventDefault();
    actions[key]();
  }
}

// -- what is to be asked again -----------------------------------------------------------------------

/** A part of the page that has just been put there. */
function dress(part) {
  drawCharts(part);
  for (const each of $$("[data-js]", part)) each.hidden = false;
  for (const each of $$(".log[data-follow]", part)) each.scrollTop = each.scrollHeight;
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
document.addEventListener("visibilitychange", () => (document.hidden ? hush() : (listen(), refresh())));
addEventListener("pagehide", hush);
addEventListener("pageshow", (event) => event.persisted && listen());
addEventListener("resize", fitCharts);
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => drawCharts());

dress(document);
if (parts) {
  listen();
  setInterval(tick, 1000);
} else $("#live")?.remove();
