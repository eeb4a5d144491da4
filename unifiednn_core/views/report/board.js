// A board: one row of chips for all charts, controls, and the charts with one cursor and one zoom.
// `unifiednnBoard.show(node, board)` draws it, and again when it changed. Needs plotly.js and the scripts beside this one.

const KEPT_RUNS = 40, MOST_CHIPS = 8, SHARE_OF_TIME = 12, STORE = "unifiednn-charts";
const DASHES = { solid: "", dash: "6,3", dot: "2,2", dashdot: "6,2,2,2", longdash: "10,3", longdashdot: "10,2,2,2" };
const TOUCH = matchMedia("(pointer: coarse)").matches; // a finger that moves over a chart scrolls the page
const CONFIG = { displaylogo: false, displayModeBar: TOUCH ? false : "hover", modeBarButtons: [["toImage"]], doubleClick: false, showTips: false, responsive: true };
const CHOICES = { x: "epoch", scale: "auto", smooth: 0, clip: false, context: false, solo: "", hidden: [], tabs: {}, zooms: 0 };

function el(tag, properties = {}, ...children) {
  const node = Object.assign(document.createElement(tag), properties);
  if (properties.role) node.setAttribute("role", properties.role);
  node.append(...children.filter(Boolean));
  return node;
}

// Choices are kept for each run in this browser.
function remembered(run) {
  try {
    return JSON.parse(localStorage.getItem(STORE) ?? "{}")[run] ?? {};
  } catch {
    return {};
  }
}

function remember(run, { zooms, ...choices }) {
  try {
    const { [run]: _, ...others } = JSON.parse(localStorage.getItem(STORE) ?? "{}");
    const kept = Object.entries(others).slice(1 - KEPT_RUNS);
    localStorage.setItem(STORE, JSON.stringify({ ...Object.fromEntries(kept), [run]: choices }));
  } catch {
    // a browser that keeps nothing
  }
}

class Board {
  constructor(root, { whole = false } = {}) {
    this.root = root;
    this.whole = whole; // also what is not in sight, for paper
    this.cells = new Map();
    this.queue = new Set();
    this.zoom = {};
    this.seen = new IntersectionObserver((entries) => entries.forEach((entry) => this.inView(entry)), { rootMargin: "150px" });
    this.ends = new AbortController();
    document.addEventListener("visibilitychange", () => document.hidden || this.redraw(), { signal: this.ends.signal });
  }

  // The newest board; charts whose revision is the same stay as they are.
  update(board, style) {
    if (this.board?.run !== board.run) this.choices = { ...CHOICES, ...remembered(board.run) };
    const theme = ["--st-text-color", "--st-background-color", "--st-primary-color"].map((name) => style.getPropertyValue(name)).join();
    const shape = JSON.stringify([board.run, board.chips, board.charts.map((chart) => [chart.name, chart.cell]), board.words]);
    const known = new Map((this.board?.charts ?? []).map((chart) => [chart.name, chart]));
    const charts = board.charts.map((chart) => {
      const old = known.get(chart.name);
      return old && old.revision === chart.revision ? old : unpacked(chart);
    });
    const changed = charts.filter((chart) => chart !== known.get(chart.name));
    this.board = { ...board, charts, root: this.root };
    this.style = style;
    if (shape !== this.shape) this.build();
    if (this.theme && theme !== this.theme) this.redraw(); // colours of two themes beside each other are hard to read
    else this.redraw(shape !== this.shape ? charts : changed);
    [this.shape, this.theme] = [shape, theme];
  }

  build() {
    const { words } = this.board;
    this.choices.hidden = this.choices.hidden.filter((key) => this.board.chips.some((chip) => chip.key === key));
    if (!this.board.chips.some((chip) => chip.key === this.choices.solo)) this.choices.solo = "";
    const names = [...new Set(this.board.charts.map((chart) => chart.cell))];
    for (const [name, cell] of this.cells) {
      if (names.includes(name)) continue;
      window.Plotly.purge(cell.plot);
      this.seen.unobserve(cell.node);
      this.cells.delete(name);
    }
    const cells = names.map((name) => this.headed(this.cells.get(name) ?? this.cell(name)));
    const grid = el("div", { className: "u-cells" }, ...cells.map((cell) => cell.node));
    this.root.replaceChildren(el("div", { className: "u-board" }, this.chipRow(), this.controls(), grid));
    this.root.firstChild.setAttribute("role", "group");
    this.root.firstChild.setAttribute("aria-label", words.charts);
    this.mark();
  }

  // -- chips

