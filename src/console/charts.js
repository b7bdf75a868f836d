// Small pictures in SVG: a line over the last hour, who waits for whom, and the holds of a scope. The words and tables beside
// them say the same; a screen reader gets those.
import { h, span } from './dom.js';

// `lines`: for each of them values at even distances, oldest first, null where nothing is known. `words(value)` is the value with its unit.
export function chart(title, lines, words, note, from_s) {
  const size = Math.max(2, ...lines.map((line) => line.length));
  const top = Math.max(1e-9, ...lines.flat().filter((value) => value !== null)) * 1.1;
  const x = (i) => (i + size - lines[0].length) / (size - 1) * 100, y = (value) => 40 - value / top * 38;
  // The pieces of a line between its gaps; one point alone is a dash.
  const pieces = (line) => {
    const found = [];
    line.forEach((value, i) => {
      if (value === null) return;
      if (!i || line[i - 1] === null) found.push([]);
      found.at(-1).push(`${x(i).toFixed(2)},${y(value).toFixed(2)}`);
    });
    return found.map((piece) => piece.length > 1 ? piece : [piece[0], piece[0].replace(/^[^,]+/, (at) => String(+at + 0.3))]);
  };
  const now = lines.map((line) => line.at(-1));
  const said = h('b', {}, now[0] === null || now[0] === undefined ? '–' : words(now[0]));
  const caption = h('figcaption', {}, note);
  const box = h('svg', { viewBox: '0 0 100 40', preserveAspectRatio: 'none', 'aria-hidden': 'true' },
    h('line', { class: 'ground', x1: 0, x2: 100, y1: 40, y2: 40 }),
    pieces(lines[0]).map((piece) => h('path', { class: 'area', d: `M${piece[0].split(',')[0]},40L${piece.join('L')}L${piece.at(-1).split(',')[0]},40z` })),
    lines.map((line, i) => pieces(line).map((piece) => h('polyline', { class: i ? 'edge two' : 'edge', points: piece.join(' ') }))));
  return h('figure', { class: 'chart card', key: title, onpointerleave: (event) => { event.currentTarget.querySelector('figcaption').textContent = note; },
    onpointermove: (event) => {
      const figure = event.currentTarget, area = figure.querySelector('svg').getBoundingClientRect();
      const part = Math.min(1, Math.max(0, (event.clientX - area.left) / area.width)), i = Math.round(part * (size - 1)) - (size - lines[0].length);
      const here = lines.map((line) => line[i]).filter((value) => value !== null && value !== undefined);
      if (here.length) figure.querySelector('figcaption').textContent = `${here.map(words).join(' · ')}, ${span((1 - part) * from_s)} ago`;
    } },
  h('h3', {}, title), said, now.length > 1 && now[1] !== null && h('span', { class: 'mute' }, ' · ' + words(now[1])), box, caption);
}

const LANES = 12, WIDTH = 180, HEIGHT = 40, GAP_X = 70, GAP_Y = 14;

