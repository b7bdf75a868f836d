// One schedule: its settings, its day in its own time zone, its ticks with their attempts and what they said.
import { h, plural, span, table, time } from './dom.js';
import { api, databaseNow, dotted, scopeLink, seconds, session } from './api.js';
import { facts, titled } from './page.js';
import { actions, dayTable, ended, inWords, nextOf } from './schedules.js';
import { dayLegend, ownZone, today, zoneIsKnown } from './day.js';

const LAST = 100, NEXT = 5;
let data = null, isOwnZone = false;

export const schedule = {
  name: 'schedule', every_s: 2, namespace: '',
  title: () => schedule.namespace,
  enter({ parts }) {
    if (schedule.namespace !== (parts[0] || '')) data = null;
    schedule.namespace = parts[0] || '';
  },
  async load() {
    const { namespace } = schedule;
    const [one, { schedules: [day] }] = await Promise.all([api.get('schedule', { namespace, next: NEXT, last: LAST }), api.get('schedule-days', { namespace })]);
    if (namespace === schedule.namespace) data = { ...one, day };
  },
  draw() {
    const path = h('p', { key: 'path' }, h('a', { href: '#/schedules' }, 'All schedules'));
    if (!data) return [path, titled(schedule.namespace, schedule)];
    const { schedule: one, next, ticks, day } = data, running = ticks.filter(({ state }) => state === 'TICK_STATE_RUNNING');
    const worst = one.trouble || +one.dead || +one.missed;
    return [path, titled(schedule.namespace, schedule),
      h('div', { class: `note row ${one.trouble ? 'bad' : one.paused ? 'warn' : worst ? 'warn' : 'good'}`, key: 'note' }, h('span', {}, said(one, running)), session.can('admin', schedule.namespace) && h('span', { class: 'right' }, actions(one))),
      day && dayCard(one, day),
      h('section', { class: 'card', key: 'facts' }, h('h2', {}, 'Settings'), facts([
        ['Runs at', h('code', {}, one.expression)], ['Time zone', one.time_zone], ['Next', nextOf(one)],
        !one.paused && next.length > 1 && ['And then', next.slice(1).map((at) => h('div', {}, time(at)))],
        ['Last done', one.last_done_at ? time(one.last_done_at) : 'never'], ['Catches up', one.catch_up.replace('CATCH_UP_', '').toLowerCase() + (one.catch_up === 'CATCH_UP_ALL' ? `, ${one.catch_up_max} at most` : '')],
        ['Missed after', one.tick_deadline ? span(seconds(one.tick_deadline)) : 'the next one is due'], ['At the same time', `${plural(one.overlap, 'tick')} at most`], ['Attempts', `${one.attempts} at most`],
        ['After a failure', `tried again after ${span(seconds(one.backoff))}, then twice as long each time`], one.jitter && seconds(one.jitter) > 0 && ['Jitter', `up to ${span(seconds(one.jitter))}`],
        one.starts_at && ['Starts', time(one.starts_at)], one.ends_at && ['Ends', time(one.ends_at)]])),
      h('section', { class: 'card', key: 'ticks' }, h('h2', {}, ticks.length ? `${ticks.length === LAST ? `The last ${LAST} ticks` : plural(ticks.length, 'tick')}` : 'No tick yet'),
        ticks.length > 0 && table('Ticks, the newest first', ['Instant', 'State', 'Attempt', 'Worker', 'Took', 'Token', 'Said'], ticks.map(line)))];
  },
};

function said(one, running) {
  const words = [one.trouble ? `Its ticks cannot be made: ${one.trouble}.` : one.paused ? 'Paused: no tick runs, unless it is run by hand.' : one.next_at ? `The next tick is due ${inWords(Date.parse(one.next_at))}.` : 'It has no instant any more.'];
  if (running.length) words.push(`${running.map(({ owner }) => owner || 'a worker without a name').join(', ')} ${running.length === 1 ? 'runs' : 'run'} it now.`);
  if (+one.missed || +one.dead) words.push(`Of the ticks that are kept ${one.missed} ${+one.missed === 1 ? 'was' : 'were'} missed and ${one.dead} ${+one.dead === 1 ? 'is' : 'are'} dead.`);
  return words.join(' ');
}

function dayCard(one, row) {
  const zone = isOwnZone || !zoneIsKnown(one.time_zone) ? ownZone : one.time_zone, now = databaseNow(), day = today(now, zone);
  return h('section', { class: 'card', key: 'day' }, h('h2', { class: 'row' }, `${day.words} in ${zone}`,
    one.time_zone !== ownZone && zoneIsKnown(one.time_zone) && h('button', { class: 'right', 'aria-pressed': String(isOwnZone), onclick: () => { isOwnZone = !isOwnZone; dispatchEvent(new Event('lh-draw')); } }, `In my time zone, ${ownZone}`)),
  dayLegend(), dayTable([[h('b', {}, 'Today'), null, row]], day, now));
}

function line({ namespace, at, due_at, state, attempt, token, owner, next_try_at, started_at, ended_at, result, error, instants, until_at, by_hand }) {
  const word = state.replace('TICK_STATE_', '').toLowerCase(), name = dotted(namespace), key = at.replace(/\.\d+/, '');
  const from = Date.parse(started_at), to = ended_at ? Date.parse(ended_at) : word === 'running' ? databaseNow() : NaN;
  return { key: at, cells: [
    [attempt ? h('a', { href: scopeLink(name, key) }, time(at)) : time(at), h('small', { class: 'mute' }, +instants > 1 ? [h('br'), `${plural(+instants, 'instant')}, to `, time(until_at)] : null, by_hand ? [h('br'), 'by hand'] : null,
      due_at !== at ? [h('br'), 'due ', time(due_at)] : null)],
    [word === 'running' ? h('span', { class: 'liveness running' }, word) : ended(word), word === 'failed' && next_try_at ? [h('br'), h('small', { class: 'mute' }, `tried again ${inWords(Date.parse(next_try_at))}`)] : null],
    attempt || '–', attempt ? owner || h('span', { class: 'mute' }, 'no owner given') : '–', Number.isNaN(to - from) ? '–' : span((to - from) / 1000), +token ? h('span', { class: 'mono' }, token) : '–',
    error ? h('pre', {}, error) : result ? h('pre', {}, result) : '–'] };
}