  chipRow() {
    const { chips, words } = this.board;
    this.chips = chips.map((chip) => this.chip(chip));
    this.all = el("button", { type: "button", className: "u-chip u-chip-all", textContent: words.all, onclick: () => this.choose({ solo: "", hidden: [] }) });
    return el("div", { className: "u-chips", role: "group", ariaLabel: words.shown }, ...this.chips, this.all);
  }

  // A field that leaves only the chips whose letter or name holds what was typed; Enter singles out the first.
  search() {
    const field = el("input", { type: "search", className: "u-chip-search", placeholder: this.board.words.search, ariaLabel: this.board.words.search });
    const found = () => this.chips.filter((chip) => chip.dataset.name.includes(field.value.trim().toLowerCase()));
    field.oninput = () => this.chips.forEach((chip) => (chip.hidden = !found().includes(chip)));
    field.addEventListener("keydown", (event) => event.key === "Enter" && found()[0] && this.choose({ solo: found()[0].dataset.key }));
    return field;
  }

  chip({ key, letter, name, colour, ink, dash }) {
    const paint = themed(colour, this.style);
    const badge = letter && el("span", { className: "u-sign", textContent: letter, style: `background:${paint};color:${ink}` });
    const picture = '<svg viewBox="0 0 24 8" aria-hidden="true"><line x1="0" y1="4" x2="24" y2="4" stroke-width="2.5"/></svg>';
    const sample = el("span", { innerHTML: picture }).firstChild;
    sample.firstChild.style.cssText = `stroke:${colour};stroke-dasharray:${DASHES[dash] ?? dash.replaceAll("px", "")}`;
    const label = el("span", { className: "u-chip-name", textContent: name });
    const node = el("button", { type: "button", className: "u-chip", title: `${name}. ${this.board.words.chipTip}` }, badge || null, " ", sample, label);
    Object.assign(node.dataset, { key, name: `${letter} ${name}`.toLowerCase() });
    node.onclick = (event) => (event.shiftKey || event.ctrlKey || event.metaKey ? this.hide(key) : this.single(key));
    node.addEventListener("keydown", (event) => event.key.toLowerCase() === "h" && this.hide(key));
    node.oncontextmenu = (event) => (event.preventDefault(), this.hide(key)); // a long press on a phone
    return node;
  }

  single(key) {
    this.choose({ solo: this.choices.solo === key ? "" : key, hidden: this.choices.hidden.filter((one) => one !== key) });
  }

  hide(key) {
    const { hidden, solo } = this.choices;
    const now = hidden.includes(key) ? hidden.filter((one) => one !== key) : [...hidden, key];
    this.choose({ hidden: now, solo: solo === key ? "" : solo });
  }

  // Chips and controls as the choices say.
  mark() {
    const { solo, hidden } = this.choices;
    for (const chip of this.chips) {
      const { key } = chip.dataset, out = hidden.includes(key);
      chip.setAttribute("aria-pressed", String(solo === key));
      chip.classList.toggle("u-out", out);
      chip.classList.toggle("u-pale", Boolean(solo) && solo !== key);
      if (out) chip.setAttribute("aria-label", `${chip.textContent.trim()}, ${this.board.words.hidden}`);
      else chip.removeAttribute("aria-label");
    }
    this.all.hidden = !solo && !hidden.length;
    this.reset.hidden = !Object.keys(this.zoom).length;
  }

  choose(changes) {
    Object.assign(this.choices, changes);
    remember(this.board.run, this.choices);
    this.mark();
    this.redraw();
  }

  // -- controls

  controls() {
    const { words, charts } = this.board, free = charts.some((chart) => chart.axis === "choice");
    const curves = charts.some((chart) => chart.format);
    // Arms that are compared were launched at different times, so the clock says nothing there.
    const axes = free ? ["epoch", "step", "seconds", "clock"] : curves ? ["seconds"] : ["seconds", "clock"];
    if (!axes.includes(this.choices.x)) this.choices.x = axes[0];
    const known = axes.filter((axis) => axis !== "clock" || this.board.launchMs !== null);
    const x = this.select(words.x, "x", known.map((axis) => [axis, words[AXES[axis].title]]));
    const scale = this.select(words.scale, "scale", [["auto", words.scaleAuto], ["linear", words.scaleLinear], ["log", words.scaleLog]]);
    this.automatic = scale.querySelector("option");
    const range = el("input", { type: "range", min: 0, max: 0.98, step: 0.02, value: this.choices.smooth });
    range.oninput = () => this.choose({ smooth: Number(range.value) });
    const smooth = el("label", { className: "u-control" }, words.smooth, range);
    const context = charts.some((chart) => chart.figure.data.some((trace) => trace.meta.context));
    this.reset = el("button", { type: "button", className: "u-chip u-zoomed", textContent: words.zoomed, onclick: () => this.resetZoom() });
    return el("div", { className: "u-controls" },
      this.chips.length > MOST_CHIPS && this.search(), known.length > 1 && x, curves && scale, curves && smooth,
      curves && this.check(words.clip, "clip", words.clipTip),
      context && this.check(words.context, "context", words.contextTip), this.reset);
  }