// `edges`: {from, to, kind: 'waits' | 'holds'} between nodes {id, name, note, kind: 'owner' | 'scope', href}; waiting goes from an
// owner to a scope, holding from a scope to its owner. Who waits in a circle is red.
export function graph(nodes, edges, here) {
  const out = new Map(nodes.map((node) => [node.id, []]));
  for (const edge of edges) out.get(edge.from).push(edge);
  const circles = inCircles(nodes, out);
  const depth = new Map();
  const walk = (id, at, path) => {
    if (path.has(id) || (depth.get(id) ?? -1) >= at) return;
    depth.set(id, at);
    path.add(id);
    for (const edge of out.get(id)) walk(edge.to, at + 1, path);
    path.delete(id);
  };
  const aimed = new Set(edges.map((edge) => edge.to));
  for (const node of nodes) if (!aimed.has(node.id)) walk(node.id, 0, new Set());
  for (const node of nodes) if (!depth.has(node.id)) walk(node.id, 0, new Set());
  const columns = [];
  for (const node of nodes) (columns[depth.get(node.id)] ||= []).push(node);
  const place = new Map();
  columns.forEach((column, c) => column.forEach((node, r) => place.set(node.id, { x: 8 + c * (WIDTH + GAP_X), y: 8 + r * (HEIGHT + GAP_Y) })));
  const rows = Math.max(...columns.map((column) => column.length)), bottom = 8 + rows * (HEIGHT + GAP_Y);
  const width = columns.length * (WIDTH + GAP_X) - GAP_X + 16, height = bottom + (circles.size ? 34 : 0);
  const line = ({ from, to, kind }) => {
    const a = place.get(from), b = place.get(to), red = circles.has(from) && circles.get(from) === circles.get(to);
    const [x1, y1, x2, y2] = [a.x + WIDTH, a.y + HEIGHT / 2, b.x - 5, b.y + HEIGHT / 2];
    const d = x2 > x1 ? `M${x1},${y1}C${x1 + 35},${y1} ${x2 - 35},${y2} ${x2},${y2}`
      : `M${a.x + WIDTH / 2},${a.y + HEIGHT}C${a.x + WIDTH / 2},${bottom + 30} ${b.x + WIDTH / 2},${bottom + 30} ${b.x + WIDTH / 2},${b.y + HEIGHT + 5}`;
    return h('path', { class: `${kind}${red ? ' circle' : ''}`, d, 'marker-end': 'url(#tip)' });
  };
  const cut = (text, most) => text.length > most ? text.slice(0, most - 1) + '…' : text;
  const box = (node) => {
    const { x, y } = place.get(node.id), kind = `${node.kind}${node.id === here ? ' here' : ''}${circles.has(node.id) ? ' circle' : ''}`;
    return h('g', { class: kind, transform: `translate(${x},${y})` }, h('title', {}, `${node.name} ${node.note}`),
      h('rect', { width: WIDTH, height: HEIGHT, rx: node.kind === 'scope' ? 4 : 20 }),
      h('text', { x: 14, y: 17 }, cut(node.name, 22)), h('text', { class: 'mute', x: 14, y: 32 }, cut(node.note, 26)));
  };
  return { circles: circles.size > 0, picture: h('div', { class: 'graph', role: 'img', tabindex: 0, 'aria-label': words(nodes, edges) },
    h('svg', { width, height, viewBox: `0 0 ${width} ${height}` },
      h('defs', {}, h('marker', { id: 'tip', viewBox: '0 0 8 8', refX: 4, refY: 4, markerWidth: 7, markerHeight: 7, orient: 'auto' }, h('path', { d: 'M0,0L8,4L0,8z' }))),
      edges.map(line), nodes.map(box))) };
}

function words(nodes, edges) {
  const name = new Map(nodes.map((node) => [node.id, node.name]));
  return edges.slice(0, 40).map(({ from, to, kind }) => kind === 'waits' ? `${name.get(from)} waits for ${name.get(to)}` : `${name.get(to)} holds ${name.get(from)}`).join('; ');
}

// Tarjan's strongly connected components of more than one node: id -> number of its circle.
function inCircles(nodes, out) {
  const index = new Map(), low = new Map(), stack = [], on = new Set(), circles = new Map();
  const visit = (id) => {
    index.set(id, index.size); low.set(id, index.get(id)); stack.push(id); on.add(id);
    for (const { to } of out.get(id)) {
      if (!index.has(to)) { visit(to); low.set(id, Math.min(low.get(id), low.get(to))); }
      else if (on.has(to)) low.set(id, Math.min(low.get(id), index.get(to)));
    }
    if (low.get(id) !== index.get(id)) return;
    const members = stack.splice(stack.indexOf(id));
    for (const member of members) { on.delete(member); if (members.length > 1) circles.set(member, index.get(id)); }
  };
  for (const node of nodes) if (!index.has(node.id)) visit(node.id);
  return circles;
}

// `holds`: {from_ms, to_ms, kind, shared}, the oldest first; from the first to now. Shared ones that overlap are drawn one above the other.
export function strip(holds, now_ms) {
  const first = Math.min(...holds.map((hold) => hold.from_ms)), whole = Math.max(1, now_ms - first);
  const free_at = [], lane = holds.map(({ from_ms, to_ms, shared }) => {
    if (!shared) return 0;
    let at = free_at.findIndex((end) => end <= from_ms);
    if (at < 0) at = Math.min(free_at.length, LANES - 1);
    free_at[at] = Math.max(free_at[at] || 0, to_ms);
    return at;
  });
  const height = 24 / Math.max(1, free_at.length);
  const picture = h('svg', { class: 'strip', viewBox: '0 0 1000 34', preserveAspectRatio: 'none', 'aria-hidden': 'true' },
    h('line', { x1: 0, x2: 1000, y1: 30, y2: 30 }),
    holds.map(({ from_ms, to_ms, kind, shared }, i) => h('rect', { class: kind, x: ((from_ms - first) / whole * 1000).toFixed(1), y: (6 + (shared ? lane[i] * height : 0)).toFixed(1),
      height: (shared ? Math.max(1, height - 1) : 24).toFixed(1), width: Math.max(2, (to_ms - from_ms) / whole * 1000 - 1).toFixed(1) })));
  const axis = [0, .25, .5, .75, 1].map((part) => h('span', {}, part === 1 ? 'now' : `${span((1 - part) * whole / 1000)} ago`));
  return [picture, h('div', { class: 'axis mute', 'aria-hidden': 'true' }, axis)];
}
