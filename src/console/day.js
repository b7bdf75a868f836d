// A picture of a day: a row for each schedule, and in it what its ticks are, from midnight to midnight of a time zone. Words beside a row
// say how many there are of each state; a screen reader gets those.
import { count, h, plural } from './dom.js';
import { seconds } from './api.js';

const MINUTE_MS = 60000, HOUR_MS = 3600000;
// By the number of a TickState, 0: to come. What is above the line went as it should, what hangs below it did not.
const KINDS = [['coming', 'to come'], ['due', 'due'], ['running', 'running'], ['done', 'done'], ['failed', 'failed, tried again'], ['dead', 'dead: failed for good'], ['missed', 'missed'], ['skipped', 'skipped']];
const [COMING, DUE, RUNNING, DONE, FAILED, DEAD, MISSED, SKIPPED] = KINDS.keys();
// How high a mark is, above the line or, negative, below it.
const HEIGHTS = [9, 12, 16, 16, -9, -15, -15, 4];
// A minute is as wide as this; a mark is at least as wide as it can be seen on a small screen.
const WIDEST = 1440, THINNEST = 6, LINE = 20;

export const ownZone = Intl.DateTimeFormat().resolvedOptions().timeZone || 'UTC';
const clocks = new Map();
function clock(zone) {
  if (!clocks.has(zone)) {
    const options = { hourCycle: 'h23', year: 'numeric', month: '2-digit', day: '2-digit', hour: '2-digit', minute: '2-digit', second: '2-digit' };
    let made;
    // The database may know a zone that the browser does not.
    try { made = new Intl.DateTimeFormat('en', { ...options, timeZone: zone }); } catch { made = new Intl.DateTimeFormat('en', { ...options, timeZone: 'UTC' }); }
    clocks.set(zone, made);
  }
  return clocks.get(zone);
}
export const zoneIsKnown = (zone) => { try { return Boolean(new Intl.DateTimeFormat('en', { timeZone: zone })); } catch { return false; } };

// What a clock in the zone shows, as if it were UTC.
function local(at_ms, zone) {
  const part = Object.fromEntries(clock(zone).formatToParts(at_ms).map(({ type, value }) => [type, +value]));
  return Date.UTC(part.year, part.month - 1, part.day, part.hour, part.minute, part.second);
}
// When a clock in the zone shows this; twice, because the offset may be another one there.
function instant(local_ms, zone) {
  let at = local_ms;
  for (let i = 0; i < 2; i++) at = local_ms - (local(at, zone) - Math.floor(at / 1000) * 1000);
  return at;
}
// Today in the zone: 23, 24 or 25 hours.
export function today(now_ms, zone) {
  const shown = new Date(local(now_ms, zone)), midnight = (day) => instant(Date.UTC(shown.getUTCFullYear(), shown.getUTCMonth(), day), zone);
  return { zone, begins: midnight(shown.getUTCDate()), ends: midnight(shown.getUTCDate() + 1), words: shown.toISOString().slice(0, 10) };
}
export function hourMinute(at_ms, zone) {
  return new Date(local(at_ms, zone)).toISOString().slice(11, 16);
}

// The entries of a ScheduleDay that are of this day: {state, from, to, ticks}, ticks in each period.
function marks({ begins_at, period, first, length, states, ticks }, day) {
  const begins = Date.parse(begins_at), period_ms = seconds(period) * 1000;
  return first.map((nth, i) => {
    // Whole periods that begin today.
    const skip = Math.max(0, Math.ceil((day.begins - begins) / period_ms) - nth);
    const end = Math.min(nth + length[i], Math.ceil((day.ends - begins) / period_ms));
    return { state: states[i], from: begins + (nth + skip) * period_ms, to: begins + end * period_ms, periods: end - nth - skip, ticks: ticks[i] };
  }).filter(({ periods }) => periods > 0);
}

// "12 done, 1 missed, 4 to come": the words of a row.
export function dayWords(row, day) {
  const sums = KINDS.map(() => 0);
  for (const { state, periods, ticks } of marks(row, day)) sums[state] += periods * ticks;
  const more = row.listed_until && Date.parse(row.listed_until) < day.ends;
  return sums.map((n, state) => n ? `${count(n)}${state === COMING && more ? '+' : ''} ${state === COMING ? 'to come' : KINDS[state][0]}` : null).filter(Boolean).join(', ') || 'no tick';
}

function mark({ state, from, to, periods, ticks }, day) {
  const scale = WIDEST / (day.ends - day.begins), x = (from - day.begins) * scale, width = Math.max(THINNEST, (to - from) * scale);
  // One a period is lower than five or more.
  const high = Math.abs(HEIGHTS[state]) * (state === RUNNING || state === SKIPPED ? 1 : .6 + .4 * Math.min(1, (ticks - 1) / 4));
  const words = `${hourMinute(from, day.zone)}${periods > 1 ? ' to ' + hourMinute(to, day.zone) : ''}: ${plural(periods * ticks, 'tick')} ${KINDS[state][1]}`;
  return h('rect', { class: KINDS[state][0], x: Math.min(x, WIDEST - width).toFixed(1), width: width.toFixed(1), y: (HEIGHTS[state] > 0 ? LINE - high : LINE).toFixed(1), height: high.toFixed(1) }, h('title', {}, words));
}

// One row's picture.
export function dayStrip(row, day, now_ms) {
  const now = ((now_ms - day.begins) / (day.ends - day.begins) * WIDEST).toFixed(1), until = row.listed_until && Date.parse(row.listed_until);
  const more = until && until < day.ends && (Math.max(until, day.begins) - day.begins) / (day.ends - day.begins) * WIDEST;
  return h('svg', { class: 'day', viewBox: `0 0 ${WIDEST} 38`, preserveAspectRatio: 'none', 'aria-hidden': 'true' },
    h('line', { class: 'ground', x1: 0, x2: WIDEST, y1: LINE, y2: LINE }),
    more && h('rect', { class: 'more', x: more.toFixed(1), y: LINE - 5, width: (WIDEST - more).toFixed(1), height: 5 }, h('title', {}, 'and so on')),
    marks(row, day).map((each) => mark(each, day)),
    h('line', { class: 'now', x1: now, x2: now, y1: 0, y2: 38 }));
}

// The hours above the rows, and what the marks mean.
export function dayAxis(day) {
  const hours = [];
  for (let at = day.begins; at <= day.ends; at += 3 * HOUR_MS) hours.push(at);
  return h('div', { class: 'hours mute', 'aria-hidden': 'true' }, hours.map((at) =>
    h('span', { style: { '--at': `${((at - day.begins) / (day.ends - day.begins) * 100).toFixed(2)}%` } }, at > day.ends - MINUTE_MS ? '24:00' : hourMinute(at, day.zone))));
}
export const dayLegend = () => h('ul', { class: 'legend mute', 'aria-label': 'What the marks mean', key: 'legend' }, [DONE, RUNNING, DUE, COMING, SKIPPED, FAILED, DEAD, MISSED].map((state) => h('li', { key: state },
  h('svg', { class: 'day', viewBox: '0 0 14 38', 'aria-hidden': 'true' }, h('line', { class: 'ground', x1: 0, x2: 14, y1: LINE, y2: LINE }), mark({ state, from: 0, to: 6, periods: 1, ticks: 5 }, { begins: -4, ends: WIDEST - 4, zone: 'UTC' })),
  KINDS[state][1])));
