// The stream of changes. `live.listen(f)` hears every event of a lease; `live.onsynced` is called when lists have to be loaded
// (again): at the start, after a cut, and after the daemon left changes out.
const RETRY_MS = 5000;
const clock = () => new Date().toTimeString().slice(0, 8);

export const live = {
  paused: false, missed: 0, onchange: () => {}, onrefused: () => {}, onsynced: () => {}, onevents: () => {},
  source: null, isOpen: false, cutAt: '', timer: 0,

  start() {
    live.stop();
    const source = live.source = new EventSource('api/v1/events');
    source.addEventListener('synced', () => { live.isOpen = true; live.cutAt = ''; live.onsynced(); live.onchange(); });
    source.addEventListener('changes', ({ data }) => {
      const { events } = JSON.parse(data);
      if (live.paused) { live.missed += events.length; live.onchange(); }
      live.onevents(events);
    });
    source.addEventListener('reset', () => live.onsynced());
    source.addEventListener('end', ({ data }) => {
      live.stop();
      const { error } = JSON.parse(data);
      if (error.code === 'UNAUTHENTICATED' || error.code === 'PERMISSION_DENIED') live.onrefused(error.message);
      else live.again();
    });
    source.onerror = () => {
      if (source !== live.source) return;
      live.isOpen = false;
      live.cutAt ||= clock();
      // An answer other than 200 ends an EventSource for good.
      if (source.readyState === EventSource.CLOSED) live.again();
      live.onchange();
    };
  },
  again() { clearTimeout(live.timer); live.timer = setTimeout(live.start, RETRY_MS); },
  stop() { clearTimeout(live.timer); live.source?.close(); live.source = null; live.isOpen = false; },
  pause(is) { live.paused = is; live.missed = 0; live.pausedAt = clock(); live.onchange(); },
  state() {
    if (live.paused) return ['', `Paused at ${live.pausedAt}`];
    if (live.isOpen) return ['on', 'Live'];
    return live.cutAt ? ['off', `No connection since ${live.cutAt}`] : ['', 'Connecting'];
  },
};
