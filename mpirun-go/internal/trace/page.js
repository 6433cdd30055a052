"use strict";
// Draws the trace on a canvas. Times are in nanoseconds since the first event.

const data = JSON.parse(document.getElementById("data").textContent);
const $ = id => document.getElementById(id);
const box = $("box"), canvas = $("view"), pen = canvas.getContext("2d");
const rowHeight = 22, axisHeight = 24, barHeight = 14, maxArrows = 3000;

// Starts become times since the first event. found says whether the search has found a call.
for (const list of [...data.rows, data.messages]) {
  let at = 0;
  list.at = Float64Array.from(list.at, d => at += d);
}
for (const row of data.rows) row.found = new Uint8Array(row.at.length);
const several = new Set(data.rows.filter(r => r.thread > 0).map(r => r.rank));
const rowName = r => "rank " + r.rank + (several.has(r.rank) ? "." + r.thread : "");

// view is the part that is shown: times from t0 to t1, rows from the pixel top on.
const view = {t0: 0, t1: data.end, top: 0};
let drawn = {};       // of the last draw: numbers for the status, and the arrows that can be hovered
let searched = false; // there is a word to search for
let hits = null;      // the calls that were found, by time: [start, row, index]
let current = null;   // the index of the hit that is shown

const left = () => Math.min(96, box.clientWidth * 0.22);
const width = () => Math.max(box.clientWidth - left(), 1);
const x = t => left() + (t - view.t0) / (view.t1 - view.t0) * width();
const timeAt = px => view.t0 + (px - left()) / width() * (view.t1 - view.t0);
const y = row => axisHeight + row * rowHeight - view.top;

function timeText(ns) {
  for (const [unit, size] of [["s", 1e9], ["ms", 1e6], ["µs", 1e3]])
    if (Math.abs(ns) >= size) return +(ns / size).toPrecision(4) + " " + unit;
  return Math.round(ns) + " ns";
}

// colors of calls: one hue for each name, from the part of the circle without red.
function hue(name) {
  let h = 0;
  for (const c of name) h = (h * 31 + c.charCodeAt(0)) % 997;
  return 25 + h % 290;
}
const isDark = matchMedia("(prefers-color-scheme: dark)");
const fills = new Map();
function fill(name) {
  if (!fills.has(name)) fills.set(name, `hsl(${hue(name)} 55% ${isDark.matches ? 62 : 46}%)`);
  return fills.get(name);
}
let css = {};
function readColors() {
  const style = getComputedStyle(document.documentElement);
  for (const name of ["back", "text", "faint", "line", "odd", "arrow", "found", "rail"]) css[name] = style.getPropertyValue("--" + name);
  fills.clear();
}

// first returns the index of the first element of a sorted list that is above t.
function first(list, t) {
  let low = 0, high = list.length;
  while (low < high) {
    const mid = (low + high) >> 1;
    if (list[mid] > t) high = mid; else low = mid + 1;
  }
  return low;
}

function draw() {
  const w = box.clientWidth, h = box.clientHeight, scale = devicePixelRatio || 1;
  if (canvas.width !== Math.round(w * scale) || canvas.height !== Math.round(h * scale)) {
    canvas.width = Math.round(w * scale);
    canvas.height = Math.round(h * scale);
    canvas.style.width = w + "px";
    canvas.style.height = h + "px";
  }
  view.top = Math.max(0, Math.min(view.top, data.rows.length * rowHeight - (h - axisHeight)));
  pen.setTransform(scale, 0, 0, scale, 0, 0);
  pen.fillStyle = css.back;
  pen.fillRect(0, 0, w, h);
  drawn = {calls: 0, narrow: 0, arrows: [], hidden: 0};
  const from = Math.floor(view.top / rowHeight), to = Math.min(data.rows.length, Math.ceil((view.top + h) / rowHeight));
  for (let i = from; i < to; i++) drawRow(i, w);
  if ($("arrows").checked) drawArrows(from, to);
  drawRails(from, to);
  drawNames(from, to, h);
  drawAxis(w, h);
  showStatus(from, to);
}

