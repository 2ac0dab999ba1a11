// The page's side of attention.py. Tokens are only ever set as text, never as HTML.

const MEAN = -1;
const NONE = -1;
const SPOKEN = 5;
const SAID = 0.005;
const HEIGHT = 150; // of the lines, in pixels
const TRAITS = ["attention", "layer", "head", "query"];
// JupyterLab has its own use for arrows, Enter, Escape and letters, unless what has the focus carries this.
const OWN_KEYS = { "data-lm-suppress-shortcuts": "true" };
const HINT = "Point at a token of the upper line, or move to it with Tab and the arrow keys: only its lines stay, " +
  "with a number at each key. A click or Enter pins it, Escape lets it go.";

function create(parent, tag, className = "", attributes = {}) {
  const made = document.createElement(tag);
  if (className) made.className = className;
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
  parent.append(made);
  return made;
}

// ---- Weights

/** Every attention with `row(layer, head, query)`, which gives the weights of one query as an array. */
function unpack(spec, bytes) {
  const view = ArrayBuffer.isView(bytes)
    ? new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength)
    : new DataView(bytes);
  let start = 0;
  return spec.map((each) => {
    const [first, T, S] = [start, each.queries.length, each.keys.length];
    start += each.layers * each.heads * T * S;
    const one = (layer, head, query) => {
      const at = first + ((layer * each.heads + head) * T + query) * S;
      return Array.from({ length: S }, (_, key) => view.getFloat32(4 * (at + key), true));
    };
    const mean = (layer, query) => {
      const rows = Array.from({ length: each.heads }, (_, head) => one(layer, head, query));
      return rows[0].map((_, key) => rows.reduce((sum, row) => sum + row[key], 0) / rows.length);
    };
    return { ...each, row: (layer, head, query) => (head === MEAN ? mean(layer, query) : one(layer, head, query)) };
  });
}

// ---- Words

const percent = (weight) => `${Math.floor(100 * weight + 0.5)}%`;
const repeated = (tokens, i) => tokens.indexOf(tokens[i]) !== tokens.lastIndexOf(tokens[i]);

/** What stands under a key: a weight that is there, but rounds to nothing, is no 0. */
const shortPercent = (weight) => (weight > 0 && weight < SAID ? "<1%" : percent(weight));

function inWords(row, query, { queries, keys }) {
  const subject = `“${queries[query]}”` + (repeated(queries, query) ? ` (no. ${query + 1})` : "");
  const seen = row.map((weight, key) => [weight, key]).filter(([weight]) => weight >= SAID);
  if (!seen.length) return `${subject} looks at nothing: all keys are hidden from it.`;
  seen.sort(([a], [b]) => b - a);
  const count = seen.length > SPOKEN + 1 ? SPOKEN : seen.length;
  const named = seen.slice(0, count).map(([weight, key]) =>
    `“${keys[key]}” (${repeated(keys, key) ? `no. ${key + 1}, ` : ""}${percent(weight)})`);
  const rest = seen.slice(count);
  const together = rest.reduce((sum, [weight]) => sum + weight, 0);
  return `${subject} looks at ${named.join(", ")}` +
    (rest.length ? `, and ${rest.length} more (${percent(together)} together).` : ".");
}

// ---- The page

