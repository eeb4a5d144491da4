// What the figures of a board become in the browser: over the chosen axis, smoothed, clipped, singled out. Pure.
// A trace says in `meta` what it is: `of` (key of its chip), `kind`, `steps` of an epoch, `s` seconds of each point.

const ARRAYS = { f4: Float32Array, f8: Float64Array, i1: Int8Array, u1: Uint8Array, i2: Int16Array, i4: Int32Array };
const FADED = 0.12, UNIFIED_LINES = 9, CLIPPED = [0.02, 0.98], LOG_FROM = 100, NARROW_PX = 440, NARROW_LEFT_PX = 58;

function decoded(values) {
  if (!values?.bdata) return values ?? [];
  const bytes = Uint8Array.from(atob(values.bdata), (letter) => letter.charCodeAt(0));
  return new ARRAYS[values.dtype](bytes.buffer);
}

// Once for each figure that arrives: its arrays as numbers.
function unpacked(chart) {
  for (const trace of chart.figure.data) {
    for (const name of ["x", "y", "base", "customdata"]) if (trace[name]) trace[name] = decoded(trace[name]);
    if (trace.marker?.opacity?.bdata) trace.marker.opacity = decoded(trace.marker.opacity);
    if (!trace.meta) trace.meta = {};
    for (const name of ["s", "context"]) if (trace.meta[name]) trace.meta[name] = decoded(trace.meta[name]);
  }
  return chart;
}

// The axis that a chart is drawn over; charts of one axis share their zoom and their cursor.
function axisOf(chart, choices) {
  if (chart.axis === "epochs") return "epoch";
  if (chart.axis === "seconds") return choices.x === "clock" ? "clock" : "seconds";
  return choices.x;
}

const AXES = {
  epoch: { title: "epochs", head: "epoch %{x:.1f}", word: "epoch", format: (value) => value.toFixed(2) },
  step: { title: "steps", head: "step %{x:,.0f}", word: "step", format: (value) => Math.round(value).toLocaleString("en") },
  seconds: { title: "seconds", head: "%{x:,.1f} s", word: "s", format: (value) => `${value.toFixed(1)} s` },
  clock: {
    title: "clock", head: "%{x|%H:%M:%S}", word: "",
    format: (value) => new Date(value).toISOString().slice(11, 19),
  },
  own: { head: "%{x:,.2f}", word: "value", format: (value) => value.toFixed(2) },
};

function axisTerms(axis) {
  return AXES[axis.split(" ")[0]];
}

function headOf(axis, words) {
  return axisTerms(axis).head.replace(/^(epoch|step)/, (word) => words[word]);
}

// Plotly shows dates as UTC: local time is UTC moved by the viewer's offset.
function toClock(board) {
  const launch = board.launchMs ?? 0;
  const zero = launch - new Date(launch).getTimezoneOffset() * 60_000;
  return (second) => zero + 1000 * second;
}

function moved(trace, axis, board) {
  if (trace.type === "bar") {
    if (axis !== "clock") return trace;
    return { ...trace, base: Array.from(trace.base, toClock(board)), x: Array.from(trace.x, (length) => 1000 * length) };
  }
  if (axis === "epoch") return trace;
  if (axis === "step") return { ...trace, x: trace.x.map((x) => x * trace.meta.steps) };
  const seconds = "steps" in trace.meta ? trace.meta.s : trace.x;
  if (!seconds) return null; // void steps have no time
  return { ...trace, x: axis === "clock" ? Array.from(seconds, toClock(board)) : seconds };
}

