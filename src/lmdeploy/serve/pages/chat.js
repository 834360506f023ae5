// The chat page: a conversation with this server's model.
import {ApiError, complete, models} from "./api.js";
import {show} from "./markdown.js";
import * as store from "./store.js";

const $ = (id) => document.getElementById(id);
const scroll = $("scroll"), log = $("log"), input = $("input");

const messages = store.loadMessages();  // {role, content, reasoning?, note?, error?}
const settings = store.loadSettings();
let running = null;      // {abort, index} of the answer that is being written
let isEditing = false;   // the last user message is in the box

// --- one message

function button(label, action, name = label) {
  const node = document.createElement("button");
  node.type = "button";
  node.textContent = label;
  node.setAttribute("aria-label", name);
  node.addEventListener("click", action);
  return node;
}

function part(className, text = "") {
  const node = document.createElement("div");
  node.className = className;
  node.textContent = text;
  return node;
}

const lastIndexOf = (role) => messages.findLastIndex((message) => message.role === role);

function foot(message, index) {
  const node = part("foot");
  if (message.content) node.append(button("Copy", (event) => copy(message.content, event.target), "Copy message"));
  if (message.role === "user" && index === lastIndexOf("user")) node.append(button("Edit", startEditing, "Edit message"));
  if (message.role === "assistant" && index === messages.length - 1)
    node.append(message.error ? button("Try again", regenerate) : button("Regenerate", regenerate, "Regenerate answer"));
  if (message.note) {
    const note = document.createElement("span");
    note.className = "note";
    note.textContent = message.note;
    node.append(note);
  }
  return node;
}

function reasoningNode(message) {
  const node = document.createElement("details");
  node.className = "reasoning";
  const summary = document.createElement("summary");
  summary.textContent = "Reasoning";
  node.append(summary, part("text"));
  show(node.lastChild, message.reasoning);
  return node;
}

/** Brings the nodes of a message up to its text. */
function update(node, message) {
  const text = node.querySelector(":scope > .text");
  if (message.role === "user") text.textContent = message.content; else show(text, message.content);
  const reasoning = node.querySelector(":scope > .reasoning");
  if (reasoning && message.reasoning) show(reasoning.lastChild, message.reasoning);
  else if (message.reasoning) text.before(reasoningNode(message));
  else reasoning?.remove();
}

function messageNode(message, index) {
  const node = document.createElement("article");
  node.className = `message ${message.role}`;
  node.setAttribute("aria-label", message.role === "user" ? "You" : "Answer");
  node.append(part("text"));
  update(node, message);
  if (message.error) node.append(part("error", message.error));
  if (running?.index === index) node.classList.add("running"); else node.append(foot(message, index));
  return node;
}

// --- the page

function render() {
  const isBusy = running !== null;
  log.replaceChildren(...messages.map(messageNode));
  log.setAttribute("aria-busy", String(isBusy));
  $("welcome").hidden = messages.length > 0;
  $("clear").disabled = messages.length === 0;
  $("send").hidden = isBusy;
  $("stop").hidden = !isBusy;
  for (const node of log.querySelectorAll(".foot button:not([aria-label='Copy message'])")) node.disabled = isBusy;
  $("editing").hidden = !isEditing;
}

function save() { store.saveMessages(messages); }

function say(text) { $("status").textContent = text; }

function isAtEnd() { return scroll.scrollHeight - scroll.scrollTop - scroll.clientHeight < 60; }

function toEnd() { scroll.scrollTop = scroll.scrollHeight; }

function fitInput() {
  input.style.height = "auto";
  input.style.height = `${input.scrollHeight}px`;
}

function setInput(text) {
  input.value = text;
  fitInput();
  input.focus();
}

async function copy(text, label) {
  try {
    await navigator.clipboard.writeText(text);
  } catch {  // pages over plain http have no clipboard but for the old way
    const box = document.createElement("textarea");
    box.className = "unseen";
    box.value = text;
    document.body.append(box);
    box.select();
    document.execCommand("copy");
    box.remove();
    label.focus();
  }
  label.textContent = "Copied";
  say("Copied");
  setTimeout(() => { label.textContent = "Copy"; }, 1500);
}

// --- the banner: what keeps the page from working

function showBanner(text, {action, label = "Try again", isWaiting = false} = {}) {
  const banner = $("banner");
  banner.hidden = false;
  banner.classList.toggle("waiting", isWaiting);
  banner.querySelector("p").textContent = text;
  const old = banner.querySelector("button");
  const node = button(label, action ?? (() => {}));
  node.hidden = !action;
  old.replaceWith(node);
}

