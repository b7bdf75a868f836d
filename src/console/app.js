// Which view is shown, who is signed in, and whether the page is up to date. A view is {name, title(), load(), draw(), every_s}:
// load() asks the daemon, draw() answers the elements of <main>; what stays the same on the page stays the same element.
import { h, morphChildren, plural } from './dom.js';
import { session, signIn, signOut } from './api.js';
import { live } from './live.js';
import { place } from './page.js';
import { leases } from './leases.js';
import { scope } from './scope.js';
import { queues } from './queues.js';
import { schedules } from './schedules.js';
import { schedule } from './schedule.js';
import { failures } from './failures.js';
import { policies } from './policies.js';
import { daemons } from './daemons.js';
import { audit } from './audit.js';

const VIEWS = [leases, queues, schedules, failures, policies, daemons, audit, scope, schedule];
const main = document.getElementById('main');
let view = null, drawn = '', timer = 0, asked = 0;

function draw() {
  if (!view || !session.principal) return;
  morphChildren(main, [view.draw()].flat(Infinity).filter(Boolean));
  drawNav();
  document.title = `${view.title()} · Leasehold`;
  view.drawn?.();
}

// Asks again for what the view shows; the answer to an older question is dropped.
async function reload() {
  const mine = ++asked;
  clearTimeout(timer);
  try {
    await view.load(place());
    if (mine === asked) view.trouble = null;
  } catch (error) {
    if (error.status === 401) return askWho(error.message);
    if (mine === asked) view.trouble = error.message;
  }
  if (mine !== asked) return;
  if (!live.paused) draw();
  if (view.every_s) timer = setTimeout(() => document.hidden || live.paused ? again() : reload(), view.every_s * 1000);
}
function again() { timer = setTimeout(() => document.hidden || live.paused ? again() : reload(), 1000); }

async function go() {
  const { name, parts } = place();
  const next = VIEWS.find((each) => each.name === name) || leases;
  const moved = view && drawn !== location.hash.split('?')[0];
  if (view !== next) view?.leave?.();
  view = next;
  drawn = location.hash.split('?')[0];
  view.enter?.(place());
  if (view.isReady?.()) draw();
  else if (moved) main.replaceChildren(h('p', { class: 'none', key: 'wait' }, 'Asking the daemon …'));
  if (moved) scrollTo(0, 0);
  const mine = location.hash;
  await reload();
  // Where a link led away from what had the focus, the new view begins at its heading.
  if (moved && mine === location.hash && !main.contains(document.activeElement)) (main.querySelector('h1') || main).focus({ preventScroll: true });
}

function drawNav() {
  const at = view === scope ? 'leases' : view === schedule ? 'schedules' : view?.name;
  const item = (each) => {
    const badge = each.badge?.();
    return h('li', {}, h('a', { href: '#/' + each.name, 'aria-current': each.name === at && 'page' }, each.label,
      badge ? h('span', { class: badge.bad ? 'badge bad' : 'badge' }, badge.text, h('span', { class: 'unseen' }, ' ' + badge.words)) : null));
  };
  morphChildren(document.getElementById('nav'), [h('ul', {}, VIEWS.filter((each) => each.label).map(item))]);
}

function drawWho() {
  morphChildren(document.getElementById('who'), session.principal ? [
    h('span', { class: 'mute' }, session.principal),
    session.can('admin') ? null : h('span', { class: 'badge' }, 'read only'),
    session.cookie && h('button', { onclick: () => signOut().then(() => location.reload()) }, 'Sign out'),
  ].filter(Boolean) : []);
}

function askWho(why) {
  clearTimeout(timer);
  asked++;
  session.principal = null;
  live.stop();
  drawWho();
  document.getElementById('nav').replaceChildren();
  document.title = 'Sign in · Leasehold';
  const field = h('input', { type: 'password', name: 'token', autocomplete: 'off', required: true, maxlength: 128, spellcheck: 'false' });
  const failed = h('p', { class: 'note bad', role: 'alert', hidden: !why }, why || '');
  main.replaceChildren(h('form', { class: 'card sign-in', onsubmit: async (event) => {
    event.preventDefault();
    try { await signIn(field.value.trim()); await begin(); }
    catch (error) { failed.textContent = error.message; failed.hidden = false; field.select(); }
  } },
  h('h1', {}, 'Sign in'),
  h('p', {}, 'This daemon asks who you are. An administrator makes a token: ', h('code', {}, 'leasehold token create NAME')),
  failed, h('label', {}, h('span', {}, 'Token'), field), h('div', { class: 'row' }, h('button', { class: 'main' }, 'Sign in'))));
  field.focus();
}

async function begin() {
  try { await session.load(); } catch (error) {
    if (error.status === 401 || error.status === 403) return askWho(error.status === 403 ? error.message : '');
    main.replaceChildren(h('p', { class: 'note bad', role: 'alert' }, error.message));
    return setTimeout(begin, 3000);
  }
  if (session.mustSignIn) return askWho(session.principal === 'anonymous' ? '' : `${session.principal} may read nothing.`);
  drawWho();
  live.start();
  await go();
}

function drawLive() {
  const pill = document.getElementById('live');
  const [kind, words] = live.state();
  pill.className = 'pill ' + kind;
  if (pill.textContent !== words) pill.textContent = words;
  morphChildren(document.getElementById('pause'), session.principal ? [h('button', { 'aria-pressed': String(live.paused), onclick: () => { live.pause(!live.paused); if (!live.paused) reload(); } }, 'Pause'),
    live.paused && h('small', { class: 'mute' }, ` ${plural(live.missed, 'change')} since`)].filter(Boolean) : []);
}

live.onchange = () => { drawLive(); if (session.principal) drawNav(); };
live.onrefused = (why) => askWho(why);
addEventListener('hashchange', go);
addEventListener('lh-draw', draw);
addEventListener('lh-spaces', () => { if (session.principal) drawNav(); });
addEventListener('lh-changed', reload);
// A browser may keep a page that was left, and with it its stream, which is one of the six connections that it has for the daemon.
addEventListener('pagehide', () => live.stop());
addEventListener('pageshow', (event) => { if (event.persisted && session.principal) live.start(); });
document.addEventListener('visibilitychange', () => { if (!document.hidden && view && session.principal && !live.paused) reload(); });
begin();
