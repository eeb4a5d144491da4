// A table of rows with links, ticks and sorting, updated in place. Its HTML is made and escaped on the server.
// Called again by Streamlit, on the same element, whenever the data change.

function nodeIn(parent) {
  let node = parent.querySelector(".u-rows");
  if (!node) {
    node = document.createElement("div");
    node.className = "u-rows";
    parent.appendChild(node);
  }
  return node;
}

/** Replaces only what differs: a press that lasts from one tick to the next would miss a row that was drawn anew. */
function update(node, html) {
  const made = document.createElement("div");
  made.innerHTML = html;
  const [old, fresh] = [[...node.querySelectorAll("tr")], [...made.querySelectorAll("tr")]];
  const alike = old.length === fresh.length && fresh.every((row, at) => row.cells.length === old[at].cells.length);
  if (!old.length || !alike) {
    node.innerHTML = html;
    return;
  }
  node.querySelector("caption").textContent = made.querySelector("caption").textContent;
  for (const [at, row] of fresh.entries()) {
    for (const [place, cell] of [...row.cells].entries()) {
      const known = old[at].cells[place];
      if (known.outerHTML !== cell.outerHTML) known.replaceWith(cell);
    }
  }
}

function show(node, state) {
  const boxes = [...node.querySelectorAll("input[data-tick]")];
  for (const box of boxes) {
    box.checked = state.ticked.has(box.dataset.tick);
    box.closest("tr").classList.toggle("u-ticked", box.checked);
  }
  const all = node.querySelector("input[data-all]");
  if (!all) return;
  const count = boxes.filter((box) => box.checked).length;
  all.checked = count > 0 && count === boxes.length;
  all.indeterminate = count > 0 && count < boxes.length;
}

export default function ({ data, parentElement, setStateValue, setTriggerValue }) {
  const node = nodeIn(parentElement);
  const state = (node.unifiednn ??= { ticked: new Set(), round: data.round });
  if (state.round !== data.round) {
    state.round = data.round; // the page has used the ticks
    if (state.ticked.size) {
      state.ticked.clear();
      setStateValue("ticked", []);
    }
  }
  if (state.revision !== data.revision) {
    const focused = node.contains(document.activeElement) ? document.activeElement.dataset.focus : undefined;
    update(node, data.html);
    state.revision = data.revision;
    if (focused) node.querySelector(`[data-focus="${CSS.escape(focused)}"]`)?.focus();
  }
  show(node, state);

  node.onchange = (event) => {
    const box = event.target.closest("input[type=checkbox]");
    if (!box) return;
    const meant = "all" in box.dataset ? [...node.querySelectorAll("input[data-tick]")] : [box];
    for (const one of meant) state.ticked[box.checked ? "add" : "delete"](one.dataset.tick);
    show(node, state);
    setStateValue("ticked", [...state.ticked]);
  };
  node.onclick = (event) => {
    const sort = event.target.closest("button[data-sort]");
    if (sort) return setTriggerValue("sorted", sort.dataset.sort);
    const link = event.target.closest("a[data-open]");
    // A plain click stays in this session; a new tab or window is the browser's.
    if (!link || event.button || event.ctrlKey || event.metaKey || event.shiftKey || event.altKey) return;
    event.preventDefault();
    setTriggerValue("opened", link.dataset.open);
  };
}