// Exponential moving average by distance on the axis, so that thinned curves are smoothed as the whole ones would be.
function smoothed(x, y, strength) {
  const weight = Math.min(Math.sqrt(strength), 0.999);
  const span = x[x.length - 1] - x[0] || 1;
  const result = new Float64Array(y.length);
  let last = 0, total = 0, before = x[0];
  for (let place = 0; place < y.length; place++) {
    if (!Number.isFinite(y[place])) {
      result[place] = y[place];
      continue;
    }
    const kept = total ? weight ** Math.max(1e-6, (300 * (x[place] - before)) / span) : 0;
    last = kept * last + (1 - kept) * y[place];
    total = kept * total + (1 - kept);
    result[place] = last / total;
    before = x[place];
  }
  return result;
}

// On a logarithmic scale the exponents are smoothed: else one outlier would lift the curve for long.
function smoothedCurve(trace, strength, log) {
  const values = log ? Array.from(trace.y, (value) => (value > 0 ? Math.log(value) : NaN)) : trace.y;
  const y = smoothed(trace.x, values, strength);
  return { ...trace, y: log ? y.map(Math.exp) : y };
}

function isFaded(trace, choices) {
  const { of, part } = trace.meta;
  return Boolean(choices.solo && of && of !== choices.solo && part !== choices.solo);
}

function isHidden(trace, choices) {
  const { of, part, use, kind } = trace.meta;
  if (choices.hidden.includes(of) || (part && choices.hidden.includes(part))) return true;
  return choices.context && (use === "context" || kind === "arm");
}

// Without a word for the pointer.
function silent({ hovertemplate, ...trace }) {
  return { ...trace, hoverinfo: "skip" };
}

function faded(trace) {
  if (trace.type === "bar") return { ...silent(trace), marker: { ...trace.marker, opacity: FADED } };
  if (!trace.fillcolor) return { ...silent(trace), opacity: FADED };
  const fillcolor = trace.fillcolor.replace(/[\d.]+\)$/, (alpha) => `${FADED * parseFloat(alpha)})`);
  return { ...silent(trace), fillcolor, line: { ...trace.line, color: fillcolor } };
}

function withoutContext(trace) {
  if (!trace.meta.context) return trace;
  return { ...trace, y: trace.y.map((value, place) => value - trace.meta.context[place]) };
}

// Sorted values of curves, those within a range of x.
function curveValues(data, range) {
  const [from, to] = (range ?? [-Infinity, Infinity]).map((edge) => (typeof edge === "string" ? Date.parse(`${edge.replace(" ", "T")}Z`) : edge));
  const values = [];
  for (const trace of data) {
    if (!["train", "test"].includes(trace.meta.kind)) continue;
    trace.y.forEach((y, place) => Number.isFinite(y) && trace.x[place] >= from && trace.x[place] <= to && values.push(y));
  }
  return values.sort((one, other) => one - other);
}

// Linear or log: as chosen, or log by itself where the values differ by more than a hundredfold.
function isLog(chart, values, choices) {
  if (!chart.log || !values.length || choices.scale === "linear") return false;
  return choices.scale === "log" || (values[0] > 0 && values[values.length - 1] > LOG_FROM * values[0]);
}

// Powers of ten in a range of logarithms, by default in that of all values. With two and more only they have labels.
function decades(range, values) {
  const [low, high] = range ?? [values.find((value) => value > 0), values[values.length - 1]].map(Math.log10);
  return Math.floor(high) - Math.ceil(low) + 1;
}

// The whole range by itself; that of the values in sight where something is zoomed, singled out or an outlier.
function yAxis(chart, layout, values, log, choices, zoom) {
  const axis = { ...layout.yaxis, uirevision: choices.zooms };
  if (log) Object.assign(axis, { type: "log", rangemode: "normal", exponentformat: "power", minor: { ticks: "" } });
  const clips = choices.clip && chart.name.startsWith("loss"), narrows = clips || choices.solo || zoom.x;
  if (zoom.y) axis.range = zoom.y;
  else if (chart.format && narrows && values.length > 1) {
    const [low, high] = (clips ? CLIPPED : [0, 1]).map((share) => values[Math.round(share * (values.length - 1))]);
    const scaled = log ? [low, high].map((value) => Math.log10(Math.max(value, 1e-12))) : [low, high];
    const room = 0.05 * (scaled[1] - scaled[0] || Math.abs(scaled[1]) || 1);
    axis.range = [scaled[0] - room, scaled[1] + room];
  }
  if (axis.range) axis.autorange = false;
  if (log && decades(axis.range, values) > 1) axis.dtick = 1;
  return axis;
}

