// Leases that have expired and whose reap callback failed: what it said, and when it is tried again.
import { h, plural, span, table, time } from './dom.js';
import { api, databaseNow, dotted, scopeLink, since } from './api.js';
import { actButton, place, titled, who, within } from './page.js';
import { store } from './store.js';

const MOST = 1000;

export const failures = {
  name: 'failures', label: 'Failing reaps', every_s: 2, data: null,
  title: () => 'Failing reaps',
  badge: () => { const n = store.sum('failing'); return n ? { text: n, words: 'fail', bad: true } : null; },
  async load({ parts }) {
    const namespace = parts[0] || '', data = await api.all('failures', { namespace, include_children: true }, 'failures', MOST);
    failures.data = data;
    if (place().name === 'failures') store.tell('failing', namespace, data.more ? null : data.failures.map(({ scope }) => dotted(scope.namespace)));
  },
  leave() { store.tell('failing', '', null); },
  draw() {
    const found = failures.data?.failures || [];
    return [
      titled(found.length ? `${failures.data.more ? 'More than ' : ''}${plural(found.length, 'lease')} cannot be reaped` : 'No reap fails', failures), within('failures', place().parts[0]),
      found.length ? h('p', { class: 'mute', key: 'note' }, 'These leases have expired, and the callback of their namespace refused to let them go. Nobody gets them until it succeeds.') : null,
      found.length ? h('section', { class: 'card', key: 'list' }, table('Failing reaps', ['Scope', 'Holder was', 'The callback said', 'Failed', 'Next try', 'Action'], found.map(line))) : null,
    ];
  },
};

function line({ scope, token, owner, principal, reap_failures, error, failed_at, next_try_at }) {
  const namespace = dotted(scope.namespace), wait = next_try_at ? (Date.parse(next_try_at) - databaseNow()) / 1000 : null;
  return { key: namespace + scope.key + token, cells: [
    [h('a', { href: scopeLink(namespace, scope.key) }, scope.key), h('br'), h('small', { class: 'mute' }, namespace)], who(owner, principal), h('pre', {}, error),
    [plural(reap_failures, 'time'), h('br'), h('small', { class: 'mute' }, `the last ${span(since(failed_at))} ago`)],
    wait === null ? h('span', { class: 'liveness dead' }, 'waits for a person') : wait > 0 ? ['in ' + span(wait), h('br'), h('small', { class: 'mute' }, time(next_try_at))] : 'now',
    h('div', { class: 'row' }, actButton(namespace, 'Retry', `Retry ${scope.key} now, whenever its next try is`, () => retry(namespace, { key: scope.key })),
      actButton(namespace, `Retry all in ${namespace}`, `Retry all in ${namespace}, whenever their next try is`, () => retry(namespace, {})))] };
}

async function retry(namespace, one) {
  const { reaped, failures: failed } = await api.post('reap', { namespace, include_children: false, ...one });
  return `${one.key ?? namespace}: ${plural(reaped, 'lease')} reaped, ${failed.length} failed again.`;
}
