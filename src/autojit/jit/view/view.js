// The frame of the page: what is shown, what is chosen, the kernels, the texts, keys, and the small tools of all parts.

const data = JSON.parse(document.getElementById("data").textContent);
const shown = {program: data.programs.findIndex((p) => p.captured), tab: "graph", graph: "captured", stage: "captured",
  open: new Set(), query: "", kernel: -1, node: null, zoom: [], byTime: false};
if (shown.program < 0) shown.program = 0;
data.programs.forEach((program, k) => { if (program.label === "step" || program.label === "forward") shown.program = k; });
const TABS = {graph: "Graph", kernels: "Kernels", memory: "Memory", time: "Time"};
const STAGES = {captured: "captured", adjoint: "adjoint", optimised: "optimised", schedule: "schedule", llvm: "LLVM", asm: "assembly",
  ptx: "PTX", explain: "explain()"};
const trees = new Map(), tables = new Map();

function current() { return data.programs[shown.program]; }

// ---- tools

function el(tag, attributes, ...children) { return filled(document.createElement(tag), attributes, children); }
function svgEl(tag, attributes, ...children) { return filled(document.createElementNS("http://www.w3.org/2000/svg", tag), attributes, children); }
function filled(node, attributes, children) {
  Object.entries(attributes).forEach(([name, value]) => node.setAttribute(name, value));
  node.append(...children.filter((child) => child !== null && child !== ""));
  return node;
}

function bytes(n) {
  for (const [unit, scale] of [["GB", 1e9], ["MB", 1e6], ["kB", 1e3]]) if (n >= scale) return `${+(n / scale).toPrecision(3)} ${unit}`;
  return `${n} bytes`;
}

function duration(ns) {
  for (const [unit, scale] of [["s", 1e9], ["ms", 1e6], ["µs", 1e3]]) if (ns >= scale) return `${+(ns / scale).toPrecision(3)} ${unit}`;
  return `${Math.round(ns)} ns`;
}

function isMeasured(program) { return program.kernels.some((kernel) => kernel.ns !== null); }
function timeOfKernel(kernel) { return isMeasured(current()) ? kernel.ns || 0 : kernel.estimate_ns; }
function timeWord() { return isMeasured(current()) ? "measured" : "estimated"; }

// Of each value of a graph: its name, its type, its bytes, the node that makes it.
function valuesOf(graph) {
  if (!tables.has(graph)) {
    const item = (name, type, told, node) => ({name, type: data.types[type], bytes: data.type_bytes[type], told, node});
    const found = graph.inputs.map(([name, type, told]) => item(name, type, told, -1));
    graph.nodes.forEach((node, number) => node[3].forEach(([name, type]) => found.push(item(name, type, "", number))));
    tables.set(graph, found);
  }
  return tables.get(graph);
}

function treeOf(graph) {
  if (!trees.has(graph)) trees.set(graph, moduleTree(graph));
  return trees.get(graph);
}

function lineOf(graph, number) {
  const [short, text] = data.sources[graph.nodes[number][4]];
  return `${short}  ${text}`;
}

// A part of the program in words: the module with its class, the phase.
function partText(part) {
  const [phase, module, type] = data.parts[part];
  return [module, type === module ? "" : type, phase].filter(Boolean).join(", ");
}

function tip(title, lines) { return [el("div", {class: "mono"}, title), ...lines.filter(Boolean).map((line) => el("div", {class: "quiet mono"}, line))]; }

function hover(target, make) {
  const box = document.getElementById("tip");
  const move = (event) => {
    box.style.left = `${Math.max(4, Math.min(event.clientX + 14, innerWidth - box.offsetWidth - 8))}px`;
    box.style.top = `${event.clientY + box.offsetHeight + 24 > innerHeight ? Math.max(4, event.clientY - box.offsetHeight - 10) : event.clientY + 16}px`;
  };
  target.addEventListener("mouseenter", (event) => { box.replaceChildren(...make()); box.style.display = "block"; move(event); });
  target.addEventListener("mousemove", move);
  target.addEventListener("mouseleave", () => (box.style.display = "none"));
}

// ---- searching and choosing

function matches(text) { return text.toLowerCase().includes(shown.query); }

function matchesNode(graph, number) {
  const node = graph.nodes[number], results = node[3].map((r) => `${r[0]}: ${data.types[r[1]]}`).join(" ");
  return matches(`${results} = ${node[0]} ${partText(node[5])} ${lineOf(graph, number)}`);
}

function matchesKernel(program, kernel) {
  return matches(`${kernel.name} ${kernel.head}`) || kernel.nodes.some((n) => matchesNode(program.optimised, n));
}