// drawRow draws calls. Those that are narrower than a pixel share one: it has the color of the
// longest, and is the stronger the more of its time is in calls.
function drawRow(i, w) {
  const r = data.rows[i], top = y(i) + (rowHeight - barHeight) / 2, nanosOfPixel = (view.t1 - view.t0) / width();
  if (i % 2) { pen.fillStyle = css.odd; pen.fillRect(left(), y(i), w, rowHeight); }
  let pixel = -1, longest = -1, nanos = 0, isFound = false;
  const flush = () => {
    if (longest < 0) return;
    pen.fillStyle = isFound ? css.found : fill(data.kinds[r.kind[longest]].name);
    pen.globalAlpha = isFound ? 1 : Math.max(0.25, Math.min(nanos / nanosOfPixel, 1)) * (searched ? 0.25 : 1);
    pen.fillRect(pixel, top, 1, barHeight);
    pen.globalAlpha = 1;
    longest = -1; nanos = 0; isFound = false;
  };
  for (let k = Math.max(first(r.at, view.t0) - 1, 0); k < r.at.length && r.at[k] <= view.t1; k++) {
    const x0 = Math.max(x(r.at[k]), left()), x1 = Math.min(x(r.at[k] + r.ns[k]), w);
    if (x1 < left()) continue;
    drawn.calls++;
    if (x1 - x0 < 1) {
      if (Math.floor(x0) !== pixel) { flush(); pixel = Math.floor(x0); }
      if (longest < 0 || r.ns[k] > r.ns[longest]) longest = k;
      drawn.narrow++;
      nanos += r.ns[k];
      isFound ||= searched && r.found[k];
      continue;
    }
    flush();
    const kind = data.kinds[r.kind[k]];
    pen.globalAlpha = searched && !r.found[k] ? 0.25 : 1;
    pen.fillStyle = fill(kind.name);
    pen.fillRect(x0, top, x1 - x0 > 3 ? x1 - x0 - 0.5 : x1 - x0, barHeight);
    pen.globalAlpha = 1;
    if (searched && r.found[k]) {
      pen.strokeStyle = css.found;
      pen.lineWidth = current !== null && hits[current][1] === i && hits[current][2] === k ? 3 : 1.5;
      pen.strokeRect(x0, top - 1, x1 - x0, barHeight + 2);
    }
    if (x1 - x0 > 44) {
      pen.save();
      pen.beginPath();
      pen.rect(x0, top, x1 - x0 - 4, barHeight);
      pen.clip();
      pen.fillStyle = isDark.matches ? "#0c0f13" : "#fff";
      pen.font = "11px system-ui, sans-serif";
      pen.fillText(kind.name, x0 + 4, top + 11);
      pen.restore();
    }
  }
  flush();
}

// drawArrows draws messages. Of those with the same ends on the screen it draws one, and at most
// maxArrows in all, spread evenly.
function drawArrows(fromRow, toRow) {
  const m = data.messages, seen = new Set(), list = [];
  for (let k = 0; k < m.at.length && m.at[k] <= view.t1; k++) {
    if (m.at[k] + m.ns[k] < view.t0 || Math.max(m.from[k], m.to[k]) < fromRow || Math.min(m.from[k], m.to[k]) >= toRow) continue;
    const x0 = x(m.at[k]), x1 = x(m.at[k] + m.ns[k]);
    const ends = Math.round(x0) + " " + Math.round(x1) + " " + m.from[k] + " " + m.to[k];
    if (seen.has(ends)) { drawn.hidden++; continue; }
    seen.add(ends);
    list.push({k, x0, y0: y(m.from[k]) + rowHeight / 2, x1, y1: y(m.to[k]) + rowHeight / 2});
  }
  const step = Math.ceil(list.length / maxArrows);
  drawn.arrows = list.filter((_, i) => i % step === 0);
  drawn.hidden += list.length - drawn.arrows.length;
  pen.save();
  pen.beginPath();
  pen.rect(left(), axisHeight, width(), box.clientHeight);
  pen.clip();
  pen.strokeStyle = pen.fillStyle = css.arrow;
  pen.lineWidth = 1;
  pen.globalAlpha = Math.max(0.12, Math.min(0.8, 150 / drawn.arrows.length));
  for (const a of drawn.arrows) {
    pen.beginPath();
    pen.moveTo(a.x0, a.y0);
    pen.lineTo(a.x1, a.y1);
    pen.stroke();
    const angle = Math.atan2(a.y1 - a.y0, a.x1 - a.x0);
    pen.beginPath();
    for (const turn of [0, 2.7, -2.7]) {
      const size = turn ? 7 : 0;
      pen.lineTo(a.x1 + size * Math.cos(angle + turn), a.y1 + size * Math.sin(angle + turn));
    }
    pen.fill();
  }
  pen.restore();
}

