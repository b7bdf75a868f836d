// The daemons and their database, and the last hour of the one that answers.
import { h, count, plural, span, table, time } from './dom.js';
import { api, seconds, since } from './api.js';
import { facts, titled } from './page.js';
import { chart } from './charts.js';

let data = null;
const OLD_TRANSACTION_S = 60, LAG_S = 30;

export const daemons = {
  name: 'daemons', label: 'Daemons', every_s: 5,
  title: () => 'Daemons and database',
  async load() { data = await api.get('daemons'); },
  draw() {
    if (!data) return titled('Daemons and database', daemons);
    const { daemons: all, database, status, samples } = data, living = all.filter((each) => each.live).length;
    const oldest = seconds(database.oldest_transaction), lag = seconds(database.reaper_lag), warn = (text) => h('span', { class: 'liveness silent' }, text);
    return [titled(status.trouble ? 'This daemon cannot serve' : `${plural(living, 'daemon')} live${living < all.length ? `, ${all.length - living} silent` : ''}`, daemons),
      status.trouble && h('p', { class: 'note bad', key: 'bad' }, status.trouble),
      h('section', { class: 'card', key: 'database' }, h('h2', {}, 'Database'), facts([
        ['Server', status.server], ['PostgreSQL', database.version], ['Role', database.role === 'primary' ? 'primary' : warn(database.role)], ['Timeline', status.timeline], ['Schema', database.schema_version],
        ['Oldest transaction', !database.oldest_transaction ? 'unknown: the daemon’s role cannot see it' : oldest > OLD_TRANSACTION_S ? warn(span(oldest)) : span(oldest)],
        ['Reaper behind by', !database.reaper_lag ? 'unknown' : lag > LAG_S ? warn(span(lag)) : span(lag)]])),
      status.databases?.length > 0 && h('section', { class: 'card', key: 'databases' }, h('h2', {}, 'Databases'), table('Databases', ['Name', 'State', 'Server', 'Timeline', 'Waiters', 'Namespaces'], status.databases.map((each) => ({ key: each.name, cells: [
        each.name, h('span', { class: `liveness ${each.trouble ? 'dead' : 'alive'}` }, each.trouble || 'serving'), each.server, each.timeline, each.waiters,
        [...each.namespaces.map((space) => space.segments.join('.')), ...each.is_default ? ['all others'] : []].join(', ')] })))),
      h('section', { key: 'hour', 'aria-label': 'The last hour of this daemon' }, hour(samples)),
      h('section', { class: 'card', key: 'daemons' }, h('h2', {}, 'Daemons'), table('Daemons', ['Host', 'State', 'Version', 'Started', 'Seen', 'ID'], all.map((each) => ({ key: each.id, cells: [
        [`${each.host} `, h('small', { class: 'mute' }, `pid ${each.pid}`), each.self ? h('small', {}, ' · answers this page') : null],
        h('span', { class: `liveness ${each.live ? 'alive' : 'dead'}` }, each.live ? 'live' : 'silent'), each.version,
        [time(each.started_at), h('br'), h('small', { class: 'mute' }, `${span(since(each.started_at))} ago`)], `${span(Math.max(0, since(each.seen_at)))} ago`, h('code', {}, each.id)] }))))];
  },
};

function hour({ period, grants, renewals, waiters, latency_p50_us, latency_p99_us }) {
  const period_s = seconds(period), from_s = period_s * 359;
  const rate = (list) => list.map((value) => value / period_s), plain = (list) => list.map(Number), time_s = (list) => list.map((value) => +value ? value / 1e6 : null);
  const perSecond = (value) => `${value < 10 ? +value.toFixed(1) : count(Math.round(value))} /s`;
  const picture = (title, lines, words) => {
    const known = lines.at(-1).filter((value) => value !== null);
    return chart(title, lines, words, known.length ? `Last ${span(Math.min(3600, lines[0].length * period_s))}: up to ${words(Math.max(...known))}` : 'Nothing measured yet', from_s, 360);
  };
  return h('div', { class: 'charts' }, picture('Grants', [rate(grants)], perSecond), picture('Renewals', [rate(renewals)], perSecond), picture('Waiters', [plain(waiters)], count),
    picture('Latency of a grant, half and 99 %', [time_s(latency_p50_us), time_s(latency_p99_us)], span));
}
