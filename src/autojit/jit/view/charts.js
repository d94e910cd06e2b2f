// Pictures of time and memory.

function drawMemory(body) {
  const program = current();
  const facts = Object.entries(data.memory).map(([name, size]) => `${name.replace("_bytes", "")} ${bytes(size)}`).join(", ");
  body.append(el("p", {class: "note"}, `The step: ${facts}. Time goes from left to right, a kernel, band or batch each; a box is a temporary, `
    + "as high as it is large, where it is stored in the arena. The line is what is live."));
  if (!program.memory.length) {
    body.append(el("p", {class: "note"}, "There are no temporaries: everything stays in registers, in results and in state."));
    return;
  }
  program.memory.forEach((arena) => drawArena(body, program, arena));
}

function drawArena(body, program, arena) {
  const svg = svgEl("svg", {class: "memory", viewBox: `0 0 ${arena.times} ${arena.bytes}`, preserveAspectRatio: "none", role: "img",
    "aria-label": `temporaries on ${arena.device} over time`});
  const values = valuesOf(program.optimised);
  arena.blocks.forEach(([value, offset, size, first, last, part]) => {
    const phase = part < 0 ? "outside" : data.parts[part][0];
    const box = svgEl("rect", {class: `block ${phase}`, x: first, y: arena.bytes - offset - size, width: last - first + 1, height: size});
    const item = values[value];
    if (item && item.node >= 0 && isChosenNode(program.optimised, item.node)) box.classList.add("chosen");
    hover(box, () => tip(item ? `${item.name}: ${item.type}` : "a temporary", [`${bytes(size)} at byte ${offset} of ${arena.device}'s arena`,
      `written at ${first}, last read at ${last}`, part < 0 ? "" : partText(part),
      item && item.node >= 0 ? lineOf(program.optimised, item.node) : ""]));
    box.onclick = () => item && item.node >= 0 && chooseNode(program.optimised, item.node);
    svg.append(box);
  });
  const live = liveBytes(arena);
  const path = live.map((size, time) => `${time ? "L" : "M"}${time} ${arena.bytes - size} H${time + 1}`).join(" ");
  svg.append(svgEl("path", {class: "live", d: path}));
  const peak = live.indexOf(Math.max(...live));
  body.append(el("div", {class: "chart"}, el("b", {}, `${arena.device}: arena of ${bytes(arena.bytes)}, `
    + `at most ${bytes(live[peak])} live at once, at ${peak} of ${arena.times}`)), el("div", {class: "chart"}, svg),
    el("div", {class: "axis"}, el("span", {}, "0"), el("span", {}, "time: the schedule's items in order"), el("span", {}, `${arena.times - 1}`)));
  body.append(el("h4", {class: "note"}, "Live at the peak, largest first"), peakTable(program, arena, peak));
}

function liveBytes(arena) {
  const change = new Array(arena.times + 1).fill(0);
  const homes = new Set();  // what takes the memory of another counts once
  arena.blocks.forEach(([, offset, size, first, last]) => {
    for (let time = first; time <= last; time++) {
      const key = `${offset} ${time}`;
      if (!homes.has(key)) { homes.add(key); change[time] += size; }
    }
  });
  return change.slice(0, arena.times);
}

function peakTable(program, arena, peak) {
  const values = valuesOf(program.optimised);
  const rows = arena.blocks.filter((b) => b[3] <= peak && peak <= b[4]).sort((a, b) => b[2] - a[2]).slice(0, 25);
  return el("table", {}, el("tr", {}, ...["bytes", "value", "module", "line"].map((name) => el("th", {}, name))), ...rows.map((b) => {
    const item = values[b[0]];
    return el("tr", {}, el("td", {class: "number"}, bytes(b[2])), el("td", {class: "mono"}, item ? `${item.name}: ${item.type}` : ""),
      el("td", {}, b[5] < 0 ? "" : partText(b[5])),
      el("td", {class: "mono"}, item && item.node >= 0 ? lineOf(program.optimised, item.node) : ""));
  }));
}

// ---- time: from the whole step over phases and modules to kernels

function flameTree(program) {
  const root = {name: data.name, time: 0, children: new Map(), phase: "outside"};
  program.kernels.forEach((kernel, number) => {
    const [phase, module] = kernel.part < 0 ? ["outside", ""] : data.parts[kernel.part];
    const time = timeOfKernel(kernel);
    let at = root;
    root.time += time;
    for (const name of [phase, ...(module ? module.split(".") : []), `${number} ${kernel.name}`]) {
      if (!at.children.has(name)) at.children.set(name, {name, time: 0, children: new Map(), phase, kernel: -1, parent: at});
      at = at.children.get(name);
      at.time += time;
    }
    at.kernel = number;
  });
  return root;
}

function drawTime(body) {
  const program = current();
  body.append(el("p", {class: "note"}, isMeasured(program)
    ? "Measured: the median time of each kernel, run one by one, with a stop of some 0.3 µs in each: a call takes less than their sum. "
      + "Click a box to look closer, the first to go back."
    : "Estimated: the compiler's own guesses, for nothing was timed; it has none for devices. \"with step.timing(): ...\" around some calls "
      + "measures; call view() then."));
  const whole = flameTree(program);
  let root = whole;
  for (const name of shown.zoom) root = root.children.get(name) || root;
  const flame = el("div", {class: "flame"});
  let deepest = 0;
  const place = (node, left, width, depth, path) => {
    if (width < 0.05) return;
    deepest = Math.max(deepest, depth);
    const share = whole.time ? 100 * node.time / whole.time : 0;
    const box = el("button", {class: node.phase, style: `left:${left}%;width:${width}%;top:${depth * 23}px`}, node.name);
    if (width < 1.5) box.classList.add("thin");
    if (node.kernel >= 0 && shown.kernel === node.kernel) box.classList.add("chosen");
    hover(box, () => tip(node.name, [`${duration(node.time)} ${timeWord()}, ${share.toFixed(1)} % of the step`]));
    box.onclick = () => {
      if (node.kernel >= 0) return chooseKernel(node.kernel);
      shown.zoom = node === root ? path.slice(0, -1) : path;
      draw();
    };
    flame.append(box);
    let x = left;
    [...node.children.values()].forEach((child) => {
      const part = node.time ? width * child.time / node.time : 0;
      place(child, x, part, depth + 1, [...path, child.name]);
      x += part;
    });
  };
  place(root, 0, 100, 0, shown.zoom);
  flame.style.height = `${(deepest + 1) * 23}px`;
  body.append(flame, el("h4", {class: "note"}, "Kinds of kernels"), classTable(program));
  if (data.timing) body.append(el("pre", {class: "text note"}, data.timing.text));
}

function classTable(program) {
  const found = new Map();
  let total = 0;
  program.kernels.forEach((kernel) => {
    const name = kernel.name.split(" (")[0], row = found.get(name) || {count: 0, time: 0, name};
    row.count++;
    row.time += timeOfKernel(kernel);
    total += timeOfKernel(kernel);
    found.set(name, row);
  });
  const rows = [...found.values()].sort((a, b) => b.time - a.time).slice(0, 40);
  return el("table", {}, el("tr", {}, ...["share", "time", "kernels", "kind"].map((name) => el("th", {}, name))), ...rows.map((row) =>
    el("tr", {}, el("td", {class: "number"}, `${(total ? 100 * row.time / total : 0).toFixed(1)} %`), el("td", {class: "number"}, duration(row.time)),
      el("td", {class: "number"}, `${row.count}`), el("td", {class: "mono"}, row.name))));
}
