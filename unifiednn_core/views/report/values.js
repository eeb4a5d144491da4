// The values behind a chart as a table in a dialog, and as CSV.

const SHOWN_ROWS = 300;

// Rows of what is drawn: [curve, place, value], or [sub-model, from, to, words] of bars.
function rowsOf(data, axis) {
  const rows = [];
  for (const trace of data) {
    const name = plainText(trace.name ?? "");
    if (["raw", "hole"].includes(trace.meta.kind) || trace.yaxis === "y2" || trace.visible === false) continue;
    const count = trace.type === "bar" ? trace.x.length : trace.y.length;
    for (let place = 0; place < count; place++) {
      if (trace.type === "bar" && !trace.base) rows.push([plainText(trace.y[place]), axisTerms(axis).format(trace.x[place])]);
      else if (trace.type === "bar") {
        const from = trace.base[place];
        rows.push([name, axisTerms(axis).format(from), axisTerms(axis).format(from + trace.x[place]), plainText(trace.customdata[place])]);
      } else if (trace.x[place] !== null && !Number.isNaN(trace.x[place])) {
        rows.push([name, axisTerms(axis).format(trace.x[place]), Number.isFinite(trace.y[place]) ? Number(trace.y[place].toPrecision(5)) : "-"]);
      }
    }
  }
  return rows;
}

// Plotly's labels as plain text.
function plainText(label) {
  const text = new DOMParser().parseFromString(label.replace(/<br>/g, "; "), "text/html").documentElement.textContent;
  return text.replace(/\s+/g, " ").trim();
}

function csvOf(heads, rows) {
  const cell = (value) => (/[",\r\n]/.test(value) ? `"${String(value).replace(/"/g, '""')}"` : String(value));
  // A leading sign would make a spreadsheet read a name as a formula.
  const safe = (value) => (typeof value === "string" && /^[=+@\t\r-][^]/.test(value) ? `'${value}` : value);
  return [heads, ...rows].map((row) => row.map((value) => cell(safe(value))).join(",")).join("\n");
}

async function copy(text) {
  if (navigator.clipboard) return navigator.clipboard.writeText(text);
  const area = document.body.appendChild(el("textarea", { value: text })); // a page without TLS has no clipboard
  area.select();
  document.execCommand("copy");
  area.remove();
}

// Opens the dialog; it closes by its button, by Escape, and by a click beside it.
function openValues(board, chart, data, axis) {
  const words = board.words, rows = rowsOf(data, axis);
  const bars = data.some((trace) => trace.base), lengths = !bars && data.some((trace) => trace.type === "bar");
  const x = words[axis === "seconds" || axis === "clock" ? axis : axisTerms(axis).word];
  const heads = bars ? [words.curve, words.from, words.to, words.what] : lengths ? [words.curve, words.value] : [words.curve, x, words.value];
  const every = Math.max(1, Math.ceil(rows.length / SHOWN_ROWS));
  const shown = rows.filter((_, place) => place % every === 0);
  const title = words.valuesOf.replace("{chart}", chart.title);
  const thinned = every > 1 ? words.thinned.replace("{n}", every).replace("{all}", rows.length) : "";
  const copied = el("button", { className: "u-button", type: "button", textContent: words.copy });
  copied.onclick = () => copy(csvOf(heads, rows)).then(() => (copied.textContent = words.copied));
  const close = el("button", { className: "u-button", type: "button", textContent: words.close, onclick: () => dialog.close() });
  const table = el("table", { className: "u-table" },
    el("caption", { textContent: [chart.label, thinned].filter(Boolean).join(". ") }),
    el("thead", {}, el("tr", {}, ...heads.map((head) => el("th", { scope: "col", textContent: head })))),
    el("tbody", {}, ...shown.map((row) => el("tr", {}, ...row.map((value) => el("td", { textContent: value }))))));
  table.setAttribute("role", "table");
  const scroll = el("div", { className: "u-values-scroll", tabIndex: 0, role: "region", ariaLabel: title }, table);
  const dialog = el("dialog", { className: "u-values", ariaLabel: title },
    el("div", { className: "u-values-head" }, el("h3", { textContent: title }), copied, close), scroll);
  dialog.addEventListener("click", (event) => event.target === dialog && dialog.close());
  dialog.onclose = () => dialog.remove();
  board.root.appendChild(dialog);
  dialog.showModal();
}