function drawRails(from, to) {
  pen.fillStyle = css.rail;
  for (const r of data.rails)
    if (r.row >= from && r.row < to && r.at >= view.t0 && r.at <= view.t1) pen.fillRect(x(r.at) - 1, y(r.row), 2, rowHeight);
}

function drawNames(from, to, h) {
  pen.fillStyle = css.back;
  pen.fillRect(0, 0, left(), h);
  pen.fillStyle = css.text;
  pen.font = "12px system-ui, sans-serif";
  for (let i = from; i < to; i++) pen.fillText(rowName(data.rows[i]), 6, y(i) + 15, left() - 8);
}

// drawAxis draws times since the first event, at round distances.
function drawAxis(w, h) {
  pen.fillStyle = css.back;
  pen.fillRect(0, 0, w, axisHeight);
  const least = (view.t1 - view.t0) / Math.max(width() / 110, 1), ten = 10 ** Math.floor(Math.log10(least));
  const step = Math.max(1, [1, 2, 5, 10].map(f => f * ten).find(s => s >= least));
  pen.font = "12px system-ui, sans-serif";
  pen.fillStyle = css.faint;
  pen.fillText("time", 6, 16);
  for (let t = Math.ceil(view.t0 / step) * step; t <= view.t1; t += step) {
    pen.fillStyle = css.line;
    pen.fillRect(x(t), 18, 1, h);
    pen.fillStyle = css.faint;
    pen.fillText(axisText(t, step), x(t) + 3, 15);
  }
}

// axisText writes a time in the unit of the step, so that neighbours differ.
function axisText(t, step) {
  const [unit, size] = [["s", 1e9], ["ms", 1e6], ["µs", 1e3], ["ns", 1]].find(u => step >= u[1]) || ["ns", 1];
  return (t / size).toFixed(0) + " " + unit;
}

function showStatus(from, to) {
  let text = `${timeText(view.t1 - view.t0)} shown, rows ${Math.min(from + 1, to)}–${to} of ${data.rows.length}: ${drawn.calls} calls, ${drawn.arrows.length} messages.`;
  if (drawn.narrow) text += ` ${drawn.narrow} calls are narrower than a pixel.`;
  if (drawn.hidden) text += ` ${drawn.hidden} messages are not drawn: zoom in.`;
  $("status").textContent = text;
}

// zoom zooms around a point of the canvas.
function zoom(factor, px) {
  const t = timeAt(px), length = Math.min(Math.max((view.t1 - view.t0) * factor, 50), data.end);
  const part = (t - view.t0) / (view.t1 - view.t0);
  move(t - part * length, length);
}

// move shows length nanoseconds from t0 on, within the trace.
function move(t0, length = view.t1 - view.t0) {
  view.t0 = Math.max(0, Math.min(t0, data.end - length));
  view.t1 = view.t0 + length;
  redraw();
}

let isPlanned = false;
function redraw() {
  if (isPlanned) return;
  isPlanned = true;
  requestAnimationFrame(() => { isPlanned = false; draw(); });
}