function isChosenNode(graph, number) {
  const chosen = shown.node;
  return (chosen && chosen.graph === graph && chosen.number === number)
    || (graph === current().optimised && shown.kernel >= 0 && graph.nodes[number][6] === shown.kernel);
}

function chooseNode(graph, number) {
  const kernel = graph.nodes[number][6];
  shown.node = {graph, number};
  shown.kernel = kernel;
  const isOptimised = graph === current().optimised;
  if (!isOptimised || !["llvm", "asm"].includes(shown.stage)) shown.stage = isOptimised ? "optimised" : "captured";
  draw();
}

function chooseKernel(number) {
  shown.kernel = shown.kernel === number ? -1 : number;
  shown.node = null;
  if (!["llvm", "asm", "optimised"].includes(shown.stage)) shown.stage = current().kernels[number].texts.length ? "llvm" : "optimised";
  draw();
}

// ---- kernels

function drawKernels(body) {
  const program = current(), longest = Math.max(1e-9, ...program.kernels.map(timeOfKernel));
  const order = program.kernels.map((_, k) => k);
  if (shown.byTime) order.sort((a, b) => timeOfKernel(program.kernels[b]) - timeOfKernel(program.kernels[a]));
  const table = el("table", {class: "kernels"}, el("tr", {}, ...["", timeWord(), "", "kernel", "reads", "writes"].map((name) => el("th", {}, name))));
  let group = "";
  order.forEach((number) => {
    const kernel = program.kernels[number];
    if (shown.query && !matchesKernel(program, kernel)) return;
    const here = kernel.group ? `${kernel.place} ${kernel.group}` : "";
    if (!shown.byTime && here !== group) {
      if (here) table.append(el("tr", {class: "group"}, el("td", {}), el("td", {colspan: "5"}, kernel.group)));
      group = here;
    }
    table.append(kernelRow(program, kernel, number, longest));
  });
  body.append(table);
}

function kernelRow(program, kernel, number, longest) {
  const phase = kernel.part < 0 ? "outside" : data.parts[kernel.part][0], time = timeOfKernel(kernel);
  const names = kernel.name.match(/^(.*?)( \(.*\))?$/);
  const cell = el("td", {class: "mono"}, names[1], el("span", {class: "note"}, names[2] || ""),
    kernel.called_back ? el("span", {class: "warn"}, " called back: Python computes it") : null);
  const isChosen = shown.kernel === number;
  if (isChosen) {
    cell.append(el("div", {class: "ops"}, kernel.head), el("div", {class: "ops"}, ...kernel.nodes.map((n) => {
      const line = el("div", {}, `${nodeText(program.optimised, n)}`);
      hover(line, () => nodeTip(program.optimised, n));
      return line;
    })));
  }
  const row = el("tr", {class: `kernel ${phase}${isChosen ? " chosen" : ""}`, tabindex: "0"}, el("td", {class: "number"}, `${number}`),
    el("td", {class: "number"}, duration(time)), el("td", {}, el("span", {class: "bar", style: `width:${70 * time / longest}px`})), cell,
    el("td", {class: "number"}, bytes(kernel.read_bytes)), el("td", {class: "number"}, bytes(kernel.written_bytes)));
  row.onclick = () => chooseKernel(number);
  row.onkeydown = (event) => { if (event.key === "Enter") chooseKernel(number); };
  return row;
}

// ---- texts

function nodeText(graph, number) {
  const node = graph.nodes[number], values = valuesOf(graph);
  return `${node[3].map((r) => `${r[0]}: ${data.types[r[1]]}`).join(", ")} = ${node[0]}${node[1] ? `[${node[1]}]` : ""}(`
    + `${node[2].map((v) => values[v].name).join(", ")})`;
}

function drawText(body) {
  const program = current(), stage = shown.stage;
  const frame = el("div", {class: "text"});
  if (stage === "captured" || stage === "adjoint") graphText(frame, program.captured, stage === "adjoint");
  else if (stage === "optimised") graphText(frame, program.optimised, false);
  else if (stage === "llvm" || stage === "asm") kernelText(frame, program, stage);
  else plainText(frame, stage === "explain" ? data.explain : program[stage] || (stage === "ptx" ? "No device computes in this program." : ""));
  body.append(frame);
  const target = frame.querySelector(".chosen") || (shown.query && frame.querySelector(".hit"));
  if (target) requestAnimationFrame(() => (body.scrollTop = target.offsetTop - 60));
}

