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

  const row = element("div", "u-up-row");
  const name = element("span", "u-clip u-up-name");
  const bar = element("span", "u-bar");
  bar.setAttribute("role", "progressbar");
  const fill = element("i", "");
  bar.append(fill);
  const figures = element("span", "u-small u-faint u-num");
  const [hold, cancel] = [element("button", "u-up-button"), element("button", "u-up-button", "Cancel")];
  hold.type = cancel.type = "button";
  row.append(name, figures, bar, hold, cancel);
  const note = element("div", "u-up-note");
  note.setAttribute("role", "status");
  root.append(zone, row, note);
  parent.append(root);
  return (root.parts = { root, zone, input, title, hint, row, name, bar, fill, figures, hold, cancel, note });
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

function show(parts, transfer) {
  const moving = transfer && !["refused", "dropped"].includes(transfer.state);
  parts.zone.hidden = Boolean(moving);
  parts.row.hidden = !moving;
  parts.note.replaceChildren();
  if (moving) {
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
  for (const finding of transfer?.findings ?? []) {
    const line = element("p", "u-up-refused");
    line.append(element("b", "", `${finding.title}: `), `${finding.message} ${finding.remedy}`);
    parts.note.append(line);
  }
}

export default function ({ data, parentElement, setTriggerValue }) {
  const parts = parentElement.querySelector(".u-up")?.parts ?? build(parentElement);
  const place = `${data.key}|${data.round}`;
  const address = new URL(data.address, document.baseURI).href;
  const attach = (transfer) => {
    transfer.changed = () => {
      show(parts, transfer);
      if (transfer.state !== "sent" || transfer.announced) return;
      transfer.announced = true; // once: an imported file is no upload any more
      transfer.forget();
      setTriggerValue("sent", transfer.id);
    };
    transfer.changed();
  };
  const begin = (file) => {
    if (!file || (transfers.get(place) && !transfers.get(place).over)) return;
    const transfer = new Transfer(file, address, data.kinds);
    transfers.set(place, transfer);
    attach(transfer);
    transfer.run();
  };

  parts.title.textContent = data.label;
  parts.hint.textContent = data.hint;
  parts.input.setAttribute("aria-label", data.label);
  parts.input.accept = data.suffixes.map((suffix) => `.${suffix}`).join(",");
  parts.input.onchange = () => {
    begin(parts.input.files[0]);
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
    begin(event.dataTransfer.files[0]);
  };
  parts.hold.onclick = () => {
    const transfer = transfers.get(place);
    transfer.state === "paused" ? transfer.resume() : transfer.pause();
  };
  parts.cancel.onclick = () => transfers.get(place)?.drop();

  const running = transfers.get(place);
  running ? attach(running) : show(parts, null);
}
