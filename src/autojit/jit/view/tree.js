// The graph and its adjoint as one table: a row per module, folded; forward, backward and update side by side, so that
// what a module keeps for its derivative is the arrow between two cells of its row.

const PHASES = ["forward", "backward", "update"];
const ROW = 26, MOST_EDGES = 500, MOST_ROWS = 3000;

function moduleTree(graph) {
  const root = branch("", "", null);
  graph.nodes.forEach((node, number) => {
    const [phase, module, type] = data.parts[node[5]];
    let at = root, path = "";
    for (const name of module ? module.split(".") : ["outside of modules"]) {
      path = path ? `${path}.${name}` : name;
      if (!at.children.has(name)) at.children.set(name, branch(name, path, at));
      at = at.children.get(name);
    }
    at.type = type === at.name ? "" : type;
    const line = `${node[4]}`;
    if (!at.lines.has(line)) at.lines.set(line, leafRow(`line ${line} of ${path}`, node[4], at));
    const leaf = at.lines.get(line);
    leaf.nodes.push(number);
    for (let row = leaf; row; row = row.parent) {
      row.counts[phase] = (row.counts[phase] || 0) + 1;
      row.first = Math.min(row.first, phase === "forward" ? number : number + graph.nodes.length);
    }
  });
  return root;
}

function branch(name, path, parent) {
  return {name, path, parent, children: new Map(), lines: new Map(), counts: {}, first: Infinity, kind: "module"};
}

function leafRow(key, source, parent) {
  return {name: "", path: key, source, parent, nodes: [], counts: {}, first: Infinity, kind: "line"};
}

// What is shown of a tree whose rows with paths in `open` are unfolded, in order.
function visibleRows(root, open, graph) {
  const rows = [];
  const walk = (row, depth) => {
    if (rows.length >= MOST_ROWS) return;
    row.depth = depth;
    rows.push(row);
    if (!open.has(row.path)) return;
    if (row.kind === "line") {
      row.nodes.forEach((number) => rows.push({kind: "node", number, parent: row, path: `node ${number}`, depth: depth + 1,
        counts: {[data.parts[graph.nodes[number][5]][0]]: 1}}));
      return;
    }
    below(row).forEach((child) => walk(child, depth + 1));
  };
  below(root).forEach((row) => walk(row, 0));
  return rows;
}

function below(row) {
  return [...row.children.values(), ...row.lines.values()].sort((a, b) => a.first - b.first);
}

function drawTree(body) {
  const program = current(), graph = program[shown.graph] || program.optimised;
  const root = treeOf(graph), open = shown.open;
  const rows = visibleRows(root, open, graph);
  const phases = PHASES.filter((phase) => root.counts[phase]);
  const times = timeOfParts(program);
  const largest = Math.max(1e-9, ...[...root.children.values()].flatMap((row) => phases.map((p) => timeOf(row, p, times))));
  const frame = el("div", {class: "tree", role: "tree", "aria-label": "the graph by modules"});
  frame.append(el("div", {class: "row head"}, el("span", {class: "name"}, "module, line, op"), ...cells(phases, (phase) =>
    el("span", {class: `cell ${phase}`}, phase))));
  rows.forEach((row) => frame.append(treeRow(row, graph, phases, times, largest)));
  if (rows.length >= MOST_ROWS) frame.append(el("p", {class: "note"}, "More rows are unfolded than are shown: fold some."));
  body.append(frame);
  requestAnimationFrame(() => drawEdges(frame, rows, graph, phases));
}

function cells(phases, make) {
  return phases.flatMap((phase) => [el("span", {class: "gap"}), make(phase)]).concat(el("span", {class: "gap"}));
}

function treeRow(row, graph, phases, times, largest) {
  const folds = row.kind !== "node", isOpen = shown.open.has(row.path);
  const name = el("span", {class: "name", style: `padding-left:${6 + row.depth * 15}px`},
    el("span", {class: "mark"}, folds ? (isOpen ? "▾" : "▸") : ""), ...rowTitle(row, graph));
  const line = el("div", {class: "row", role: "treeitem", tabindex: "0", "data-path": row.path, "aria-level": `${row.depth + 1}`},
    name, ...cells(phases, (phase) => treeCell(row, phase, graph, times, largest)));
  if (folds) line.setAttribute("aria-expanded", `${isOpen}`);
  if (row.kind === "node" && isChosenNode(graph, row.number)) line.classList.add("chosen");
  if (shown.query && !matchesRow(row, graph)) line.classList.add("dim");
  line.onclick = () => (folds ? fold(row.path) : chooseNode(graph, row.number));
  hover(line, () => rowTip(row, graph, times));
  return line;
}

