// The page's words. English is the key; the two Chinese tables are modules of their own, loaded when they are chosen.

const KEY = "sandbox.language";
export const LANGUAGES = { en: "English", "zh-CN": "简体中文", "zh-TW": "繁體中文" };
let table = {};
export let language = "en";

function preferred() {
  const kept = localStorage.getItem(KEY);
  if (kept in LANGUAGES) return kept;
  for (const one of navigator.languages ?? [navigator.language]) {
    if (/^zh-(tw|hk|mo|hant)/i.test(one)) return "zh-TW";
    if (/^zh/i.test(one)) return "zh-CN";
    if (/^en/i.test(one)) return "en";
  }
  return "en";
}

export async function load(chosen = preferred()) {
  language = chosen in LANGUAGES ? chosen : "en";
  table = language === "en" ? {} : (await import(`./${language}.js`)).default;
  document.documentElement.lang = language;
}

export function choose(chosen) {
  localStorage.setItem(KEY, chosen);
  return load(chosen);
}

/** A text of the page in the chosen language; `{name}` is replaced by the value of that name. */
export function t(english, values = {}) {
  return (table[english] ?? english).replace(/\{(\w+)\}/g, (whole, name) => (name in values ? String(values[name]) : whole));
}
