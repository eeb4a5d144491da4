// Replaces "var(--name)" by the theme's value; numbers, packed arrays and texts stay as they are.
function themed(value, style) {
  if (typeof value === "string") {
    const variable = /^var\((--[\w-]+)\)$/.exec(value);
    return variable ? style.getPropertyValue(variable[1]).trim() : value;
  }
  if (value === null || typeof value !== "object" || ArrayBuffer.isView(value) || "bdata" in value) return value;
  if (Array.isArray(value)) return typeof value[0] === "object" ? value.map((inner) => themed(inner, style)) : value;
  return Object.fromEntries(Object.entries(value).map(([key, inner]) => [key, themed(inner, style)]));
}
