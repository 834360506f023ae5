// Markdown as models write it, to DOM nodes. Text goes into text nodes only: nothing in it can become markup.

const MAX_DEPTH = 8;  // of quotes, lists and emphasis inside each other; deeper ones stay as they are written

const FENCE = /^ {0,3}(`{3,}|~{3,})([^`]*)$/;
const HEADING = /^ {0,3}(#{1,6})\s+(.*)$/;
const RULE = /^ {0,3}([-*_])[ \t]*(?:\1[ \t]*){2,}$/;
const ITEM = /^( *)([-*+]|\d{1,9}[.)])(?: +(.*)|$)/;
const QUOTE = /^ {0,3}> ?/;
const TABLE_RULE = /^ *\|?(?: *:?-+:? *\|)+(?: *:?-+:? *)?$/;

function element(name, children = []) {
  const node = document.createElement(name);
  node.append(...children);
  return node;
}

// --- inline: code, emphasis, links

/**
 * [start of the rest, node] of what begins at `at`, or null when it is plain text.
 * unclosed: marks that have no end in the rest of the text, so that none is looked for twice.
 */
function span(text, at, depth, unclosed) {
  const mark = text[at];
  if (mark === "`") {
    const ticks = /^`+/.exec(text.slice(at, at + 64))[0];
    const end = unclosed.has(ticks) ? -1 : text.indexOf(ticks, at + ticks.length);
    if (end < 0) { unclosed.add(ticks); return null; }
    return [end + ticks.length, element("code", [text.slice(at + ticks.length, end).trim()])];
  }
  if (mark === "[") return link(text, at, depth);
  return emphasis(text, at, depth, unclosed);
}

function link(text, at, depth) {
  const found = /^\[([^[\]\n]{1,500})\]\((https?:\/\/[^\s()<>]{1,2000}|mailto:[^\s()<>]{1,500})\)/.exec(text.slice(at, at + 2600));
  if (!found) return null;
  const node = element("a", inline(found[1], depth + 1));
  node.href = found[2];
  node.target = "_blank";
  node.rel = "noopener noreferrer";
  return [at + found[0].length, node];
}

const EMPHASIS = [["**", "strong"], ["__", "strong"], ["~~", "del"], ["*", "em"], ["_", "em"]];

function emphasis(text, at, depth, unclosed) {
  for (const [mark, name] of EMPHASIS) {
    if (!text.startsWith(mark, at)) continue;
    const start = at + mark.length;
    if (unclosed.has(mark) || /\s/.test(text[start] ?? " ")) return null;
    const end = closing(text, mark, start);
    if (end < 0) { unclosed.add(mark); return null; }
    const inWord = mark[0] === "_" && (/\w/.test(text[at - 1] ?? "") || /\w/.test(text[end + mark.length] ?? ""));
    if (inWord) return null;
    return [end + mark.length, element(name, inline(text.slice(start, end), depth + 1))];
  }
  return null;
}

/** Where `mark` ends what starts at `start`: not after a blank, not empty. */
function closing(text, mark, start) {
  for (let end = text.indexOf(mark, start + 1); end >= 0; end = text.indexOf(mark, end + 1)) {
    if (/\s/.test(text[end - 1])) continue;
    if (mark.length === 1 && text[end + 1] === mark) { end += 1; continue; }  // the "**" inside "*a **b** c*"
    while (mark.length === 2 && text[end + 2] === mark[0]) end += 1;  // "***a***"
    return end;
  }
  return -1;
}

function inline(text, depth = 0) {
  if (depth >= MAX_DEPTH) return [text];
  const nodes = [];
  const unclosed = new Set();
  let plain = "";
  for (let at = 0; at < text.length;) {
    if (text[at] === "\\" && /[!-/:-@[-`{-~]/.test(text[at + 1] ?? "")) {
      plain += text[at + 1];
      at += 2;
      continue;
    }
    const found = "`[*_~".includes(text[at]) ? span(text, at, depth, unclosed) : null;
    if (!found) {
      plain += text[at];
      at += 1;
      continue;
    }
    if (plain) nodes.push(plain);
    plain = "";
    nodes.push(found[1]);
    at = found[0];
  }
  if (plain) nodes.push(plain);
  return nodes;
}

// --- blocks: {source, make}, so that a block whose source has not changed keeps its nodes

function codeBlock(language, code) {
  const copy = element("button", ["Copy"]);
  copy.type = "button";
  copy.dataset.copy = "code";
  copy.setAttribute("aria-label", "Copy code");
  const head = element("div", [element("span", [language || "text"]), copy]);
  const pre = element("pre", [element("code", [code])]);
  pre.tabIndex = 0;  // wide code is scrolled by keyboard too
  const node = element("div", [head, pre]);
  node.className = "code";
  return node;
}

function takeFence(lines, at) {
  const [, fence, about] = FENCE.exec(lines[at]);
  const language = about.trim().split(/\s/)[0];
  const close = new RegExp(`^ {0,3}${fence[0]}{${fence.length},}\\s*$`);
  const indent = /^ */.exec(lines[at])[0].length;
  let end = at + 1;
  while (end < lines.length && !close.test(lines[end])) end += 1;
  const code = lines.slice(at + 1, end).map((line) => line.replace(new RegExp(`^ {0,${indent}}`), "")).join("\n");
  return [end + 1, () => codeBlock(language, code)];
}

