// Schedules: what runs at which instants, how it went last, what runs now; and all of them as a picture of a day.
import { h, plural, say, span, table, time } from './dom.js';
import { api, databaseNow, dotted, session, since } from './api.js';
import { changed, dialog, place, titled, within } from './page.js';
import { dayAxis, dayLegend, dayStrip, dayWords, ownZone, today, zoneIsKnown } from './day.js';

const MOST = 1000, PAGE = 100;
let data = null, zone = ownZone;

export const scheduleLink = (namespace) => '#/schedule/' + encodeURIComponent(namespace);
const BAD = { failed: 'silent', dead: 'dead', missed: 'dead', skipped: '', done: 'alive' };
export const ended = (state) => h('span', { class: `liveness ${BAD[state] ?? ''}` }, state);

export const schedules = {
  name: 'schedules', label: 'Schedules', every_s: 3,
  title: () => 'Schedules',
  async load({ parts }) {
    const of = { namespace: parts[0] || '', include_children: true, page_size: PAGE };
    const begun = Date.now(), [list, days] = await Promise.all([all('schedules', of), all('schedule-days', of)]);
    data = { list: list.found, more: list.more, days: new Map(days.found.map((row) => [dotted(row.namespace), row])) };
    // What takes the database long is asked for less often.
    schedules.every_s = Math.max(3, (Date.now() - begun) / 100);
  },
  draw() {
    const { parts, choice } = place(), found = data?.list || [], isDay = choice.get('show') === 'day';
    const running = found.filter((each) => +each.running).length, bad = found.filter((each) => +each.missed || +each.dead || each.trouble).length;
    const at = '#/schedules' + (parts[0] ? '/' + encodeURIComponent(parts[0]) : ''), tab = (words, href, isHere) => h('a', { class: 'button', href, 'aria-current': isHere && 'page' }, words);
    return [titled(!data ? 'Schedules' : found.length ? `${data.more ? 'More than ' : ''}${plural(found.length, 'schedule')}, ${running} running${bad ? `, ${bad} with missed or dead ticks` : ''}` : 'No schedule', schedules),
      within('schedules', parts[0]),
      data && !found.length && h('p', { class: 'none', key: 'none' }, 'A schedule runs work once at each of its instants. Make one: ', h('code', {}, 'leasehold schedule add reports.nightly "0 3 * * *"')),
      found.length > 0 && h('p', { class: 'row', key: 'tabs' }, tab('List', at, !isDay), tab('Picture of today', at + '?show=day', isDay)),
      found.length > 0 && (isDay ? picture(found) : h('section', { class: 'card', key: 'list' }, table('Schedules', ['Schedule', 'Runs at', 'Next', 'Last tick', 'Running now', 'Missed, dead', 'Action'], found.map(line))))];
  },
};

async function all(path, of) {
  const { more, schedules: found } = await api.all(path, of, 'schedules', MOST);
  return { found, more };
}

export const expression = ({ expression: words, time_zone }) => [h('code', {}, words), h('br'), h('small', { class: 'mute' }, time_zone)];
export const nextOf = ({ next_at, paused, trouble }) => trouble ? h('span', { class: 'liveness dead' }, trouble) : paused ? h('span', { class: 'liveness silent' }, 'paused')
  : next_at ? [inWords(Date.parse(next_at)), h('br'), h('small', { class: 'mute' }, time(next_at))] : 'none any more';
export function inWords(at_ms) {
  const left = (at_ms - databaseNow()) / 1000;
  return left > 0 ? `in ${span(left)}` : 'now';
}

function line(each) {
  const namespace = dotted(each.namespace), day = data.days.get(namespace) || {};
  return { key: namespace, cells: [h('a', { href: scheduleLink(namespace) }, namespace), expression(each), nextOf(each),
    day.last_at ? [ended(day.last_state), h('br'), h('small', { class: 'mute' }, time(day.last_at)), day.last_error ? h('pre', {}, day.last_error) : null] : '–', runningNow(each, day), troubles(each), actions(each)] };
}
const runningNow = ({ running }, { running_owner, running_since, running_at }) => !running_at ? '–'
  : [running_owner || h('span', { class: 'mute' }, 'no owner given'), h('br'), h('small', { class: 'mute' }, `for ${span(since(running_since))}`, +running > 1 ? `, and ${plural(running - 1, 'more tick')}` : null)];
const troubles = ({ missed, dead }) => !+missed && !+dead ? '–' : [[missed, 'missed'], [dead, 'dead']].map(([n, words]) => +n ? h('div', {}, h('span', { class: 'liveness dead' }, `${n} ${words}`)) : null);

function picture(found) {
  const now = databaseNow(), day = today(now, zone);
  const zones = [...new Set([ownZone, 'UTC', zone, ...found.map((each) => each.time_zone).filter(zoneIsKnown)])];
  return h('section', { class: 'card', key: 'day' }, h('h2', { class: 'row' }, `${day.words}, midnight to midnight`,
    h('label', { class: 'right inline' }, h('span', {}, 'Time zone'), h('select', { name: 'zone', onchange: (event) => { zone = event.target.value; dispatchEvent(new Event('lh-draw')); } },
      zones.map((name) => h('option', { value: name, selected: name === zone }, name === ownZone ? `${name} (yours)` : name))))),
  dayLegend(), dayTable(found.map((each) => [h('a', { href: scheduleLink(dotted(each.namespace)) }, dotted(each.namespace)), each.paused ? ' (paused)' : null, data.days.get(dotted(each.namespace))]), day, now));
}

// `rows`: the name, more words or null, and the ScheduleDay or undefined.
export const dayTable = (rows, day, now_ms) => [h('div', { class: 'day-row head', 'aria-hidden': 'true', key: 'hours' }, h('span', {}), dayAxis(day), h('span', {})),
  h('div', { role: 'table', 'aria-label': `Ticks of ${day.words}, ${day.zone}`, key: 'rows' }, rows.filter(([, , row]) => row).map(([name, more, row]) => h('div', { class: 'day-row', role: 'row', key: dotted(row.namespace) },
    h('div', { class: 'day-name', role: 'rowheader' }, name, more), h('div', { 'aria-hidden': 'true' }, dayStrip(row, day, now_ms)), h('div', { class: 'day-words mute', role: 'cell' }, dayWords(row, day)))))];

// --- what an administrator may do ---

export const actions = (each) => session.can('admin', dotted(each.namespace)) ? h('div', { class: 'row' }, pauseButton(each), runButton(each)) : '–';

function pauseButton({ namespace: segments, paused }) {
  const namespace = dotted(segments), words = paused ? 'Resume' : 'Pause';
  return h('button', { 'aria-label': `${words} ${namespace}`, onclick: () => dialog(`${words} ${namespace}`, words, false,
    [h('p', {}, paused ? 'Its instants from now on are ticks again.' : 'No tick runs until it is resumed, and the instants until then are skipped. What runs goes on.')],
    async () => { await api.post('schedule-pause', { namespace, paused: !paused }); say(`${namespace} is ${paused ? 'resumed' : 'paused'}.`); changed(); }) }, `${words} …`);
}

function runButton({ namespace: segments, paused }) {
  const namespace = dotted(segments);
  return h('button', { 'aria-label': `Run now ${namespace}`, onclick: () => dialog(`Run ${namespace} now`, 'Run now', false,
    [h('p', {}, `A tick of this second is made, and the next free worker runs it${paused ? ', though the schedule is paused' : ''}.`)],
    async () => { const { at } = await api.post('schedule-run', { namespace }); return [h('p', { class: 'note good' }, 'The tick ', time(at), ' is due.')]; }) }, 'Run now …');
}