function render({ model, el }) {
  const attentions = unpack(model.get("_spec"), model.get("_weights"));
  const root = create(el, "div", "course-attention", { role: "group" });
  const controls = create(root, "div", "course-attention-controls");
  const selects = Object.fromEntries(["attention", "layer", "head"].map((name) => [name, addSelect(name)]));

  create(root, "div", "course-attention-line").textContent = "Queries: the tokens that look";
  const scroll = create(root, "div", "course-attention-scroll");
  const stage = create(scroll, "div", "course-attention-stage");
  const upper = create(stage, "div", "course-attention-row",
    { role: "toolbar", "aria-orientation": "horizontal", "aria-label": "Queries: the tokens that look" });
  const svg = stage.appendChild(document.createElementNS("http://www.w3.org/2000/svg", "svg"));
  svg.setAttribute("aria-hidden", "true"); // the words below say the same
  svg.setAttribute("height", HEIGHT);
  const lower = create(stage, "div", "course-attention-row",
    { role: "list", "aria-label": "Keys: the tokens that are looked at" });
  create(root, "div", "course-attention-line").textContent = "Keys: the tokens that are looked at";
  const words = create(root, "p", "course-attention-words", { role: "status", "aria-live": "polite" });

  let built = null; // the attention whose tokens stand in the rows
  let hovered = NONE;
  let focused = NONE;
  let stop = 0; // the one query that Tab reaches

  /** The traits, held inside what there is: after a change from Python they arrive one after another. */
  function state() {
    const inside = (value, low, end) => Math.min(Math.max(value, low), end - 1);
    const attention = inside(model.get("attention"), 0, attentions.length);
    const chosen = attentions[attention];
    const query = model.get("query");
    return {
      attention,
      chosen,
      layer: inside(model.get("layer"), 0, chosen.layers),
      head: inside(model.get("head"), MEAN, chosen.heads),
      query: query < chosen.queries.length ? query : NONE,
    };
  }

  function save(changes) {
    const { attention, layer, head, query } = { ...state(), ...changes };
    const now = { attention, layer, head, query };
    for (const name of TRAITS) model.set(name, now[name]);
    model.save_changes();
    update();
  }

  function addSelect(name) {
    const id = `course-attention-${Math.random().toString(36).slice(2)}`; // many explorers may stand on one page
    const box = create(controls, "div", "course-attention-control");
    create(box, "label", "", { for: id }).textContent = name;
    const select = create(box, "select", "", { id, ...OWN_KEYS });
    select.addEventListener("change", () => {
      const value = Number(select.value);
      if (name !== "attention") return save({ [name]: value });
      model.set(name, value);
      save({}); // the others with it, held inside what the new attention has
    });
    return select;
  }

  function fill(select, options, value) {
    if (select.dataset.options !== JSON.stringify(options)) {
      select.dataset.options = JSON.stringify(options);
      select.replaceChildren(...options.map(([text, number]) => new Option(text, number)));
    }
    select.value = String(value);
    select.parentElement.hidden = options.length < 2;
  }

  function fillSelects({ attention, chosen, layer, head }) {
    const numbers = (name, count) => Array.from({ length: count }, (_, i) => [`${name} ${i + 1}`, i]);
    fill(selects.attention, attentions.map(({ name }, i) => [name, i]), attention);
    fill(selects.layer, numbers("layer", chosen.layers), layer);
    const mean = chosen.heads > 1 ? [["all heads (mean)", MEAN]] : [];
    fill(selects.head, [...mean, ...numbers("head", chosen.heads)], chosen.heads > 1 ? head : 0);
    root.setAttribute("aria-label", `Attention explorer: ${chosen.name}`);
  }

  function addToken(parent, token) {
    const text = create(parent, "span", "course-attention-text", { dir: "auto" });
    text.textContent = token;
    if (token.length > 15) text.title = token; // it may be cut
  }

  function buildRows(chosen) {
    if (built === chosen) return;
    built = null; // a token that has the focus loses it when it goes, and half of the rows is nothing to draw
    hovered = focused = NONE;
    stop = 0;
    upper.replaceChildren();
    lower.replaceChildren();
    chosen.queries.forEach((token, query) => addToken(create(upper, "button", "course-attention-token",
      { type: "button", "data-query": query, ...OWN_KEYS }), token));
    for (const token of chosen.keys) {
      const item = create(lower, "div", "course-attention-key", { role: "listitem" });
      addToken(create(item, "div", "course-attention-token"), token);
      create(item, "div", "course-attention-weight");
    }
    built = chosen;
  }

  /** The query whose lines stay: under the pointer, else with the focus, else pinned. */
  function active({ query }) {
    return hovered !== NONE ? hovered : focused !== NONE ? focused : query;
  }

  function update() {
    const now = state();
    fillSelects(now);
    buildRows(now.chosen);
    const shown = active(now);
    const row = shown === NONE ? null : now.chosen.row(now.layer, now.head, shown);
    [...upper.children].forEach((button, query) => {
      button.tabIndex = query === stop ? 0 : -1;
      button.setAttribute("aria-pressed", String(query === now.query));
      button.classList.toggle("course-attention-active", query === shown);
    });
    [...lower.children].forEach((item, key) => {
      item.lastChild.textContent = row ? shortPercent(row[key]) : "";
    });
    const text = row ? inWords(row, shown, now.chosen) : HINT;
    if (words.textContent !== text) words.textContent = text; // else it would be read out again
    draw(now, shown);
  }

  function middles(parent) {
    return [...parent.children].map((child) => child.offsetLeft + child.offsetWidth / 2);
  }

  function draw({ chosen, layer, head }, shown) {
    // Where the longer line scrolls, the shorter one is spread below it, so that no part stands without lines.
    stage.classList.toggle("course-attention-wide", stage.offsetWidth > scroll.clientWidth);
    const [from, to] = [middles(upper), middles(lower)];
    svg.setAttribute("width", stage.clientWidth);
    const least = shown === NONE ? Math.min(0.02, 0.5 / chosen.keys.length) : SAID / 5;
    const queries = shown === NONE ? chosen.queries.keys() : [shown];
    const lines = [...queries].flatMap((query) => chosen.row(layer, head, query)
      .map((weight, key) => (weight > least ? line(from[query], to[key], weight, shown !== NONE) : null)));
    svg.replaceChildren(...lines.filter(Boolean));
  }

  function line(x1, x2, weight, alone) {
    const path = document.createElementNS(svg.namespaceURI, "path");
    path.setAttribute("d", `M${x1},0 C${x1},${HEIGHT / 2} ${x2},${HEIGHT / 2} ${x2},${HEIGHT}`);
    const faintest = alone ? 0.5 : 0.25; // many lines cross, and each makes those below it stronger
    path.setAttribute("stroke-width", (1 + 9 * weight).toFixed(2));
    path.setAttribute("stroke-opacity", (faintest + (1 - faintest) * Math.min(weight, 1)).toFixed(2));
    return path;
  }

  // ---- Pointer and keys

  const queryOf = (event) => Number(event.target.closest("[data-query]")?.dataset.query ?? NONE);

  function look(query, by) {
    if (by === "pointer") hovered = query;
    else [hovered, focused, stop] = [NONE, query, query];
    update();
  }

  function pin(query) {
    if (query !== NONE) save({ query: query === state().query ? NONE : query });
  }

  function release() {
    hovered = focused = NONE;
    save({ query: NONE });
  }

  function onKey(event) {
    const at = queryOf(event);
    const last = upper.children.length - 1;
    const next = { ArrowLeft: Math.max(at - 1, 0), ArrowRight: Math.min(at + 1, last), Home: 0, End: last }[event.key];
    if (at === NONE || event.ctrlKey || event.altKey || event.metaKey) return;
    if (next === undefined && event.key !== "Escape") return;
    event.preventDefault();
    event.stopPropagation();
    if (event.key === "Escape") return release();
    upper.children[next].focus();
    look(next); // also where the focus does not move: at the end of the line, after Escape
  }

  upper.addEventListener("pointerover", (event) => event.pointerType !== "touch" && look(queryOf(event), "pointer"));
  upper.addEventListener("pointerleave", () => look(NONE, "pointer"));
  upper.addEventListener("click", (event) => pin(queryOf(event)));
  upper.addEventListener("keydown", onKey);
  upper.addEventListener("focusin", (event) => look(queryOf(event)));
  upper.addEventListener("focusout", () => {
    focused = NONE;
    if (built) update();
  });

  for (const name of TRAITS) model.on(`change:${name}`, update);
  const resized = new ResizeObserver(() => draw(state(), active(state()))); // once it is on the page
  resized.observe(stage);
  resized.observe(scroll);
  update();
  return () => {
    resized.disconnect();
    for (const name of TRAITS) model.off(`change:${name}`, update);
  };
}

export default { render };
