// A place to drop a file on, with the progress of its upload. `Transfer` comes from transfer.js.
// All words come from the server or the file's own name and become text, never markup.

const transfers = (window.__unifiednnTransfers ??= new Map()); // outlives a popover that is closed meanwhile

function element(tag, className, text) {
  const made = document.createElement(tag);
  made.className = className;
  if (text) made.textContent = text;
  return made;
}

function build(parent) {
  const root = element("div", "u-up");
  const zone = element("label", "u-up-zone");
  const input = element("input", "u-unseen");
  input.type = "file";
  const symbol = element("span", "u-icon", "upload_file");
  symbol.setAttribute("aria-hidden", "true");
  const words = element("span", "u-up-words");
  const [title, hint] = [element("b", ""), element("span", "u-small u-faint")];
  words.append(title, hint);
  zone.append(input, symbol, words);
  const list = element("div", "u-up-list");
  root.append(zone, list);
  parent.append(root);
  return (root.parts = { root, zone, input, title, hint, list, rows: new Map() });
}

function buildRow(list, transfer) {
  const box = element("div", "");
  const row = element("div", "u-up-row");
  const name = element("span", "u-clip u-up-name");
  const bar = element("span", "u-bar");
  bar.setAttribute("role", "progressbar");
  const fill = element("i", "");
  bar.append(fill);
  const figures = element("span", "u-small u-faint u-num");
  const [hold, cancel] = [element("button", "u-up-button"), element("button", "u-up-button", "Cancel")];
  hold.type = cancel.type = "button";
  hold.onclick = () => (transfer.state === "paused" ? transfer.resume() : transfer.pause());
  cancel.onclick = () => transfer.drop();
  row.append(name, figures, bar, hold, cancel);
  const note = element("div", "u-up-note");
  note.setAttribute("role", "status");
  box.append(row, note);
  list.append(box);
  return { box, row, name, bar, fill, figures, hold, cancel, note };
}

const mebibytes = (bytes) => (bytes / 1024 ** 2).toLocaleString("en", { maximumFractionDigits: bytes < 1e7 ? 1 : 0 });
const kibibytes = (bytes) => Math.ceil(bytes / 1024);

function rest(transfer) {
  const seconds = Math.ceil((transfer.file.size - transfer.sent) / transfer.speed);
  return seconds < 90 ? `${seconds} s left` : `${Math.ceil(seconds / 60)} min left`;
}

function figuresOf(transfer) {
  const { sent, file } = transfer;
  const parts = [file.size < 1024 ** 2 ? `${kibibytes(sent)} of ${kibibytes(file.size)} KiB` : `${mebibytes(sent)} of ${mebibytes(file.size)} MiB`];
  if (transfer.state === "sending" && transfer.speed > 0) parts.push(`${mebibytes(transfer.speed)} MiB/s`, rest(transfer));
  return parts.join(" · ");
}

const SENTENCES = {
  starting: "Looking at the file…",
  waiting: "The connection broke. The upload continues by itself when the server answers.",
  paused: "Paused.",
  sent: "Sent. The server reads the file now…",
};

const failed = (transfer) => ["refused", "dropped"].includes(transfer.state);

function showRow(parts, transfer) {
  parts.row.hidden = failed(transfer);
  parts.note.replaceChildren();
  if (!parts.row.hidden) {
    const percent = (100 * transfer.sent) / Math.max(1, transfer.file.size);
    parts.name.textContent = parts.name.title = transfer.file.name;
    parts.figures.textContent = figuresOf(transfer);
    parts.fill.style.width = `${percent}%`;
    parts.bar.setAttribute("aria-label", `Upload of ${transfer.file.name}`);
    parts.bar.setAttribute("aria-valuenow", Math.floor(percent));
    parts.hold.textContent = transfer.state === "paused" ? "Resume" : "Pause";
    parts.hold.hidden = parts.cancel.hidden = transfer.state === "sent";
    parts.note.textContent = SENTENCES[transfer.state] ?? "";
  }
  for (const finding of transfer.findings ?? []) {
    const line = element("p", "u-up-refused");
    line.append(element("b", "", `${finding.title}: `), `${finding.message} ${finding.remedy}`);
    parts.note.append(line);
  }
}

/** Shows the files of a place; a sent one of several is told by the server from then on. */
function show(parts, listed, several) {
  const shown = listed.filter((transfer) => !(several && ["sent", "dropped"].includes(transfer.state)));
  parts.zone.hidden = !several && shown.some((transfer) => !failed(transfer));
  for (const [transfer, row] of parts.rows) {
    if (shown.includes(transfer)) continue;
    row.box.remove();
    parts.rows.delete(transfer);
  }
  for (const transfer of shown) {
    if (!parts.rows.has(transfer)) parts.rows.set(transfer, buildRow(parts.list, transfer));
    showRow(parts.rows.get(transfer), transfer);
  }
}

export default function ({ data, parentElement, setTriggerValue, setStateValue }) {
  const built = parentElement.querySelector(".u-up")?.parts;
  const parts = built ?? build(parentElement);
  // A popover stands at the end of the page: without this, Tab would come to it last
  if (!built && parentElement.closest("[data-testid=stPopoverBody]") && document.activeElement?.ariaExpanded === "true") parts.input.focus();
  const place = `${data.key}|${data.round}`;
  const address = new URL(data.address, document.baseURI).href;
  const listed = transfers.get(place) ?? [];
  transfers.set(place, listed);
  const tellAll = () => {
    const sent = listed.filter((transfer) => transfer.state === "sent").map((transfer) => transfer.id);
    setStateValue("batch", { sent, open: listed.filter((transfer) => !transfer.over).length });
  };
  const attach = (transfer) => {
    transfer.changed = () => {
      show(parts, listed, data.several);
      if (!transfer.over || transfer.announced) return;
      transfer.announced = true; // once: an imported file is no upload any more
      if (transfer.state === "sent") transfer.forget();
      if (data.several) tellAll();
      else if (transfer.state === "sent") setTriggerValue("sent", transfer.id);
    };
    transfer.changed();
  };
  const begin = (files) => {
    if (!data.several && listed.some((transfer) => !transfer.over)) return;
    const begun = [...files].slice(0, data.several ? undefined : 1).map((file) => new Transfer(file, address, data.kinds));
    if (!data.several) listed.length = 0;
    listed.push(...begun);
    begun.forEach(attach);
    begun.forEach((transfer) => transfer.run());
  };

  parts.title.textContent = data.label;
  parts.hint.textContent = data.hint;
  parts.input.setAttribute("aria-label", data.label);
  parts.input.multiple = Boolean(data.several);
  parts.input.accept = data.suffixes.map((suffix) => `.${suffix}`).join(",");
  parts.input.onchange = () => {
    begin(parts.input.files);
    parts.input.value = ""; // so that the same file can be chosen again
  };
  parts.zone.ondragover = (event) => {
    event.preventDefault();
    parts.zone.classList.add("u-over");
  };
  parts.zone.ondragleave = () => parts.zone.classList.remove("u-over");
  parts.zone.ondrop = (event) => {
    event.preventDefault();
    parts.zone.classList.remove("u-over");
    begin(event.dataTransfer.files);
  };
  listed.forEach(attach);
  show(parts, listed, data.several);
}
