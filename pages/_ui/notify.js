// Tells of the ends of one's own runs while a tab is open, if the person allowed it. Every word comes from the server.
// One loop for a window, however often the component is drawn; of several tabs one asks at a time.

const EVERY_MS = 5000;
const WANTED = "unifiednn-notify";
const CURSOR = "unifiednn-notify-cursor";
const state = (window.__unifiednnNotify ??= { data: null, timer: 0, buttons: new Set() });

const able = () => "Notification" in window && window.isSecureContext;
const wanted = () => localStorage.getItem(WANTED) === "on" && Notification.permission === "granted";
const filled = (text, item) => text.replace("{name}", () => item.name).replace("{submodel}", () => item.submodel ?? "");

function show(item) {
  const title = state.data.texts[item.event];
  if (!title) return;
  const options = { body: state.data.texts.body, tag: `${item.run_id} ${item.event}` };
  const shown = new Notification(filled(title, item), options);
  shown.onclick = () => {
    window.focus();
    window.location.assign(new URL(`run?run=${encodeURIComponent(item.run_id)}`, document.baseURI));
  };
}

async function ask() {
  const address = new URL(state.data.address, document.baseURI);
  const after = localStorage.getItem(CURSOR);
  if (after !== null) address.searchParams.set("after", after);
  const answer = await fetch(address, { headers: { Accept: "application/json" } });
  if (!answer.ok) return;
  const news = await answer.json();
  localStorage.setItem(CURSOR, String(news.cursor));
  news.items.forEach(show);
}

async function look() {
  if (!wanted()) return;
  try {
    if (navigator.locks) await navigator.locks.request(WANTED, { ifAvailable: true }, (lock) => (lock ? ask() : undefined));
    else await ask();
  } catch {
    // the server is away, or the browser takes no notification here: the next look tries again
  }
}

function draw(button) {
  const texts = state.data.texts;
  const blocked = Notification.permission === "denied";
  button.textContent = blocked ? texts.blocked : wanted() ? texts.on : texts.off;
  button.disabled = blocked;
  button.setAttribute("aria-pressed", String(wanted()));
}

const drawAll = () => state.buttons.forEach((one) => (one.isConnected ? draw(one) : state.buttons.delete(one)));

async function press() {
  if (wanted()) localStorage.setItem(WANTED, "off");
  else if ((await Notification.requestPermission()) === "granted") {
    localStorage.removeItem(CURSOR); // what ended while it was off is no news
    localStorage.setItem(WANTED, "on");
    look();
  }
  drawAll();
}

export default function ({ data, parentElement }) {
  state.data = data;
  let button = parentElement.querySelector(".u-notify");
  if (!able()) {
    button?.remove();
    return undefined;
  }
  if (!button) {
    button = document.createElement("button");
    button.type = "button";
    button.className = "u-notify";
    button.addEventListener("click", press);
    parentElement.append(button);
  }
  state.buttons.add(button);
  drawAll();
  if (!state.timer) {
    state.timer = setInterval(look, EVERY_MS);
    window.addEventListener("storage", drawAll); // switched in another tab
    look();
  }
  return undefined;
}
