// One scope: what there is to say and to do about it, who waits, what was before.
import { h, count, plural, span, table, time } from './dom.js';
import { api, databaseNow, dotted, idOf, lease, remaining, seconds, session, since } from './api.js';
import { copy, dialog, facts, mode, ranges, state, titled, who } from './page.js';
import { picture, waiterTable } from './queues.js';
import { strip as holdsStrip } from './charts.js';
import { auditTable } from './audit.js';
import { store } from './store.js';

const HOLDS = 100, WAITERS = 1000;
const OUTCOMES = { ok: 'released', failed: 'failed', expired: 'expired', forced: 'forced', max_hold: 'ended at max_hold', downgraded: 'went on as shared' };
let data = null;

export const scope = {
  name: 'scope', every_s: 1, at: null,
  title: () => scope.at.key,
  enter({ parts }) { scope.at = { namespace: parts[0] || '', key: parts[1] || '' }; data = null; },
  async load() {
    const { at } = scope;
    const [about, queue, history, policy] = await Promise.all([api.get('scope', at), api.get('queue', { ...at, page_size: WAITERS }), api.get('history', { ...at, page_size: HOLDS }), api.get('policies', { namespace: at.namespace })]);
    if (at !== scope.at) return;
    const { contention, holders = [] } = about;
    data = { ...about, queue, history, isKept: policy.effective.history, capacity: policy.effective.capacity, holders: holders.map((raw) => lease(raw, true)),
      rests_until: contention?.rests ? databaseNow() + seconds(contention.rests) * 1000 : 0 };
  },
  draw() {
    const { namespace, key } = scope.at;
    const path = h('p', { key: 'path' }, h('a', { href: '#/leases/' + encodeURIComponent(namespace) }, namespace), ' ', copy(key, 'key'));
    if (!data) return [path, titled(key, scope)];
    const { explain, queue, history, isKept, holders, last } = data, here = idOf(namespace, key);
    const worst = holders.find((held) => held.kind !== 'alive');
    return [path, titled(key, scope),
      h('p', { class: `note advice ${worst ? worst.kind === 'dead' ? 'bad' : 'warn' : 'good'}`, key: 'advice' }, sentence(explain.advice)),
      restNote(data),
      holders.some((held) => held.shared) ? sharedCard(data) : holders.map(holderCard),
      !holders.length && last && h('section', { class: 'card', key: 'last' }, h('h2', {}, 'The last hold'), facts([
        ['Holder', who(last.owner, last.principal)], ['Token', h('span', { class: 'mono' }, last.token)], ['Ended', [time(last.ended_at), ` (${span(since(last.ended_at))} ago)`]],
        ['Outcome', last.end_reason.replace('END_REASON_', '').toLowerCase()], last.error && ['Error', h('pre', {}, last.error)], last.result && ['Result', h('pre', {}, last.result)]])),
      h('section', { class: 'card', key: 'queue' }, h('h2', {}, queue.waiters.length ? `${plural(queue.waiters.length, 'request')} in the queue` : 'Nobody waits'),
        queue.waiters.length ? waiterTable(queue.waiters, false, new Map([[here, holders]])) : null),
      queue.waiters.length || queue.waits.length ? picture(queue.waiters, queue.waits, new Map([...store.at(queue.waits.map(({ wants }) => idOf(dotted(wants.namespace), wants.key))), [here, holders]]), here, queue.partial) : null,
      h('section', { class: 'card', key: 'history' }, h('h2', {}, 'What was before'), timeline(history, isKept, holders)),
    ];
  },
};

const sentence = (advice) => advice.charAt(0).toUpperCase() + advice.slice(1) + (/[.!?]$/.test(advice) ? '' : '.');

function holderCard(held) {
  const labels = Object.entries(held.labels);
  return h('section', { class: 'card', key: held.id }, h('h2', { class: 'row' }, 'Held now ', state(held), h('span', { class: 'right row' }, askButton(held, null), forceButton('Force release …', null, () => force(held)))),
  facts([['Holder', [who(held.owner, held.principal), h('br'), copy(held.owner, 'owner')]], ['Mode', mode(held)], ['Token', [h('span', { class: 'mono' }, held.token), h('br'), copy(held.token, 'token')]],
    ['Held for', [span(since(held.acquired_at)), h('br'), h('small', { class: 'mute' }, 'since ', time(held.acquired_at))]],
    ['Renewals', [count(+held.heartbeats), h('br'), h('small', { class: 'mute' }, `the last ${span(since(held.heartbeat_at))} ago`)]],
    ['Time left', timeLeft(held)], held.asked && ['Asked to hand over', askedWords(held.asked)],
    labels.length && ['Labels', labels.map(([name, value]) => h('div', {}, h('code', {}, `${name}=${value}`)))]]));
}