  select(label, choice, options) {
    const picked = el("select", {}, ...options.map(([value, text]) => el("option", { value, textContent: text })));
    picked.value = this.choices[choice];
    picked.onchange = () => {
      if (choice === "x") this.zoom = {};
      this.choose({ [choice]: picked.value });
    };
    return el("label", { className: "u-control" }, label, picked);
  }

  check(label, choice, tip) {
    const box = el("input", { type: "checkbox", checked: this.choices[choice] });
    box.onchange = () => this.choose({ [choice]: box.checked });
    return el("label", { className: "u-control", title: tip }, box, label);
  }

  // -- charts

  // A place for one chart, which stays as long as the board has a chart for it.
  cell(name) {
    const plot = el("div", { className: "u-chart", role: "group" }), cursor = el("div", { className: "u-cursor", hidden: true });
    const cell = { name, plot, cursor, cost: 0, drawnAt: 0, inView: this.whole };
    cell.head = el("div", { className: "u-chart-head" });
    cell.below = el("div", { className: "u-chart-key u-faint" });
    const frame = el("div", { className: "u-chart-frame" }, plot, cursor);
    cell.node = el("section", { className: "u-cell" }, cell.head, frame, cell.below);
    frame.onpointermove = (event) => this.point(cell, event);
    frame.onpointerleave = () => this.cells.forEach((one) => (one.cursor.hidden = true));
    this.cells.set(name, cell);
    this.seen.observe(cell.node);
    return cell;
  }

  // The cell with its title, or with a tab for each of its charts.
  headed(cell) {
    const charts = this.board.charts.filter((chart) => chart.cell === cell.name);
    cell.tabs = charts.map((chart) => el("button", {
      type: "button", className: "u-chart-tab", textContent: chart.title,
      onclick: () => this.choose({ tabs: { ...this.choices.tabs, [cell.name]: chart.name } }),
    }));
    cell.note = el("span", { className: "u-faint u-small" });
    cell.values = el("button", { type: "button", className: "u-button u-values-open", textContent: this.board.words.values });
    cell.values.onclick = () => {
      const chart = this.chartOf(cell), made = drawn(chart, this.board, this.choices, {}, cell.plot.clientWidth);
      openValues(this.board, chart, made.data, axisOf(chart, this.choices));
    };
    const title = el("h3", {}, ...(charts.length > 1 ? cell.tabs : [charts[0].title]));
    this.label(cell, this.chartOf(cell));
    cell.head.replaceChildren(title, cell.note, cell.values);
    cell.node.classList.toggle("u-wide", charts[0].wide);
    return cell;
  }

  label(cell, chart) {
    cell.values.setAttribute("aria-label", this.board.words.valuesOf.replace("{chart}", chart.title));
  }

  chartOf(cell) {
    const own = this.board.charts.filter((chart) => chart.cell === cell.name);
    return own.find((chart) => chart.name === this.choices.tabs[cell.name]) ?? own[0];
  }

  inView({ target, isIntersecting }) {
    const cell = [...this.cells.values()].find((one) => one.node === target);
    if (!cell) return;
    cell.inView = isIntersecting || this.whole;
    if (isIntersecting) this.pump();
  }

  // Without charts: all of them, at once, since a person asked for it.
  redraw(charts = null) {
    for (const cell of this.cells.values()) {
      if (!charts) cell.drawnAt = -Infinity;
      if (!charts || charts.includes(this.chartOf(cell))) this.queue.add(cell);
    }
    this.pump();
  }

  // Draws what waits, one chart a frame. New data draw no chart so often that it takes more than a share of the time.
  pump() {
    const due = (cell) => cell.drawnAt + SHARE_OF_TIME * cell.cost - performance.now();
    const waiting = document.hidden && !this.whole ? [] : [...this.queue].filter((cell) => cell.inView && cell.plot.isConnected);
    if (!waiting.length) return;
    const next = waiting.reduce((one, other) => (due(other) < due(one) ? other : one));
    clearTimeout(this.timer);
    this.timer = setTimeout(() => requestAnimationFrame(() => {
      if (this.queue.delete(next)) this.draw(next);
      this.pump();
    }), Math.max(0, due(next)));
  }

