// One plotly chart that is updated in place, so zoom, pan and hover survive every tick.
// Called again by Streamlit, on the same element, whenever the data or the theme changes. `themed` comes from theme.js.

function plotly() {
  window.__unifiednnPlotly ??= new Promise((resolve, reject) => {
    const script = document.createElement("script");
    script.src = new URL("assets/plotly.min.js", document.baseURI).href; // right behind a base path too
    script.onload = () => resolve(window.Plotly);
    script.onerror = () => {
      window.__unifiednnPlotly = undefined; // the next tick tries again
      script.remove();
      reject(new Error("plotly.min.js was not served"));
    };
    document.head.appendChild(script);
  });
  return window.__unifiednnPlotly;
}

function nodeIn(parent, height) {
  let node = parent.querySelector(".u-chart");
  if (!node) {
    node = document.createElement("div");
    node.className = "u-chart";
    node.setAttribute("role", "img");
    node.style.width = "100%";
    parent.appendChild(node);
  }
  node.style.height = `${height}px`; // before plotly is there, so that nothing jumps
  return node;
}

const CONFIG = {
  displaylogo: false,
  displayModeBar: "hover",
  modeBarButtons: [["resetScale2d"], ["toImage"]],
  doubleClick: "reset",
  responsive: true,
};

export default function ({ data, parentElement }) {
  const node = nodeIn(parentElement, data.figure.layout.height);
  node.setAttribute("aria-label", data.label);
  const style = getComputedStyle(parentElement);
  const theme = ["--st-text-color", "--st-background-color", "--st-primary-color", "--st-border-color"];
  const revision = [data.revision, ...theme.map((name) => style.getPropertyValue(name))].join("|");
  // Streamlit also calls this for a tick that a newer one overtook: then the picture must stay.
  const release = () => setTimeout(() => node.isConnected || window.Plotly?.purge(node));
  if (node.dataset.revision === revision) return release; // nothing moved: leave the picture alone
  node.dataset.revision = revision;
  plotly()
    .then((Plotly) => Plotly.react(node, data.figure.data.map((t) => themed(t, style)), themed(data.figure.layout, style), CONFIG))
    .catch((error) => {
      node.dataset.revision = "";
      node.textContent = `This chart cannot be drawn: ${error.message}.`;
    });
  return release;
}