const bar = (part, kind) => h('span', { class: `bar ${kind}` }, h('i', { style: { '--part': `${Math.min(100, part * 100).toFixed(1)}%` } }));
function timeLeft(held) {
  const left = Math.max(0, remaining(held));
  return [bar(left / held.duration, held.kind), `${span(left)} of ${span(held.duration)}, then ${span(held.grace)} of grace`];
}
const forceButton = (words, label, run) => session.can('admin', scope.at.namespace) && h('button', { class: 'danger right', 'aria-label': label, onclick: run }, words);

// --- a request to hand over: the holder answers, or does not ---

const askedState = ({ answer_by, refusal }) => refusal ? ['dead', 'refused'] : Date.parse(answer_by) > databaseNow() ? ['silent', 'no answer yet'] : ['dead', 'not answered'];
function askedWords(asked) {
  const [kind, words] = askedState(asked), left = (Date.parse(asked.answer_by) - databaseNow()) / 1000;
  return [h('span', { class: `liveness ${kind}` }, words), h('div', {}, 'by ', asked.by, asked.by !== asked.principal ? h('small', { class: 'mute' }, ` ${asked.principal}`) : null, `, ${span(since(asked.asked_at))} ago`),
    asked.reason ? h('pre', {}, asked.reason) : null, asked.refusal ? [h('small', { class: 'mute' }, 'The holder said:'), h('pre', {}, asked.refusal)] : h('small', { class: 'mute' }, 'to answer by ', time(asked.answer_by), left > 0 ? `, in ${span(left)}` : null)];
}
const askButton = ({ owner, principal, token }, label) => session.can('admin', scope.at.namespace) && h('button', { 'aria-label': label, onclick: () => dialog('Ask to hand over', 'Ask', false, [
  h('p', {}, 'This asks ', h('b', {}, owner || principal), ' to release ', h('code', {}, scope.at.key), '. Its program is told at its next renewal, and answers as it likes: it releases, refuses, or goes on. Its lease does not end by this.'),
  h('label', {}, h('span', {}, 'Reason, for the holder and the audit'), h('textarea', { name: 'reason', required: true, rows: 2, maxlength: 1024 }))],
async ({ reason }) => {
  const { namespace, key } = scope.at, { holders: [{ asked }] } = await api.post('ask-hand-over', { namespace, key, token, reason });
  return h('p', { class: 'note good' }, `${owner || principal} is asked, and has until `, time(asked.answer_by), ' to answer.');
}) }, 'Ask to hand over …');

// Until when nobody gets it, whoever holds it.
function restNote({ rests_until, holders }) {
  const left = (rests_until - databaseNow()) / 1000;
  return left > 0 && h('div', { class: 'note row', key: 'rests' }, h('span', {}, 'Rests until ', time(new Date(rests_until).toISOString()), `, for another ${span(left)}: before that it is granted to nobody${holders.length ? ', even if it is released' : ''}.`),
    !holders.length && forceButton('End the rest …', null, endRest));
}

// All who share it, a row for each.
function sharedCard({ explain, capacity, holders, holder_count }) {
  const units = capacity ? [bar(explain.units / capacity, ''), `${count(explain.units)} of ${plural(capacity, 'unit')} taken, ${count(Math.max(0, capacity - explain.units))} free`] : `${plural(explain.units, 'unit')} taken; the policy sets no capacity`;
  return h('section', { class: 'card', key: 'holders' }, h('h2', { class: 'row' }, `Shared by ${plural(holder_count, 'holder')}`,
    holder_count > 1 && forceButton('Force release all …', `Force release all ${count(holder_count)} holders`, () => forceAll(holder_count))),
  h('p', { class: 'units' }, units),
  table('Holders, the oldest first', ['Holder', 'State', 'Units', 'Slots', 'Time left', 'Held for', 'Renewals', 'Token', 'Action'], holders.map((held) => ({ key: held.token, cells: [
    [who(held.owner, held.principal), h('br'), copy(held.owner, 'owner'), Object.entries(held.labels).map(([name, value]) => h('div', {}, h('code', {}, `${name}=${value}`)))], [state(held), held.asked ? h('div', {}, 'Asked to hand over: ', askedWords(held.asked)) : null], count(held.units), ranges(held.slots) || '–', timeLeft(held),
    h('span', { title: held.acquired_at }, span(since(held.acquired_at))), [count(+held.heartbeats), h('br'), h('small', { class: 'mute' }, `the last ${span(since(held.heartbeat_at))} ago`)], [h('span', { class: 'mono' }, held.token), h('br'), copy(held.token, 'token')],
    session.can('admin', scope.at.namespace) ? h('div', { class: 'row' }, askButton(held, `Ask to hand over, ${held.owner || held.principal}, token ${held.token}`), forceButton('Force release …', `Force release ${held.owner || held.principal}, token ${held.token}`, () => force(held))) : '–'] }))),
  holder_count > holders.length && h('p', { class: 'mute' }, `The oldest ${holders.length} of ${count(holder_count)}.`));
}

