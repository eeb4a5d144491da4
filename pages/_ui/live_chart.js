// Loads the scripts of the charts once and hands them each new board. Called again by Streamlit, on the same element,
// whenever the data or the theme changes; Streamlit sends this text with every tick, so it is short.

const loaded = (window.__unifiednnLoaded ??= {});

function load(path) {
  loaded[path] ??= new Promise((resolve, reject) => {
    const script = document.createElement("script");
    script.src = new URL(path, document.baseURI).href; // right behind a base path too
    script.onload = resolve;
    script.onerror = () => {
      delete loaded[path]; // the next tick tries again
      script.remove();
      reject(new Error(`${path} was not served`));
    };
    document.head.appendChild(script);
  });
  return loaded[path];
}

async function inflated(bytes) {
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("deflate"));
  return JSON.parse(await new Response(stream).text());
}

export default function ({ data, parentElement }) {
  let node = parentElement.querySelector(".u-board-root");
  if (!node) {
    node = document.createElement("div");
    node.className = "u-board-root";
    parentElement.appendChild(node);
  }
  const turn = (node.turn = (node.turn ?? 0) + 1);
  const release = () => setTimeout(() => node.isConnected || node.unifiednnBoard?.release());
  Promise.all([inflated(data), load("assets/plotly.min.js"), load("SCRIPTS")])
    // Nobody would release a board that is made after its place has gone.
    .then(([board]) => turn === node.turn && node.isConnected && window.unifiednnBoard.show(node, board, getComputedStyle(parentElement)))
    .catch((error) => (node.textContent ||= `The charts cannot be drawn: ${error.message}.`));
  return release;
}