function rowTitle(row, graph) {
  if (row.kind === "module") return [row.name, el("span", {class: "kind"}, row.type ? `  ${row.type}` : "")];
  if (row.kind === "line") {
    const [short, text] = data.sources[row.source];
    return [el("span", {class: "kind"}, `${short}  `), text];
  }
  const node = graph.nodes[row.number];
  return [el("span", {class: "kind"}, `${node[3].map((r) => r[0]).join(", ")} = `), node[0]];
}

function treeCell(row, phase, graph, times, largest) {
  const count = row.counts[phase];
  if (!count) return el("span", {class: "cell"});
  if (row.kind === "node") {
    const types = graph.nodes[row.number][3].map((r) => data.types[r[1]]).join(", ");
    return el("span", {class: `cell full mono ${phase}`}, el("span", {}, types));
  }
  const time = timeOf(row, phase, times);
  return el("span", {class: `cell full ${phase}`}, el("i", {style: `width:${Math.min(100, 100 * time / largest)}%`}),
    el("span", {}, `${count} op${count > 1 ? "s" : ""}${time > 0 ? `, ${duration(time)}` : ""}`));
}

// Time of a part of the program: a kernel's is shared out among the nodes that it computes.
function timeOfParts(program) {
  if (program.times) return program.times;
  const found = new Map();
  program.kernels.forEach((kernel) => {
    const nodes = kernel.nodes.map((n) => program.optimised.nodes[n]);
    nodes.forEach((node) => {
      const key = data.parts[node[5]].slice(0, 2).join("|"), lineKey = `${key}|${node[4]}`, share = timeOfKernel(kernel) / nodes.length;
      found.set(key, (found.get(key) || 0) + share);
      found.set(lineKey, (found.get(lineKey) || 0) + share);
    });
  });
  return (program.times = found);
}

function timeOf(row, phase, times) {
  if (row.kind === "node") return 0;
  if (row.kind === "line") return times.get(`${phase}|${modulePath(row.parent)}|${row.source}`) || 0;
  let total = times.get(`${phase}|${modulePath(row)}`) || 0;
  row.children.forEach((child) => (total += timeOf(child, phase, times)));
  return total;
}

function modulePath(row) { return row.path === "outside of modules" ? "" : row.path; }

function rowTip(row, graph, times) {
  if (row.kind === "node") return nodeTip(graph, row.number);
  const lines = PHASES.filter((p) => row.counts[p]).map((p) => `${p}: ${row.counts[p]} ops, ${duration(timeOf(row, p, times))} ${timeWord()}`);
  if (row.kind === "module") return tip(`${row.path} ${row.type || ""}`, lines);
  const [short, text, file, scope] = data.sources[row.source];
  return tip(text || short, [`${file}, ${short.replace(/.*:/, "line ")}, in ${scope}`, ...lines]);
}

function nodeTip(graph, number) {
  const node = graph.nodes[number], values = valuesOf(graph), [short, text, file] = data.sources[node[4]];
  const read = node[2].map((v) => `${values[v].name}: ${values[v].type}${values[v].told ? ` (${values[v].told})` : ""}`);
  const kernel = node[6] >= 0 ? current().kernels[node[6]] : null;
  return tip(`${node[3].map((r) => `${r[0]}: ${data.types[r[1]]}`).join(", ")} = ${node[0]}${node[1] ? `[${node[1]}]` : ""}`, [
    read.length ? `reads ${read.join(", ")}` : "reads nothing",
    partText(node[5]),
    `${short}  ${text}`, file,
    kernel ? `kernel ${node[6]}: ${kernel.name}, ${duration(timeOfKernel(kernel))} ${timeWord()}` : "",
  ]);
}

// Arrows between the cells on view: within a phase in the gap to its left, from phase to phase across.
function drawEdges(frame, rows, graph, phases) {
  const place = new Map();
  const mark = (row, y) => {
    if (row.kind === "node") place.set(row.number, y);
    else if (!shown.open.has(row.path)) leaves(row).forEach((number) => place.set(number, y));
    else if (row.kind === "line") row.nodes.forEach((number) => place.has(number) || place.set(number, y));
  };
  rows.forEach((row, y) => mark(row, y));
  const producers = valuesOf(graph).map((value) => value.node);
  const found = new Map();
  graph.nodes.forEach((node, to) => node[2].forEach((value) => {
    const from = producers[value];
    if (from < 0 || !graph.nodes[from][2].length || !place.has(from) || !place.has(to)) return;
    const a = place.get(from), b = place.get(to);
    const p = phases.indexOf(data.parts[graph.nodes[from][5]][0]), q = phases.indexOf(data.parts[node[5]][0]);
    if (a === b && p === q) return;
    const key = `${a} ${p} ${b} ${q}`;
    if (!found.has(key)) found.set(key, {a, p, b, q, values: new Set()});
    found.get(key).values.add(value);
  }));
  const edges = [...found.values()];
  edges.forEach((edge) => (edge.bytes = [...edge.values].reduce((sum, v) => sum + valuesOf(graph)[v].bytes, 0)));
  edges.sort((x, y) => y.bytes - x.bytes);
  const heads = [...frame.querySelectorAll(".head .cell")].map((cell) => [cell.offsetLeft, cell.offsetLeft + cell.offsetWidth]);
  const svg = svgEl("svg", {class: "edges", width: frame.scrollWidth, height: (rows.length + 1) * ROW});
  edges.slice(0, MOST_EDGES).forEach((edge) => svg.append(edgePath(edge, heads, graph)));
  frame.append(svg);
}