function hideBanner() { $("banner").hidden = true; }

function askForKey() {
  showBanner("This server wants an API key.", {action: () => openSettings("key"), label: "Enter key"});
}

// --- models

let modelTimer = 0;

function showModels(names) {
  const chosen = names.includes(settings.model) ? settings.model : names[0];
  $("model").replaceChildren(...names.map((name) => new Option(name, name, false, name === chosen)));
  settings.model = chosen ?? "";
  $("welcome-model").textContent = chosen ? chosen.split("/").at(-1) : "the model";
}

/** Asks until the server answers. */
async function loadModels() {
  clearTimeout(modelTimer);
  try {
    showModels(await models(store.loadKey()));
    hideBanner();
  } catch (error) {
    if (!(error instanceof ApiError)) throw error;
    if (error.status === 401) return askForKey();
    const isLoading = error.status === 503;
    showBanner(isLoading ? "The model is loading…" : error.message, {action: loadModels, isWaiting: isLoading});
    modelTimer = setTimeout(loadModels, error.retryAfter * 1000);
  }
}

// --- answers

function requestBody(upTo) {
  const sent = messages.slice(0, upTo).filter((message) => message.content).map(({role, content}) => ({role, content}));
  if (settings.system.trim()) sent.unshift({role: "system", content: settings.system});
  const body = {model: settings.model, messages: sent, temperature: settings.temperature, top_p: settings.top_p};
  if (settings.max_tokens) body.max_tokens = Number(settings.max_tokens);
  return body;
}

function pause(seconds, signal) {
  return new Promise((resolve, reject) => {
    const timer = setTimeout(resolve, seconds * 1000);
    signal.addEventListener("abort", () => { clearTimeout(timer); reject(signal.reason); }, {once: true});
  });
}

/** complete(), begun again for as long as the server says that it will be ready later. */
async function* completeWhenReady(body, signal) {
  for (;;) {
    try {
      yield* complete(body, store.loadKey(), signal);
      return;
    } catch (error) {
      if (error.status !== 503) throw error;
      showBanner(`${error.message} Trying again in ${error.retryAfter} s.`, {isWaiting: true});
      await pause(error.retryAfter, signal);
      hideBanner();
    }
  }
}

/** Shows a growing message once a frame at most. */
function painter(node, message) {
  let isPlanned = false;
  return () => {
    if (isPlanned) return;
    isPlanned = true;
    requestAnimationFrame(() => {
      isPlanned = false;
      if (!node.isConnected) return;
      const follow = isAtEnd();
      update(node, message);
      if (follow) toEnd();
    });
  };
}

function rate(usage, seconds) {
  const tokens = usage.completion_tokens;
  const speed = seconds > 0.05 && tokens > 1 ? `, ${((tokens - 1) / seconds).toFixed(1)}/s` : "";
  return `${tokens} ${tokens === 1 ? "token" : "tokens"}${speed}`;
}

async function receive(message, abort, paint) {
  const notes = [];
  let firstAt = 0, lastSaved = performance.now();
  for await (const piece of completeWhenReady(requestBody(messages.length - 1), abort.signal)) {
    const now = performance.now();
    firstAt ||= now;
    if (piece.content) message.content += piece.content;
    if (piece.reasoning) message.reasoning = (message.reasoning ?? "") + piece.reasoning;
    if (piece.usage) notes.unshift(rate(piece.usage, (now - firstAt) / 1000));
    if (piece.finish === "length") notes.push("cut off at the token limit");
    message.note = notes.join(", ");
    paint();
    if (now - lastSaved > 1000) {
      lastSaved = now;
      save();
    }
  }
}

function describeFailure(message, error, abort) {
  if (abort.signal.aborted) {
    message.note = "stopped";
    say("Stopped");
  } else if (error.status === 401) {
    message.error = "The server did not accept the API key.";
    askForKey();
  } else if (error instanceof ApiError) {
    message.error = error.message;
    if (error.status === 0) loadModels();  // its banner goes when the server is back
  } else {
    throw error;
  }
}

/** Lets the model answer what is there. */
async function answer() {
  const message = {role: "assistant", content: ""};
  messages.push(message);
  const abort = new AbortController();
  running = {abort, index: messages.length - 1};
  save();
  render();
  toEnd();
  say("Answering");
  try {
    await receive(message, abort, painter(log.lastElementChild, message));
    say("Answer complete");
  } catch (error) {
    describeFailure(message, error, abort);
  } finally {
    running = null;
    if ($("banner").classList.contains("waiting")) hideBanner();
    finish(message);
  }
}

