// One scope: what there is to say and to do about it, who waits, what was before.
import { h, count, plural, span, table, time } from './dom.js';
import { api, databaseNow, idOf, lease, remaining, session, since } from './api.js';
import { dialog, facts, state, titled, who } from './page.js';
import { picture, waiterTable } from './queues.js';
import { strip as holdsStrip } from './charts.js';
import { auditTable } from './audit.js';

const HOLDS = 100, WAITERS = 1000;
const OUTCOMES = { ok: 'released', failed: 'failed', expired: 'expired', forced: 'forced' };
let data = null;

export const scope = {
  name: 'scope', every_s: 1, at: null,
  title: () => scope.at.key,
  enter({ parts }) { scope.at = { namespace: parts[0] || '', key: parts[1] || '' }; data = null; },
  async load() {
    const { at } = scope;
    const [about, queue, history, policy] = await Promise.all([api.get('scope', at), api.get('queue', { ...at, page_size: WAITERS }), api.get('history', { ...at, page_size: HOLDS }), api.get('policies', { namespace: at.namespace })]);
    if (at !== scope.at) return;
    data = { ...about, queue, history, isKept: policy.effective.history, holders: (about.holders?.length ? about.holders : [about.lease]).filter(Boolean).map((raw) => lease(raw, true)) };
  },
  draw() {
    const { namespace, key } = scope.at;
    const path = h('p', { key: 'path' }, h('a', { href: '#/leases/' + encodeURIComponent(namespace) }, namespace));
    if (!data) return [path, titled(key, scope)];
    const { explain, queue, history, isKept, holders, last } = data;
    const worst = holders.find((held) => held.kind !== 'alive');
    return [path, titled(key, scope),
      h('p', { class: `note advice ${worst ? worst.kind === 'dead' ? 'bad' : 'warn' : 'good'}`, key: 'advice' }, sentence(explain.advice)),
      holders.map(holderCard),
      !holders.length && last && h('section', { class: 'card', key: 'last' }, h('h2', {}, 'The last hold'), facts([
        ['Holder', who(last.owner, last.principal)], ['Token', h('span', { class: 'mono' }, last.token)], ['Ended', [time(last.ended_at), ` (${span(since(last.ended_at))} ago)`]],
        ['Outcome', last.end_reason.replace('END_REASON_', '').toLowerCase()], last.error && ['Error', h('pre', {}, last.error)], last.result && ['Result', h('pre', {}, last.result)]])),
      h('section', { class: 'card', key: 'queue' }, h('h2', {}, queue.waiters.length ? `${plural(queue.waiters.length, 'request')} in the queue` : 'Nobody waits'),
        queue.waiters.length ? waiterTable(queue.waiters, false) : null),
      queue.waiters.length || queue.waits.length ? picture(queue.waiters, queue.waits, holders, idOf(namespace, key), queue.partial) : null,
      h('section', { class: 'card', key: 'history' }, h('h2', {}, 'What was before'), timeline(history, isKept, holders)),
    ];
  },
};

const sentence = (advice) => advice.charAt(0).toUpperCase() + advice.slice(1) + (/[.!?]$/.test(advice) ? '' : '.');

function holderCard(held) {
  const left = Math.max(0, remaining(held)), labels = Object.entries(held.labels);
  return h('section', { class: 'card', key: held.id }, h('h2', { class: 'row' }, 'Held now ', state(held),
    session.can('admin', held.namespace) && h('button', { class: 'danger right', onclick: () => force(held) }, 'Force release …')),
  facts([['Holder', who(held.owner, held.principal)], ['Token', h('span', { class: 'mono' }, held.token)],
    ['Held for', [span(since(held.acquired_at)), h('br'), h('small', { class: 'mute' }, 'since ', time(held.acquired_at))]],
    ['Renewals', [count(+held.heartbeats), h('br'), h('small', { class: 'mute' }, `the last ${span(since(held.heartbeat_at))} ago`)]],
    ['Time left', [h('span', { class: `bar ${held.kind}` }, h('i', { style: { '--part': `${Math.min(100, left / held.duration * 100).toFixed(1)}%` } })), `${span(left)} of ${span(held.duration)}, then ${span(held.grace)} of grace`]],
    held.shared && ['Units', held.units],
    labels.length && ['Labels', labels.map(([name, value]) => h('div', {}, h('code', {}, `${name}=${value}`)))]]));
}

function timeline({ holds, next_page_token }, isKept, holders) {
  if (!holds.length) return h('p', { class: 'mute' }, isKept ? 'No hold has ended here yet.' : 'The policy of this namespace keeps no history: set history to true, and every hold from then on is listed here.');
  const now = databaseNow();
  return [
    holdsStrip([...holds.map((hold) => ({ from_ms: Date.parse(hold.acquired_at), to_ms: Date.parse(hold.ended_at), kind: hold.outcome })).reverse(), ...holders.map((held) => ({ from_ms: Date.parse(held.acquired_at), to_ms: now, kind: 'held' }))], now),
    !isKept && h('p', { class: 'mute' }, 'The policy keeps no history any more.'),
    table('Holds, newest first', ['Ended', 'Held for', 'Holder', 'Outcome', 'Ended by', 'Token', 'Said'], holds.map((hold) => ({ key: hold.token, cells: [
      time(hold.ended_at), span((Date.parse(hold.ended_at) - Date.parse(hold.acquired_at)) / 1000), who(hold.owner, hold.principal),
      h('span', { class: `liveness ${hold.outcome === 'ok' ? '' : hold.outcome === 'failed' ? 'silent' : 'dead'}` }, OUTCOMES[hold.outcome] || hold.outcome), hold.ended_by || 'its holder', h('span', { class: 'mono' }, hold.token),
      hold.error ? h('pre', {}, hold.error) : hold.result ? h('pre', {}, hold.result) : '–'] }))),
    next_page_token && h('p', { class: 'mute' }, `The last ${HOLDS} holds.`),
  ];
}

function force(held) {
  const { namespace, key, token } = held;
  dialog('Force release', 'Force release', true, [
    h('p', {}, 'This ends the lease of ', h('b', {}, held.owner || held.principal), ' on ', h('code', {}, key), ' now. ', held.kind === 'alive' ? 'The holder is alive: its next renewal answers LOST. What it does until then is not undone.' : 'If the holder still works, its next renewal answers LOST.'),
    h('label', {}, h('span', {}, 'Reason, for the audit'), h('textarea', { name: 'reason', required: true, rows: 2, maxlength: 8192 })),
    h('label', {}, h('span', {}, 'Type the key to confirm: ', h('code', {}, key)), h('input', { name: 'confirm', required: true, autocomplete: 'off', spellcheck: 'false' }))],
  async ({ reason, confirm }) => {
    if (confirm !== key) throw new Error('What you typed is not the key.');
    await api.post('force-release', { namespace, key, reason, token });
    const { entries } = await api.get('audit', { namespace, key, page_size: 1 });
    return [h('p', { class: 'note good' }, `The lease with token ${token} has ended.`), h('h3', {}, 'In the audit'), auditTable(entries)];
  });
}