  draw(cell) {
    const chart = this.chartOf(cell), { words } = this.board, axis = axisOf(chart, this.choices), began = performance.now();
    const { data, layout, log } = drawn(chart, this.board, this.choices, this.zoomOf(chart), cell.plot.clientWidth);
    cell.plot.style.height = `${layout.height}px`;
    cell.plot.setAttribute("aria-label", chart.label);
    this.label(cell, chart);
    const automatic = this.choices.scale === "auto" && log ? words.isLog : "";
    cell.note.textContent = [plainText(chart.note), automatic].filter(Boolean).join(", ");
    if (chart.name.startsWith("loss") && this.automatic) this.automatic.textContent = log ? words.isLog : words.isLinear;
    cell.tabs.forEach((tab) => tab.setAttribute("aria-pressed", String(tab.textContent === chart.title)));
    cell.below.replaceChildren(...this.keyOf(chart));
    try {
      window.Plotly.react(cell.plot, data.map((trace) => themed(trace, this.style)), themed(layout, this.style), CONFIG);
    } catch (error) {
      cell.plot.textContent = words.broken.replace("{error}", error.message);
      return;
    }
    if (!cell.listens) {
      cell.listens = true;
      cell.plot.on("plotly_relayout", (change) => this.zoomed(cell, change));
      cell.plot.on("plotly_doubleclick", () => this.resetZoom());
    }
    cell.axis = axis;
    cell.cost = performance.now() - began;
    cell.drawnAt = performance.now();
  }

  keyOf(chart) {
    const items = chart.key.map(({ name, fill, pattern }) => {
      const swatch = el("span", { className: "u-swatch", textContent: pattern });
      swatch.style.background = fill;
      return el("span", {}, swatch, name);
    });
    if (chart.key.length) items.push(el("span", { textContent: this.board.words.shades }));
    return chart.below ? [...items, el("span", { textContent: chart.below })] : items;
  }

  // -- zoom and cursor

  // The part of a chart that is in sight: one range for all charts of an axis, another for each chart's own values.
  zoomOf(chart) {
    return { x: this.zoom[axisOf(chart, this.choices)], y: this.zoom[`${chart.name} ${this.choices.scale} ${this.choices.x}`] };
  }

  zoomed(cell, change) {
    const chart = this.chartOf(cell), axis = cell.axis, range = (name) => change[`${name}.range`] ?? [change[`${name}.range[0]`], change[`${name}.range[1]`]];
    const [x, y] = [range("xaxis"), range("yaxis")];
    if (y[0] !== undefined) this.zoom[`${chart.name} ${this.choices.scale} ${this.choices.x}`] = y;
    if (x[0] !== undefined) this.zoom[axis] = x;
    if (x[0] === undefined && y[0] === undefined) return; // another change of the layout, such as its size
    this.choices.zooms += 1;
    this.mark();
    this.redraw();
  }

  release() {
    this.queue.clear(); // a chart that were drawn after this would stay for good
    for (const cell of this.cells.values()) window.Plotly.purge(cell.plot);
    this.seen.disconnect();
    this.ends.abort();
    this.root.unifiednnBoard = null;
  }

  resetZoom() {
    this.zoom = {};
    this.choices.zooms += 1;
    this.mark();
    this.redraw();
  }

  // One cursor through all charts of the axis under the pointer.
  point(cell, event) {
    const axis = cell.axis, full = cell.plot._fullLayout;
    if (!full?.xaxis?.p2d) return;
    const at = event.clientX - cell.plot.getBoundingClientRect().left - full._size.l;
    const value = full.xaxis.p2d(at);
    for (const one of this.cells.values()) {
      const layout = one.plot._fullLayout, alike = one.axis === axis;
      const pixel = alike && layout?.xaxis?.d2p ? layout.xaxis.d2p(value) : -1;
      one.cursor.hidden = one === cell || pixel < 0 || pixel > (layout?._size.w ?? 0);
      if (!one.cursor.hidden) one.cursor.style.cssText = `left:${layout._size.l + pixel}px;top:${layout._size.t}px;height:${layout._size.h}px`;
    }
  }
}

window.unifiednnBoard = {
  show(root, board, style, options) {
    root.unifiednnBoard ??= new Board(root, options);
    root.unifiednnBoard.update(board, style);
  },
};