function takeQuote(lines, at, depth) {
  let end = at;
  while (end < lines.length && QUOTE.test(lines[end])) end += 1;
  const inner = lines.slice(at, end).map((line) => line.replace(QUOTE, "")).join("\n");
  return [end, () => element("blockquote", nodes(inner, depth + 1))];
}

/** One list; an item has the lines that are indented under it, and empty ones between. */
function takeList(lines, at, depth) {
  const first = ITEM.exec(lines[at]);
  const ordered = /\d/.test(first[2]);
  const base = first[1].length;
  const indent = new RegExp(`^ {2,${first[2].length + 1}}`);  // of what belongs to an item
  const items = [];
  let end = at;
  while (end < lines.length) {
    const item = ITEM.exec(lines[end]);
    if (item && item[1].length < base + 2 && !RULE.test(lines[end])) {
      if (/\d/.test(item[2]) !== ordered || item[1].length < base) break;
      items.push([item[3] ?? ""]);
    } else if (lines[end].trim() === "") {
      const next = lines[end + 1];
      if (next === undefined || !(/^ {2,}\S/.test(next) || ITEM.test(next))) break;
      items.at(-1).push("");
    } else if (/^ {2,}/.test(lines[end].slice(base))) {
      items.at(-1).push(lines[end].slice(base).replace(indent, ""));
    } else if (startsBlock(lines, end)) {
      break;
    } else {
      items.at(-1).push(lines[end]);  // a paragraph that goes on without an indent
    }
    end += 1;
  }
  const start = ordered ? parseInt(first[2], 10) : 1;
  return [end, () => {
    const list = element(ordered ? "ol" : "ul", items.map((item) => element("li", itemNodes(item, depth))));
    if (start !== 1) list.start = start;
    return list;
  }];
}

function itemNodes(lines, depth) {
  const text = lines.join("\n").trimEnd();
  return text.includes("\n") ? nodes(text, depth + 1) : inline(text);
}

function cells(line) {
  return line.trim().replace(/^\|/, "").replace(/\|$/, "").split("|").map((cell) => cell.trim());
}

function takeTable(lines, at) {
  let end = at + 2;
  while (end < lines.length && lines[end].includes("|")) end += 1;
  return [end, () => {
    const head = element("thead", [element("tr", cells(lines[at]).map((cell) => element("th", inline(cell))))]);
    const rows = lines.slice(at + 2, end).map((line) => element("tr", cells(line).map((cell) => element("td", inline(cell)))));
    const box = element("div", [element("table", [head, element("tbody", rows)])]);
    box.className = "table";
    return box;
  }];
}

function isTable(lines, at) {
  return lines[at].includes("|") && lines[at + 1] !== undefined && TABLE_RULE.test(lines[at + 1]);
}

function startsBlock(lines, at) {
  const line = lines[at];
  return FENCE.test(line) || HEADING.test(line) || RULE.test(line) || QUOTE.test(line) || ITEM.test(line);
}

function takeParagraph(lines, at) {
  let end = at + 1;
  while (end < lines.length && lines[end].trim() !== "" && !startsBlock(lines, end) && !isTable(lines, end)) end += 1;
  const text = lines.slice(at, end).join("\n");
  return [end, () => element("p", inline(text))];
}

/** [line after the block, what makes its node] */
function takeBlock(lines, at, depth) {
  const line = lines[at];
  if (FENCE.test(line)) return takeFence(lines, at);
  const heading = HEADING.exec(line);
  if (heading) return [at + 1, () => element(`h${heading[1].length}`, inline(heading[2].replace(/\s#+\s*$/, "")))];
  if (RULE.test(line)) return [at + 1, () => element("hr")];
  if (depth < MAX_DEPTH && QUOTE.test(line)) return takeQuote(lines, at, depth);
  if (depth < MAX_DEPTH && ITEM.test(line)) return takeList(lines, at, depth);
  if (isTable(lines, at)) return takeTable(lines, at);
  return takeParagraph(lines, at);
}

function blocks(text, depth = 0) {
  const lines = text.replace(/\r\n?/g, "\n").replace(/\t/g, "    ").split("\n");
  const found = [];
  for (let at = 0; at < lines.length;) {
    if (lines[at].trim() === "") { at += 1; continue; }
    const [end, make] = takeBlock(lines, at, depth);
    found.push({source: lines.slice(at, end).join("\n"), make});
    at = end;
  }
  return found;
}

function nodes(text, depth) {
  return blocks(text, depth).map((block) => block.make());
}

const sources = new WeakMap();

/** Shows `text` in `target`. Blocks that are there already stay, so a growing text costs its last block only. */
export function show(target, text) {
  const wanted = blocks(text);
  wanted.forEach((block, i) => {
    const old = target.children[i];
    if (old && sources.get(old) === block.source) return;
    const node = block.make();
    sources.set(node, block.source);
    if (old) old.replaceWith(node); else target.append(node);
  });
  while (target.children.length > wanted.length) target.lastElementChild.remove();
}