function graphText(frame, graph, isAdjoint) {
  if (!graph) return void frame.append(el("div", {}, "The body of a loop or a branch is compiled as it was captured: see optimised."));
  graph.inputs.forEach(([name, type, told]) => {
    if (!isAdjoint) frame.append(textLine(`input ${name}: ${data.types[type]}`, told ? `  # ${told}` : ""));
  });
  graph.nodes.forEach((node, number) => {
    const [phase, module] = data.parts[node[5]];
    if (isAdjoint && phase !== "backward") return;
    const line = textLine(nodeText(graph, number), `  # ${lineOf(graph, number).split("  ")[0]} ${module ? `(${module})` : ""}`, phase);
    if (isChosenNode(graph, number)) line.classList.add("chosen");
    line.onclick = () => chooseNode(graph, number);
    hover(line, () => nodeTip(graph, number));
    frame.append(line);
  });
  const values = valuesOf(graph);
  if (!isAdjoint) frame.append(textLine(`return ${graph.outputs.map((v) => values[v].name).join(", ")}`, ""));
}

function textLine(text, where, phase) {
  const line = el("div", {class: shown.query && matches(text + where) ? "hit" : ""}, el("span", {class: phase || ""}, text), el("span", {class: "where"}, where));
  return line;
}

function kernelText(frame, program, stage) {
  const chosen = shown.kernel >= 0 ? [shown.kernel] : program.kernels.map((_, k) => k);
  const done = new Set();
  if (shown.kernel < 0) frame.append(el("div", {class: "where"}, "All texts, each once. Choose a kernel to see its own."));
  chosen.forEach((number) => program.kernels[number].texts.forEach((text) => {
    if (done.has(text)) return;
    done.add(text);
    frame.append(el("div", {class: "where"}, `kernel ${number}: ${program.kernels[number].name}`));
    const found = data.texts[text][stage];
    plainText(frame, found || `${data.texts[text].llvm}: built into the runtime, shared by all steps`);
  }));
  if (!done.size) frame.append(el("div", {}, "This kernel has no text for the host: see PTX, or it copies bytes."));
}

function plainText(frame, text) {
  text.split("\n").forEach((line) => frame.append(el("div", {class: shown.query && matches(line) ? "hit" : ""}, line)));
}

// ---- the frame

function header() {
  const search = el("input", {type: "search", placeholder: "search  ( / )", "aria-label": "search ops, modules, lines, types", id: "search"});
  search.value = shown.query;
  let waiting = 0;
  search.oninput = () => {
    clearTimeout(waiting);
    waiting = setTimeout(() => {
      shown.query = search.value.trim().toLowerCase();
      const graph = current()[shown.graph] || current().optimised;
      if (shown.query) unfoldMatches(treeOf(graph), graph);
      draw();
    }, 150);
  };
  const first = el("div", {class: "first"}, el("h1", {}, data.name), el("span", {class: "signature", title: data.signature}, data.signature));
  if (data.programs.length > 1) {
    const choice = el("select", {"aria-label": "program", id: "program"}, ...data.programs.map((program, k) => el("option", {value: k}, program.label)));
    choice.value = shown.program;
    choice.onchange = () => { Object.assign(shown, {program: +choice.value, kernel: -1, node: null, zoom: []}); if (!current().captured) shown.graph = "optimised"; draw(); };
    first.append(choice);
  }
  const theme = el("button", {title: "light or dark"}, "◐");
  theme.onclick = () => setTheme(document.documentElement.dataset.theme === "dark" ? "light" : "dark");
  first.append(search, theme);
  return el("header", {}, first, facts());
}

function facts() {
  const step = current(), stats = data.stats, sum = (name) => step.kernels.reduce((n, k) => n + k[name], 0);
  const told = [[step.kernels.length, "kernels"], [(step.captured || step.optimised).nodes.length, "ops captured"], [step.optimised.nodes.length, "after passes"],
    [bytes(data.memory.arena_bytes), "of temporaries"], [bytes(data.memory.state_bytes), "of state"],
    [duration(step.kernels.reduce((n, k) => n + timeOfKernel(k), 0)), `in kernels, ${timeWord()}`], [stats.native_calls || 0, "native calls"], [stats.captures || 0, "captures"]];
  Object.entries(data.sizes).forEach(([symbol, place]) => told.push([symbol, `is ${place}`]));
  if (stats.fallbacks) told.push([stats.fallbacks, "ops called back"]);
  if (sum("called_back")) told.push([sum("called_back"), "kernels in Python"]);
  if (data.left_out) told.push([bytes(data.left_out), "of text left out"]);
  const line = el("div", {class: "facts"}, ...told.map(([number, what]) =>
    el("span", {}, el("b", {}, `${number}`), ` ${number === 1 ? what.replace(/^(kernel|op|native call|capture)s/, "$1") : what}`)));
  if (data.timing) line.append(el("span", {}, data.timing.text.split("\n")[0].replace(/^.*?: /, "")));
  return line;
}