// textOf describes a call as the search reads it and the tip shows it.
function textOf(row, k) {
  const kind = data.kinds[row.kind[k]], parts = [kind.name + ", " + rowName(row) + " on " + row.host];
  if (kind.peer >= 0) parts.push("peer " + kind.peer);
  if (kind.tag >= 0) parts.push("tag " + kind.tag);
  if (kind.bytes > 0) parts.push(kind.bytes + " bytes");
  if (kind.comm) parts.push("communicator " + kind.comm);
  if (kind.line) parts.push(kind.line);
  if (kind.open) parts.push("not ended");
  return parts;
}

// isIn reports whether a word is in a part of the text of a call. A word that ends with a number has
// to be the whole part, so that "rank 1" does not find rank 10.
function isIn(word, part) {
  if (!/\d$/.test(word)) return part.includes(word);
  return part === word || part.endsWith("/" + word) || part.startsWith(word + " on ") || part.startsWith(word + ".");
}

// search marks the calls that have each of the words between commas.
function search() {
  const words = $("search").value.toLowerCase().split(",").map(s => s.trim()).filter(Boolean);
  searched = words.length > 0;
  hits = null;
  current = null;
  let count = 0;
  for (const row of data.rows) {
    const isMatch = new Map(); // by kind: rows have few kinds
    for (let k = 0; k < row.at.length; k++) {
      const kind = row.kind[k];
      if (!isMatch.has(kind)) {
        const parts = textOf(row, k).join(", ").toLowerCase().split(", ");
        isMatch.set(kind, searched && words.every(w => parts.some(p => isIn(w, p))));
      }
      count += row.found[k] = isMatch.get(kind) ? 1 : 0;
    }
  }
  $("found").textContent = searched ? count + (count === 1 ? " call" : " calls") : "";
  redraw();
}

// go shows the next call that was found (direction 1), or the one before (−1), by time.
function go(direction) {
  if (!hits) {
    hits = [];
    data.rows.forEach((row, i) => row.found.forEach((isFound, k) => { if (isFound) hits.push([row.at[k], i, k]); }));
    hits.sort((a, b) => a[0] - b[0]);
  }
  if (!hits.length) return;
  const here = current === null ? first(hits.map(h => h[0]), view.t0) - (direction > 0 ? 1 : 0) : current;
  current = (here + direction + hits.length) % hits.length;
  const [at, i, k] = hits[current], ns = data.rows[i].ns[k];
  const length = Math.min(Math.max(Math.min(view.t1 - view.t0, ns * 40), ns * 1.5, 50), data.end);
  $("found").textContent = `call ${current + 1} of ${hits.length}`;
  view.top = i * rowHeight - box.clientHeight / 2;
  move(at + ns / 2 - length / 2, length);
}

// describe returns the text of what is at a point: a rail, a call, or a message.
function describe(px, py) {
  const i = Math.floor((py - axisHeight + view.top) / rowHeight), row = data.rows[i], t = timeAt(px);
  if (px < left() || py < axisHeight) return row && py >= axisHeight ? rowName(row) + " on " + row.host : "";
  const pixel = (view.t1 - view.t0) / width();
  for (const r of data.rails) if (r.row === i && Math.abs(r.at - t) < 4 * pixel) return r.text + "\nat " + timeText(r.at);
  if (row) {
    const k = first(row.at, t) - 1;
    const isBar = Math.abs(py - y(i) - rowHeight / 2) <= barHeight / 2;
    if (k >= 0 && isBar && t <= row.at[k] + Math.max(row.ns[k], pixel)) {
      let text = textOf(row, k).join("\n") + "\nbegins at " + timeText(row.at[k]) + "\ntakes " + timeText(row.ns[k]);
      if (row.until[k]) text += "\ncompletion seen after " + timeText(row.until[k]);
      return text;
    }
  }
  let best = null, least = 5; // pixels
  for (const a of drawn.arrows || []) {
    const dx = a.x1 - a.x0, dy = a.y1 - a.y0;
    const s = Math.max(0, Math.min(1, ((px - a.x0) * dx + (py - a.y0) * dy) / (dx * dx + dy * dy || 1)));
    const d = Math.hypot(a.x0 + s * dx - px, a.y0 + s * dy - py);
    if (d < least) { best = a; least = d; }
  }
  if (!best) return "";
  const m = data.messages, k = best.k;
  return `message from ${rowName(data.rows[m.from[k]])} to ${rowName(data.rows[m.to[k]])}\n${m.bytes[k]} bytes\nsent at ${timeText(m.at[k])}\nmatched ${timeText(m.ns[k])} later`;
}

