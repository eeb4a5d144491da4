// Draws the figures of the page, and again when the reader's theme changes.
(() => {
  const figures = JSON.parse(document.getElementById("figures").textContent);
  const config = { displaylogo: false, responsive: true, modeBarButtons: [["resetScale2d"], ["toImage"]] };
  function draw() {
    const style = getComputedStyle(document.documentElement);
    for (const node of document.querySelectorAll("[data-figure]")) {
      const { data, layout } = figures[node.dataset.figure];
      node.style.height = `${layout.height}px`;
      Plotly.react(node, data.map((trace) => themed(trace, style)), themed(layout, style), config);
    }
  }
  draw();
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", draw);
})();
