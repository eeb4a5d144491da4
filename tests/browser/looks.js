// What is wrong with how a page looks, found without an eye: overflow, overlaps, what is cut, small targets.
(phone) => {
  const found = new Set(), main = document.querySelector('[data-testid=stApp]') ?? document.body;
  const label = (node) => {
    const key = node.closest('[class*="st-key-"]');
    const named = key ? '.' + [...key.classList].find(one => one.startsWith('st-key-')) + ' ' : '';
    const words = (node.innerText || node.getAttribute('aria-label') || '').trim().replace(/\s+/g, ' ');
    return `${named}${node.localName}${node.className?.split ? '.' + node.className.split(' ')[0] : ''} "${words.slice(0, 50)}"`;
  };
  const shown = (node) => node.checkVisibility({visibilityProperty: true, opacityProperty: true});
  // Kept for screen readers alone, or drawn by a library.
  const apart = (node) => node.closest(
    '.u-unseen, svg, .js-plotly-plot, [data-testid=stHeader], [data-testid=stSidebarCollapsedControl], .u-offline,'
    + '[data-testid=stTooltipContent], [aria-hidden=true] .u-unseen, caption, .katex, [data-baseweb=select], [data-testid=stSelectbox] div, pre, canvas');
  // The part of a box that its ancestors let be seen.
  const seen = (box, node) => {
    let [left, top, right, bottom] = [box.left, box.top, box.right, box.bottom];
    for (let up = node; up && up !== document.body; up = up.parentElement) {
      const style = getComputedStyle(up);
      if (style.clipPath !== 'none' && up.clientWidth <= 2) return null;
      if (style.overflowX === 'visible' && style.overflowY === 'visible') continue;
      const edge = up.getBoundingClientRect();
      left = Math.max(left, edge.left); right = Math.min(right, edge.right);
      top = Math.max(top, edge.top); bottom = Math.min(bottom, edge.bottom);
    }
    return right - left > 1 && bottom - top > 1 ? {left, top, right, bottom} : null;
  };

  for (const box of document.querySelectorAll('[data-testid=stMain], [data-testid=stSidebarContent], [role=dialog]'))
    if (shown(box) && box.getBoundingClientRect().right > 1 && box.scrollWidth > box.clientWidth + 1) {
      const out = [...box.querySelectorAll('*')].filter(node => shown(node) && node.getBoundingClientRect().right > box.getBoundingClientRect().right + 1);
      found.add(`wider than the page: ${label(out.at(-1) ?? box)}`);
    }

  const top = document.querySelector('[role=dialog]') ?? main;
  const texts = [], walker = document.createTreeWalker(top, NodeFilter.SHOW_TEXT);
  for (let node; node = walker.nextNode();) {
    const of = node.parentElement;
    if (!node.textContent.trim() || !of || apart(of) || ['STYLE', 'SCRIPT', 'OPTION'].includes(of.tagName) || !shown(of)) continue;
    const range = document.createRange();
    range.selectNodeContents(node);
    for (const rect of range.getClientRects()) {
      const box = seen(rect, of);
      if (box) texts.push({...box, of});
    }
  }
  texts.sort((a, b) => a.top - b.top);
  const fixed = (node) => { for (let up = node; up; up = up.parentElement) if (['fixed', 'sticky'].includes(getComputedStyle(up).position)) return up; };
  for (let i = 0; i < texts.length; i++)
    for (let j = i + 1; j < texts.length && texts[j].top < texts[i].bottom - 3; j++) {
      const [a, b] = [texts[i], texts[j]];
      if (a.of === b.of || Math.min(a.right, b.right) - Math.max(a.left, b.left) <= 2) continue;
      if (Math.min(a.bottom, b.bottom) - Math.max(a.top, b.top) <= 5 || fixed(a.of) !== fixed(b.of)) continue;
      found.add(`text over text: ${label(a.of)} and ${label(b.of)}`);
    }

  for (const node of top.querySelectorAll('*')) {
    if (apart(node) || node.localName === 'tr' || !shown(node) || node.clientWidth <= 2 || !node.innerText?.trim()) continue;
    const style = getComputedStyle(node), told = node.closest('[title], [aria-label]:not([role=region]):not(section):not(table)') ?? node.querySelector(':scope > [title]');
    const wide = node.scrollWidth > node.clientWidth + 1 && ['hidden', 'clip'].includes(style.overflowX);
    if (wide && style.textOverflow !== 'ellipsis' && ![...node.children].some(child => seen(child.getBoundingClientRect(), child) === null))
      found.add(`cut: ${label(node)}`);
    else if (wide && style.textOverflow === 'ellipsis' && !told && !node.closest('button, [data-testid=stPageLink]')) found.add(`cut without a title: ${label(node)}`);
    if (style.webkitLineClamp !== 'none' && node.scrollHeight > node.clientHeight + 2 && !told) found.add(`lines cut without a title: ${label(node)}`);
  }

  if (phone) for (const node of top.querySelectorAll('a[href], button, input, select, textarea, summary, [role=button], [role=tab], [role=combobox]')) {
    if (apart(node) || node.closest('header, [data-testid=stSidebar], [aria-label^="Scroll tabs"]') || !shown(node) || node.disabled || node.closest('[data-testid=stTooltipIcon]') || node.type === 'hidden' || node.tabIndex < 0) continue;
    if (getComputedStyle(node).display === 'inline') continue;  // a link in a sentence
    const target = node.closest('label, .u-lines tr, [data-testid=stNumberInputContainer], [data-testid=stTextInputRootElement], [role=group][data-rac]') ?? node;
    const box = target.getBoundingClientRect();
    if (!seen(box, target) || box.width <= 2) continue;
    if (box.width < 43.5 || box.height < 43.5) found.add(`small target, ${Math.round(box.width)} by ${Math.round(box.height)}: ${label(node)}`);
  }
  return [...found];
}