function timeline({ holds, next_page_token }, isKept, holders) {
  if (!holds.length) return h('p', { class: 'mute' }, isKept ? 'No hold has ended here yet.' : 'The policy of this namespace keeps no history: set history to true, and every hold from then on is listed here.');
  const now = databaseNow();
  return [
    holdsStrip([...holds.map((hold) => ({ from_ms: Date.parse(hold.acquired_at), to_ms: Date.parse(hold.ended_at), kind: hold.outcome, shared: isShared(hold) })), ...holders.map((held) => ({ from_ms: Date.parse(held.acquired_at), to_ms: now, kind: 'held', shared: held.shared }))].sort((a, b) => a.from_ms - b.from_ms), now),
    !isKept && h('p', { class: 'mute' }, 'The policy keeps no history any more.'),
    table('Holds, newest first', ['Ended', 'Held for', 'Holder', 'Mode', 'Outcome', 'Ended by', 'Token', 'Said'], holds.map((hold) => ({ key: hold.token, cells: [
      time(hold.ended_at), span((Date.parse(hold.ended_at) - Date.parse(hold.acquired_at)) / 1000), who(hold.owner, hold.principal), mode(hold),
      h('span', { class: `liveness ${hold.outcome === 'ok' || hold.outcome === 'downgraded' ? '' : hold.outcome === 'failed' ? 'silent' : 'dead'}` }, OUTCOMES[hold.outcome] || hold.outcome), hold.ended_by || 'its holder', h('span', { class: 'mono' }, hold.token),
      hold.error ? h('pre', {}, hold.error) : hold.result ? h('pre', {}, hold.result) : '–'] }))),
    next_page_token && h('p', { class: 'mute' }, `The last ${HOLDS} holds.`),
  ];
}

const isShared = (hold) => hold.mode === 'MODE_SHARED';

// `which`: the fields that choose what ends; `said(answer)`: what came of it.
function end(title, words, which, said) {
  const { namespace, key } = scope.at;
  dialog(title, title, true, [words,
    h('label', {}, h('span', {}, 'Reason, for the audit'), h('textarea', { name: 'reason', required: true, rows: 2, maxlength: 8192 })),
    h('label', {}, h('span', {}, 'Type the key to confirm: ', h('code', {}, key)), h('input', { name: 'confirm', required: true, autocomplete: 'off', spellcheck: 'false' }))],
  async ({ reason, confirm }) => {
    if (confirm !== key) throw new Error('What you typed is not the key.');
    const answer = await api.post('force-release', { namespace, key, reason, ...which });
    const { entries } = await api.get('audit', { namespace, key, page_size: Math.min(100, Math.max(1, answer.leases.length)) });
    return [h('p', { class: 'note good' }, said(answer)), h('h3', {}, 'In the audit'), auditTable(entries)];
  });
}

const force = ({ owner, principal, token, kind, shared }) => end('Force release',
  h('p', {}, 'This ends the lease of ', h('b', {}, owner || principal), ' on ', h('code', {}, scope.at.key), ' now. ', shared && 'The other holders keep theirs. ',
    kind === 'alive' ? 'The holder is alive: its next renewal answers LOST. What it does until then is not undone.' : 'If the holder still works, its next renewal answers LOST.'),
  { token }, () => `The lease with token ${token} has ended.`);

const forceAll = (n) => end('Force release all',
  h('p', {}, 'This ends every lease of ', h('code', {}, scope.at.key), ` now: ${plural(n, 'holder')} when you opened this. The next renewal of each answers LOST.`),
  { all: true }, ({ leases }) => `${plural(leases.length, 'lease')} ${leases.length === 1 ? 'has' : 'have'} ended.`);

const endRest = () => end('End the rest',
  h('p', {}, h('code', {}, scope.at.key), ' may be granted at once then. A job that must not run twice within the minimum hold may run twice.'), {}, () => 'The rest has ended.');