function xAxis(chart, layout, axis, board, choices, zoom) {
  const shown = { ...layout.xaxis, type: axis === "clock" ? "date" : "linear", uirevision: `${axis} ${choices.zooms}` };
  const terms = axisTerms(axis);
  const title = (terms.title ? board.words[terms.title] : layout.xaxis.title.text) + (chart.format && chart.figure.data.some((t) => t.meta.kind === "test") ? ` (${board.words.thickThin})` : "");
  shown.title = { ...shown.title, text: title };
  shown.unifiedhovertitle = { text: headOf(axis, board.words) };
  if (zoom) shown.range = zoom;
  else if (shown.range && axis === "clock") shown.range = shown.range.map(toClock(board));
  shown.autorange = !shown.range;
  return shown;
}

// Data and layout for plotly, and whether the scale is logarithmic. `zoom` has the ranges x and y, as far as zoomed.
function drawn(chart, board, choices, zoom, width) {
  const axis = axisOf(chart, choices), layout = chart.figure.layout;
  const seen = chart.figure.data.filter((trace) => !isHidden(trace, choices));
  const placed = seen.map((trace) => moved(trace, axis, board)).filter(Boolean);
  const values = chart.format ? curveValues(placed.filter((trace) => !isFaded(trace, choices)), zoom.x) : [];
  const log = isLog(chart, values, choices);
  const data = [];
  for (const trace of placed) {
    const kind = trace.meta.kind, smooth = choices.smooth > 0 && ["train", "baseline"].includes(kind) && chart.name !== "rate";
    const raw = choices.context ? withoutContext(trace) : trace;
    const line = smooth ? smoothedCurve(raw, choices.smooth, log) : raw;
    if (smooth && kind === "train" && !isFaded(trace, choices)) {
      const pale = { uid: `${raw.uid}r`, opacity: 0.25, line: { ...raw.line, width: 1 }, meta: { ...raw.meta, kind: "raw" } };
      data.push({ ...silent(raw), ...pale });
    }
    data.push(isFaded(trace, choices) ? faded(line) : line);
  }
  const lines = data.filter((trace) => trace.hoverinfo !== "skip").length;
  const unified = layout.hovermode === "x unified" && lines <= (chart.format ? UNIFIED_LINES : 20);
  const labelled = unified ? data : data.map((trace) => (trace.meta.steps === undefined || trace.hoverinfo === "skip" ? trace : {
    ...trace, hovertemplate: `<b>%{fullData.name}</b><br>${headOf(axis, board.words)}: ${trace.hovertemplate}<extra></extra>`,
  }));
  const shown = {
    ...layout,
    dragmode: TOUCH ? false : layout.dragmode,
    hovermode: unified ? "x unified" : "closest",
    xaxis: xAxis(chart, layout, axis, board, choices, zoom.x),
    yaxis: yAxis(chart, layout, values, log, choices, zoom),
  };
  if (axis === "clock" && layout.shapes) {
    shown.shapes = layout.shapes.map((shape) => ({ ...shape, x0: toClock(board)(shape.x0), x1: toClock(board)(shape.x1) }));
  }
  if (width < NARROW_PX && chart.axis === "seconds" && !chart.format) {
    shown.margin = { ...layout.margin, l: NARROW_LEFT_PX };
    if (layout.yaxis.ticktext) shown.yaxis.ticktext = layout.yaxis.ticktext.map((label) => label.split(" ")[0]);
  }
  return { data: labelled, layout: shown, log };
}
