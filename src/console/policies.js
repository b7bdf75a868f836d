// The settings of a namespace, each with the prefix it comes from; freeze and thaw.
import { h, plural, say, span, table } from './dom.js';
import { api, dotted, seconds, session } from './api.js';
import { changed, dialog, place, titled } from './page.js';
import { store } from './store.js';

// Every setting has its place in this table, with what it does.
const SETTINGS = {
  frozen: 'No new grants', expiry: 'Who may end an expired lease', reaper: 'Who reaps', min_duration: 'The shortest lease', max_duration: 'The longest lease',
  grace: 'Left alone after the deadline for', max_hold: 'Held too long after', end_at_max_hold: 'End what is held too long', hand_over_grace: 'Time to answer a request to hand over', dead_after: 'Suspected dead when silent for', capacity: 'Units that shared leases may take',
  at_least: 'Not granted again before', max_leases: 'Leases at most', max_waiters: 'Waiters at most', max_reap_failures: 'Reaps that fail before a person is needed',
  max_priority: 'The highest priority of who waits', ageing: 'One step of priority is worth', hook_timeout: 'A callback may take', free_retention: 'A free scope is remembered for', history: 'Keep every hold', history_retention: 'History is kept for',
};
const UNSET = { dead_after: 'two thirds of the duration', max_leases: 'no limit', max_waiters: 'no limit', max_hold: 'never', capacity: 'no limit', at_least: 'none' };
const words = (value) => value === undefined || value === null || /_UNSPECIFIED$/.test(value) ? null
  : /^[\d.]+s$/.test(value) ? span(seconds(value)) : String(value).replace(/^(EXPIRY|REAPER)_/, '').toLowerCase();
const label = (namespace) => namespace || 'root (all namespaces)';
let own = [], one = null;

export const policies = {
  name: 'policies', label: 'Policies', every_s: 5,
  title: () => place().parts.length ? `Policy of ${label(place().parts[0])}` : 'Policies',
  enter() { one = null; },
  async load({ parts }) {
    const namespace = parts[0];
    const [list, got] = await Promise.all([api.all('policies', {}, 'policies', 2000), parts.length ? api.get('policies', { namespace }) : null, store.loadSpaces()]);
    [own, one] = [list.policies, got];
  },
  draw() {
    const { parts } = place(), namespace = parts[0];
    return [titled(policies.title(), policies), h('form', { class: 'row', key: 'find', onsubmit: (event) => { event.preventDefault(); location.hash = '#/policies/' + encodeURIComponent(new FormData(event.target).get('namespace').trim()); } },
      h('input', { name: 'namespace', list: 'namespaces', 'aria-label': 'Namespace', placeholder: 'Namespace', maxlength: 255, autocomplete: 'off' }),
      h('datalist', { id: 'namespaces' }, [...new Set([...own.map((each) => dotted(each.namespace)), ...store.rows().map((row) => row.name)])].slice(0, 500).map((name) => h('option', { value: name }))),
      h('button', {}, 'Show its settings'), parts.length ? h('a', { href: '#/policies' }, 'All policies') : null),
    parts.length && one ? effective(namespace || '') : list()];
  },
};

function list() {
  const names = [...new Set(['', ...own.map((each) => dotted(each.namespace))])];
  return h('section', { class: 'card', key: 'list' }, table('Configured namespaces', ['Namespace', 'Sets', 'Action'], names.map((name) => {
    const mine = own.find((each) => dotted(each.namespace) === name) || {};
    const sets = Object.keys(SETTINGS).filter((field) => words(mine[field]) !== null).map((field) => `${field} = ${words(mine[field])}`);
    return { key: name, cells: [[h('a', { href: '#/policies/' + encodeURIComponent(name) }, label(name)), ' ', mine.frozen ? h('span', { class: 'liveness silent' }, 'frozen') : null], sets.join(', ') || 'nothing: what is built in holds', freezeButton(name, mine.frozen)] };
  })));
}

function effective(namespace) {
  const rows = Object.keys(SETTINGS).filter((field) => field in one.effective || field in UNSET);
  const isFrozen = Boolean(one.effective.frozen), from = one.source.frozen ?? '';
  return [
    h('div', { class: `note row ${isFrozen ? 'warn' : ''}`, key: 'frozen' }, isFrozen ? `Frozen${from === namespace ? '' : ` by ${label(from)}`}: nobody gets a new lease here; those that are held go on.` : 'Not frozen: leases are granted.', h('span', { class: 'right' }, freezeButton(namespace, isFrozen))),
    h('section', { class: 'card', key: 'one' }, table(`Settings of ${label(namespace)}`, ['Setting', 'Value', 'From', 'What it is'], rows.map((field) => {
      const source = one.source[field], value = words(one.effective[field]);
      return { key: field, cells: [h('code', {}, field), h('b', {}, value ?? UNSET[field]), value === null || source === undefined ? 'built in' : source === namespace ? 'here' : source === '' ? 'root' : h('a', { href: '#/policies/' + encodeURIComponent(source) }, source), SETTINGS[field]] };
    }))),
  ];
}

const freezeButton = (namespace, isFrozen) => session.can('admin', namespace) && h('button', { 'aria-label': `${isFrozen ? 'Thaw' : 'Freeze'} ${label(namespace)}`, onclick: () => dialog(
  `${isFrozen ? 'Thaw' : 'Freeze'} ${label(namespace)}`, isFrozen ? 'Thaw' : 'Freeze', !isFrozen,
  [h('p', {}, isFrozen ? 'Leases are granted again here and below.' : `No new lease is granted here or below until you thaw it. ${plural(store.sum('held', namespace), 'lease')} held now ${store.sum('held', namespace) === 1 ? 'goes' : 'go'} on.`)],
  async () => { await api.post('policy', { namespace, frozen: !isFrozen }); say(`${label(namespace)} is ${isFrozen ? 'thawed' : 'frozen'}.`); changed(); }) }, isFrozen ? 'Thaw …' : 'Freeze …');