function leaves(row) {
  return row.kind === "line" ? row.nodes : below(row).flatMap(leaves);
}

function edgePath(edge, heads, graph) {
  const y1 = (edge.a + 1.5) * ROW, y2 = (edge.b + 1.5) * ROW;
  let path;
  if (edge.p === edge.q) {
    const right = edge.p > 0, x = heads[edge.p][right ? 1 : 0], bend = Math.min(40, 6 + Math.abs(edge.b - edge.a) * 2.2) * (right ? 1 : -1);
    path = `M${x} ${y1 + 3} C${x + bend} ${y1 + 3} ${x + bend} ${y2 - 3} ${x} ${y2 - 3}`;
  } else {
    const x1 = heads[edge.p][1], x2 = heads[edge.q][0], middle = (x1 + x2) / 2;
    path = `M${x1} ${y1} C${middle} ${y1} ${middle} ${y2} ${x2} ${y2}`;
  }
  const isFar = Math.abs(edge.a - edge.b) > 14 && edge.p !== edge.q;  // many of these hide what is near
  const line = svgEl("path", {d: path, "stroke-width": isFar ? 1 : 1 + Math.min(4, Math.log10(1 + edge.bytes / 1e3))});
  if (isFar) line.classList.add("far");
  const named = [...edge.values].slice(0, 6).map((v) => valuesOf(graph)[v]).map((v) => `${v.name}: ${v.type}`);
  const what = edge.p === edge.q ? "is read here" : "is kept for this";
  hover(line, () => tip(`${edge.values.size} value${edge.values.size > 1 ? "s" : ""}, ${bytes(edge.bytes)}, ${what}`,
    [...named, edge.values.size > 6 ? "..." : ""]));
  return line;
}

function matchesRow(row, graph) {
  if (row.kind === "node") return matchesNode(graph, row.number);
  if (row.kind === "line") return row.nodes.some((number) => matchesNode(graph, number));
  return matches(`${row.path} ${row.type || ""}`) || below(row).some((child) => matchesRow(child, graph));
}

// Unfold what a search finds, as far as that stays readable.
function unfoldMatches(root, graph) {
  let count = 0;
  graph.nodes.forEach((_, number) => {
    if (count < 60 && matchesNode(graph, number)) { count++; unfoldTo(root, graph, number); }
  });
}

function unfoldTo(root, graph, number) {
  const [, module] = data.parts[graph.nodes[number][5]];
  let path = "";
  (module ? module.split(".") : ["outside of modules"]).forEach((name) => shown.open.add((path = path ? `${path}.${name}` : name)));
  shown.open.add(`line ${graph.nodes[number][4]} of ${path}`);
}

function fold(path) {
  if (!shown.open.delete(path)) shown.open.add(path);
  draw();
  const row = document.querySelector(`.row[data-path="${CSS.escape(path)}"]`);
  if (row) row.focus();
}

// The keys of a tree: up and down move, right unfolds, left folds or goes to what is around.
function treeKey(event) {
  const row = event.target.closest && event.target.closest(".row[data-path]");
  if (!row) return false;
  const others = [...document.querySelectorAll(".row[data-path]")], at = others.indexOf(row);
  const go = (to) => others[to] && others[to].focus();
  const isOpen = row.getAttribute("aria-expanded");
  if (event.key === "ArrowDown") go(at + 1);
  else if (event.key === "ArrowUp") go(at - 1);
  else if (event.key === "ArrowRight" && isOpen === "false") row.click();
  else if (event.key === "ArrowRight") go(at + 1);
  else if (event.key === "ArrowLeft" && isOpen === "true") row.click();
  else if (event.key === "ArrowLeft") {
    const level = +row.getAttribute("aria-level");
    go(others.slice(0, at).findLastIndex((other) => +other.getAttribute("aria-level") < level));
  } else if (event.key === "Enter" || event.key === " ") row.click();
  else return false;
  return true;
}