function showTip(event) {
  const at = canvas.getBoundingClientRect(), text = describe(event.clientX - at.left, event.clientY - at.top), tip = $("tip");
  tip.hidden = !text;
  tip.textContent = text;
  tip.style.left = Math.max(0, Math.min(event.clientX + 14, innerWidth - tip.offsetWidth - 8)) + "px";
  tip.style.top = Math.max(0, Math.min(event.clientY + 14, innerHeight - tip.offsetHeight - 8)) + "px";
}

let drag = null;
canvas.addEventListener("pointerdown", e => {
  drag = {x: e.offsetX, y: e.offsetY, t0: view.t0, top: view.top, isRange: e.shiftKey};
  canvas.setPointerCapture(e.pointerId);
});
canvas.addEventListener("pointermove", e => {
  if (!drag) return showTip(e);
  if (drag.isRange) return;
  view.top = drag.top - (e.offsetY - drag.y);
  move(drag.t0 - (e.offsetX - drag.x) / width() * (view.t1 - view.t0));
});
canvas.addEventListener("pointerup", e => {
  if (drag && drag.isRange && Math.abs(e.offsetX - drag.x) > 4) {
    const a = timeAt(Math.min(drag.x, e.offsetX)), b = timeAt(Math.max(drag.x, e.offsetX));
    move(a, Math.min(Math.max(b - a, 50), data.end));
  }
  drag = null;
  showTip(e);
});
canvas.addEventListener("pointercancel", () => drag = null);
canvas.addEventListener("pointerleave", () => $("tip").hidden = true);
canvas.addEventListener("wheel", e => {
  e.preventDefault();
  if (e.shiftKey) { view.top += e.deltaY || e.deltaX; redraw(); return; }
  if (Math.abs(e.deltaX) > Math.abs(e.deltaY)) return move(view.t0 + e.deltaX / width() * (view.t1 - view.t0));
  zoom(Math.exp(e.deltaY * 0.0015), e.offsetX);
}, {passive: false});
const middle = () => left() + width() / 2;
const keys = {
  "+": () => zoom(0.5, middle()), "=": () => zoom(0.5, middle()), "-": () => zoom(2, middle()), "0": () => move(0, data.end),
  ArrowLeft: () => move(view.t0 - (view.t1 - view.t0) / 5), ArrowRight: () => move(view.t0 + (view.t1 - view.t0) / 5),
  ArrowUp: () => { view.top -= rowHeight; redraw(); }, ArrowDown: () => { view.top += rowHeight; redraw(); },
};
canvas.addEventListener("keydown", e => { if (keys[e.key]) { e.preventDefault(); keys[e.key](); } });
$("in").onclick = keys["+"];
$("out").onclick = keys["-"];
$("all").onclick = keys["0"];
$("arrows").onchange = redraw;
$("search").oninput = search;
$("search").onkeydown = e => { if (e.key === "Enter") go(e.shiftKey ? -1 : 1); };
isDark.addEventListener("change", () => { readColors(); redraw(); });
new ResizeObserver(redraw).observe(box);

// The part behind # chooses the first view: #from=NS&to=NS&search=TEXT.
function start() {
  $("command").textContent = data.command || "trace";
  for (const note of data.notes) $("notes").appendChild(document.createElement("p")).textContent = note;
  readColors();
  const wanted = new URLSearchParams(location.hash.slice(1)), from = Number(wanted.get("from")) || 0;
  view.t0 = Math.min(Math.max(from, 0), data.end - 1);
  view.t1 = Math.min(Math.max(Number(wanted.get("to")) || data.end, view.t0 + 1), data.end);
  $("search").value = wanted.get("search") || "";
  search();
  draw();
  draw(); // the text below may have taken a line more
}
start();