function tabs(names, chosen, choose, label) {
  const bar = el("div", {class: "tabs", role: "tablist", "aria-label": label});
  Object.entries(names).forEach(([key, name]) => {
    const button = el("button", {role: "tab", "aria-selected": `${key === chosen}`, "data-key": key}, name);
    button.onclick = () => { choose(key); draw(); };
    bar.append(button);
  });
  return bar;
}

function options() {
  const right = el("span", {class: "right"});
  const button = (name, pressed, act) => {
    const made = el("button", {"aria-pressed": `${pressed}`}, name);
    made.onclick = () => { act(); draw(); };
    right.append(made);
  };
  if (shown.tab === "graph") {
    if (current().captured) ["captured", "optimised"].forEach((name) => button(name, shown.graph === name, () => (shown.graph = name)));
    button("unfold", false, () => unfoldOnce());
    button("fold", false, () => shown.open.clear());
  } else if (shown.tab === "kernels") button("by time", shown.byTime, () => (shown.byTime = !shown.byTime));
  return right;
}

// One level more of what is unfolded.
function unfoldOnce() {
  const graph = current()[shown.graph] || current().optimised;
  visibleRows(treeOf(graph), shown.open, graph).forEach((row) => { if (row.kind === "module") shown.open.add(row.path); });
}

const DRAW = {graph: drawTree, kernels: drawKernels, memory: drawMemory, time: drawTime};

function draw() {
  document.getElementById("tip").style.display = "none";
  const kept = [...document.querySelectorAll(".body")].map((body) => [body.dataset.key, body.scrollTop]);
  const [left, right] = document.querySelectorAll("section");
  const bar = tabs(TABS, shown.tab, (key) => (shown.tab = key), "pictures");
  bar.append(options());
  const picture = el("div", {class: "body", "data-key": shown.tab + shown.program}), text = el("div", {class: "body", "data-key": shown.stage + shown.program});
  left.replaceChildren(bar, picture);
  right.replaceChildren(tabs(STAGES, shown.stage, (key) => (shown.stage = key), "texts"), text);
  document.querySelector(".facts").replaceWith(facts());
  DRAW[shown.tab](picture);
  drawText(text);
  const first = shown.query && shown.tab === "graph" && picture.querySelector(".row[data-path]:not(.dim)");
  if (first) requestAnimationFrame(() => (picture.scrollTop = first.offsetTop - 3 * ROW));
  if (!shown.query) kept.forEach(([key, top]) => [picture, text].forEach((body) => { if (body.dataset.key === key) body.scrollTop = top; }));
}

function setTheme(name) { document.documentElement.dataset.theme = name; }

function onKey(event) {
  if (event.target.matches("input, select")) {
    if (event.key === "Escape") { event.target.value = ""; event.target.dispatchEvent(new Event("input")); event.target.blur(); }
    return;
  }
  if (event.ctrlKey || event.metaKey || event.altKey) return;
  const tab = Object.keys(TABS)[+event.key - 1];
  if (event.key === "/") document.getElementById("search").focus();
  else if (tab) { shown.tab = tab; draw(); }
  else if (event.key === "Escape") { shown.kernel = -1; shown.node = null; draw(); }
  else if (!treeKey(event)) return;
  event.preventDefault();
}

function start() {
  const wanted = new URLSearchParams(location.hash.slice(1));  // #tab=memory&stage=llvm&theme=dark: for links and tests
  setTheme(wanted.get("theme") || (matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light"));
  for (const name of ["tab", "stage", "graph", "query"]) if (wanted.has(name)) shown[name] = wanted.get(name);
  if (wanted.has("kernel")) shown.kernel = +wanted.get("kernel");
  const graph = current()[shown.graph] || current().optimised, root = treeOf(graph);
  if (root.children.size < 12) root.children.forEach((row) => shown.open.add(row.path));
  if (shown.query) unfoldMatches(root, graph);
  for (let more = +wanted.get("unfold") || 0; more > 0; more--) unfoldOnce();
  document.getElementById("app").append(header(), el("main", {}, el("section", {}), el("section", {})), el("div", {id: "tip", role: "tooltip"}));
  draw();
  document.addEventListener("keydown", onKey);
  addEventListener("resize", () => { if (shown.tab === "graph") draw(); });
}

start();
