// What the page remembers: the conversation and settings in this browser, the key in this tab only.

const CONVERSATION = "lmdeploy.conversation", SETTINGS = "lmdeploy.settings", THEME = "lmdeploy.theme", KEY = "lmdeploy.key";

export const DEFAULTS = {model: "", system: "", temperature: 0.7, top_p: 0.95, max_tokens: ""};

function read(name, otherwise) {
  try {
    return JSON.parse(localStorage.getItem(name)) ?? otherwise;
  } catch {
    return otherwise;
  }
}

function write(storage, name, value) {
  try {
    storage.setItem(name, value);
  } catch { /* full, or forbidden: then it lasts as long as the page */ }
}

function isMessage(message) {
  return (message?.role === "user" || message?.role === "assistant") && typeof message.content === "string";
}

export function loadMessages() {
  const stored = read(CONVERSATION, []);
  return Array.isArray(stored) ? stored.filter(isMessage) : [];
}
export function saveMessages(messages) { write(localStorage, CONVERSATION, JSON.stringify(messages)); }

export function loadSettings() { return {...DEFAULTS, ...read(SETTINGS, {})}; }
export function saveSettings(settings) { write(localStorage, SETTINGS, JSON.stringify(settings)); }

export function loadTheme() { return read(THEME, "auto"); }
export function saveTheme(theme) { write(localStorage, THEME, JSON.stringify(theme)); }

export function loadKey() {
  try {
    return sessionStorage.getItem(KEY) ?? "";
  } catch {
    return "";
  }
}
export function saveKey(key) { write(sessionStorage, KEY, key); }
