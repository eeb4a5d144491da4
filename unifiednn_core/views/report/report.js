// Draws the charts of the page, and again when the reader's theme changes.
(() => {
  const board = JSON.parse(document.getElementById("figures").textContent);
  const node = document.getElementById("board");
  const draw = () => unifiednnBoard.show(node, board, getComputedStyle(document.documentElement), { whole: true });
  draw();
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", draw);
})();