function finish(message) {
  const hadFocus = document.activeElement === $("stop");
  const follow = isAtEnd();
  if (messages.includes(message)) save();
  render();
  if (follow) toEnd();
  if (hadFocus) input.focus();
}

function stop() { running?.abort.abort(new DOMException("stopped", "AbortError")); }

function regenerate() {
  if (running || messages.at(-1)?.role !== "assistant") return;
  messages.pop();
  input.focus();
  answer();
}

function startEditing() {
  const index = lastIndexOf("user");
  if (running || index < 0) return;
  isEditing = true;
  setInput(messages[index].content);
  render();
}

function stopEditing() {
  isEditing = false;
  setInput("");
  render();
}

function send(event) {
  event?.preventDefault();
  const text = input.value.trim();
  if (running || !text) return;
  if (isEditing) messages.length = lastIndexOf("user");
  isEditing = false;
  messages.push({role: "user", content: text});
  setInput("");
  if ($("banner").classList.contains("waiting")) hideBanner();  // what was forgotten is so for good
  answer();
}

function replaceConversation(others) {
  stop();
  messages.splice(0, messages.length, ...others);
  isEditing = false;
  save();
  render();
  input.focus();
}

function clear() {
  const old = [...messages];
  replaceConversation([]);
  const undo = () => { replaceConversation(old); hideBanner(); };
  showBanner("The conversation is forgotten.", {action: undo, label: "Undo", isWaiting: true});
}

// --- settings

const FIELDS = ["system", "temperature", "top_p", "max_tokens"];

function showSettings() {
  for (const name of FIELDS) $(name).value = settings[name];
  for (const name of ["temperature", "top_p"]) $(`${name}-shown`).textContent = Number(settings[name]).toFixed(2);
}

function openSettings(focused) {
  $("key").value = store.loadKey();
  showSettings();
  $("settings").showModal();
  if (focused) $(focused).focus();
}

function takeSettings() {
  for (const name of FIELDS) if ($(name).checkValidity()) settings[name] = $(name).type === "range" ? Number($(name).value) : $(name).value;
  store.saveSettings(settings);
  showSettings();
}

function closeSettings() {
  const key = $("key").value.trim();
  if (key !== store.loadKey()) {
    store.saveKey(key);
    loadModels();
  }
  input.focus();
}

// --- colours

const THEMES = ["auto", "light", "dark"];

function showTheme(theme) {
  const known = THEMES.includes(theme) ? theme : "auto";
  document.documentElement.dataset.theme = known;
  $("theme").textContent = {auto: "\u25d0 Auto", light: "\u2600 Light", dark: "\u263e Dark"}[known];
  $("theme").setAttribute("aria-label", `Colours: ${known}`);
  $("theme").title = "Colours: as the system has them, light, dark";
}

function nextTheme() {
  const theme = THEMES[(THEMES.indexOf(document.documentElement.dataset.theme) + 1) % THEMES.length];
  store.saveTheme(theme);
  showTheme(theme);
}

// --- keys and events

function onInputKey(event) {
  if (event.isComposing) return;
  if (event.key === "Enter" && !event.shiftKey) send(event);
  if (event.key === "ArrowUp" && input.value === "" && !isEditing && !running) {
    event.preventDefault();
    startEditing();
  }
}

function onKey(event) {
  if (event.key !== "Escape" || $("settings").open) return;
  if (running) stop();
  else if (isEditing) stopEditing();
}

$("composer").addEventListener("submit", send);
input.addEventListener("keydown", onInputKey);
input.addEventListener("input", fitInput);
document.addEventListener("keydown", onKey);
$("stop").addEventListener("click", stop);
$("clear").addEventListener("click", clear);
$("cancel-edit").addEventListener("click", stopEditing);
$("open-settings").addEventListener("click", () => openSettings());
$("settings").addEventListener("input", takeSettings);
$("settings").addEventListener("close", closeSettings);
$("defaults").addEventListener("click", () => {
  for (const name of FIELDS) settings[name] = store.DEFAULTS[name];
  store.saveSettings(settings);
  showSettings();
});
$("theme").addEventListener("click", nextTheme);
$("model").addEventListener("change", (event) => {
  settings.model = event.target.value;
  store.saveSettings(settings);
});
$("to-end").addEventListener("click", toEnd);
scroll.addEventListener("scroll", () => { $("to-end").hidden = isAtEnd(); });
log.addEventListener("click", (event) => {
  if (event.target.dataset.copy === "code") copy(event.target.closest(".code").querySelector("pre").textContent, event.target);
});

showTheme(store.loadTheme());
render();
toEnd();
loadModels();
