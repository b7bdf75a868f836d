//! A client, its thread, and the renewals.
//!
//! The thread has a tokio runtime of its own: leases are renewed while the program's runtime is busy, a lease may be dropped anywhere, and
//! programs without async use the same code. A request of the program's is a task there. When the program drops the future of an acquire, the
//! task ends what it began; a lease that arrives too late is dropped unseen, and dropping a lease releases it.

use std::collections::HashMap;
use std::future::Future;
use std::panic::resume_unwind;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::sync::{Notify, Semaphore, oneshot, watch};

use crate::change::{Teller, caught};
use crate::clock::now;
use crate::error::{Error, Reason};
use crate::given_up::MOST_DOUBTED;
use crate::lease::{Cell, Lease};
use crate::release::Releases;
use crate::request::{FOREVER, LeaseBuilder, Request};
use crate::retry::{RetryStep, Retrying, Strategy};
use crate::telemetry::{Acquiring, Instruments, within};
use crate::transport::{Beat, Grant, Transport};

const MOST_IN_REQUEST: usize = 10_000; // leases
pub(crate) const RETRY_AFTER: Duration = Duration::from_millis(100);

type RetryLog = Arc<dyn Fn(&RetryStep) + Send + Sync>;

pub(crate) struct Settings {
    pub patience: Duration,
    pub flush: Duration,
    pub strategy: Option<Strategy>,
    pub retry_log: Option<RetryLog>,
    pub log: Arc<dyn Fn(&str) + Send + Sync>,
    pub thread_name: String,
}

impl Default for Settings {
    fn default() -> Self {
        let log = Arc::new(|line: &str| eprintln!("leasehold: {line}"));
        let five = Duration::from_secs(5);
        Settings { patience: five, flush: five, strategy: None, retry_log: None, log, thread_name: "leasehold".into() }
    }
}

impl Settings {
    pub fn check(&self) -> Result<(), Error> {
        if self.patience.is_zero() { Err(Error::wrong("patience", "more than 0", self.patience)) } else { Ok(()) }
    }
}

/// Has any number of leases. Clones are the same client, which ends with the last of them and of its leases.
/// With the feature `opentelemetry`, set the global providers before it is made.
#[derive(Clone)]
pub struct Client {
    guard: Arc<Guard>,
}

struct Guard {
    core: Arc<Core>,
}

impl Drop for Guard {
    fn drop(&mut self) {
        self.core.begin_close();
    }
}

/// What the client's tasks share.
pub(crate) struct Core {
    pub transport: Transport,
    pub settings: Settings,
    pub handle: Handle,
    pub teller: Arc<Teller>,
    state: Mutex<State>,
    kick: Notify,
    closing: watch::Sender<bool>,
    ended: watch::Sender<bool>,
    /// One for each lease that may be granted to nobody.
    pub doubts: Arc<Semaphore>,
    pub instruments: Arc<Instruments>,
}

type Task = Pin<Box<dyn Future<Output = ()> + Send>>;

pub(crate) struct State {
    leases: HashMap<u64, Arc<Cell>>,
    next_id: u64,
    asks: bool,
    pub closed: bool,
    pub releases: Releases,
}

impl std::fmt::Debug for Client {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("leasehold::Client")
    }
}

impl Client {
    /// `make` runs in the thread's runtime.
    pub(crate) fn start(settings: Settings, make: impl FnOnce(&Settings) -> Result<Transport, Error>) -> Result<Client, Error> {
        settings.check()?;
        let trouble = |error: std::io::Error| Error::unavailable(crate::RetryReason::Unknown, error);
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(trouble)?;
        let made = {
            let _entered = runtime.enter();
            make(&settings)
        };
        let transport = match made {
            Ok(transport) => transport,
            Err(error) => {
                runtime.shutdown_background(); // dropping it would panic in a runtime of the program's
                return Err(error);
            }
        };
        let state = State { leases: HashMap::new(), next_id: 0, asks: false, closed: false, releases: Releases::default() };
        let core = Arc::new(Core {
            transport,
            settings,
            handle: runtime.handle().clone(),
            teller: Teller::new(runtime.handle().clone()),
            state: Mutex::new(state),
            kick: Notify::new(),
            closing: watch::Sender::new(false),
            ended: watch::Sender::new(false),
            doubts: Arc::new(Semaphore::new(MOST_DOUBTED)),
            instruments: Instruments::new(),
        });
        let its = core.clone();
        std::thread::Builder::new()
            .name(core.settings.thread_name.clone())
            .spawn(move || {
                runtime.block_on(its.live());
                runtime.shutdown_timeout(Duration::from_secs(1));
                its.ended.send_replace(true);
            })
            .map_err(trouble)?;
        Ok(Client { guard: Arc::new(Guard { core }) })
    }

    pub(crate) fn core(&self) -> &Arc<Core> {
        &self.guard.core
    }

    /// The lease of namespace/key that is to be acquired.
    pub fn lease(&self, namespace: &str, key: &str) -> LeaseBuilder {
        LeaseBuilder::new(self.clone(), namespace, key)
    }

    /// Sends what dropped leases and [`Lease::try_release`] left, for at most the flush time-out, and ends the thread and all connections. Leases
    /// that are still held are not renewed any more: they are lost with [`Reason::Closed`], and stay with their holder until their deadlines.
    pub async fn close(&self) {
        self.core().begin_close();
        let _ = self.core().ended.subscribe().wait_for(|&ended| ended).await;
    }

    /// One for each of the request's scopes. The wait for a tick, which may last for days, is no part of the story.
    pub(crate) async fn acquire(&self, request: Request) -> Result<Vec<Lease>, Error> {
        let mut story = (!request.is_tick).then(|| Acquiring::begin(&self.core().instruments, &request));
        let around = story.as_ref().map(Acquiring::around);
        let asked = request.clone();
        let acquired = match around {
            Some(around) => self.ask(asked, |task| within(around, task)).await,
            None => self.ask(asked, |task| task).await,
        };
        match &acquired {
            Err(error) => story.iter_mut().for_each(|story| story.refused(error)),
            Ok(leases) => {
                let story = story.get_or_insert_with(|| {
                    let scope = leases[0].cell.scope.clone();
                    Acquiring::begin(&self.core().instruments, &Request { scope, ..request })
                });
                story.granted(leases[0].token());
                leases.iter().for_each(|lease| lease.cell.begin_story(story));
            }
        }
        acquired
    }

    async fn ask<F: Future<Output = ()> + Send + 'static>(&self, mut request: Request, run: impl FnOnce(Task) -> F) -> Result<Vec<Lease>, Error> {
        let (mut tell, answer) = oneshot::channel();
        let client = self.clone();
        self.core().spawn(run(Box::pin(async move {
            let core = client.core().clone();
            let granted = tokio::select! {
                granted = caught(core.repeat(&mut request)) => Some(granted),
                () = tell.closed() => None,
                () = core.until_closing() => Some(Ok(Err(Error::Closed))),
            };
            match granted {
                None => core.give_up(request.refs(), request.duration).await,
                Some(Err(panic)) => {
                    core.abandon(request.refs(), request.duration);
                    drop(tell.send(Err(panic)));
                }
                // A lease for which nobody waits any more is dropped here, which releases it.
                Some(Ok(granted)) => drop(tell.send(Ok(granted.and_then(|grants| {
                    let each = request.refs().into_iter().zip(grants);
                    each.map(|(scope, grant)| Lease::new(client.clone(), Request { scope, ..request.clone() }, grant)).collect()
                })))),
            }
        })))?;
        heard(answer).await
    }

    /// Runs a task in the client's thread. It ends by itself when the program waits no more.
    pub(crate) async fn run<T: Send + 'static>(&self, task: impl Future<Output = Result<T, Error>> + Send + 'static) -> Result<T, Error> {
        let (tell, answer) = oneshot::channel();
        self.core().spawn(async move { drop(tell.send(caught(task).await)) })?;
        heard(answer).await
    }
}

/// A strategy that panics does so for its caller.
async fn heard<T>(answer: oneshot::Receiver<std::thread::Result<Result<T, Error>>>) -> Result<T, Error> {
    match answer.await {
        Ok(answer) => answer.unwrap_or_else(|panic| resume_unwind(panic)),
        Err(_) => Err(Error::Closed),
    }
}

impl Core {
    pub fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("no code panics under this lock")
    }

    pub fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) -> Result<(), Error> {
        if *self.ended.borrow() {
            return Err(Error::Closed);
        }
        self.handle.spawn(task);
        Ok(())
    }

    pub async fn until_closing(&self) {
        let _ = self.closing.subscribe().wait_for(|&closing| closing).await;
    }

    pub fn is_closing(&self) -> bool {
        *self.closing.borrow()
    }

    /// The renewer looks again.
    pub fn look(&self) {
        self.kick.notify_one();
    }

    fn begin_close(&self) {
        let leases: Vec<_> = {
            let mut state = self.state();
            state.closed = true;
            state.leases.drain().collect()
        };
        for (_, cell) in leases {
            cell.lose(Reason::Closed, "");
        }
        self.closing.send_replace(true);
    }

    /// Puts a lease under the renewer's care.
    pub fn add(&self, cell: &Arc<Cell>) -> Result<(), Error> {
        let mut state = self.state();
        if state.closed {
            drop(state);
            cell.lose(Reason::Closed, "");
            return Err(Error::Closed);
        }
        cell.set_granted();
        state.next_id += 1;
        let id = state.next_id;
        state.leases.insert(id, cell.clone());
        drop(state);
        self.look();
        Ok(())
    }

    /// What the client's thread does: it renews until the client is closed, then sends the releases that are left.
    async fn live(self: &Arc<Self>) {
        while !self.is_closing() {
            let wake = self.renew_due();
            tokio::select! {
                () = tokio::time::sleep(wake) => {}
                () = self.kick.notified() => {}
                () = self.until_closing() => {}
            }
        }
        let sent = self.state().releases.done.clone();
        if let Some(mut sent) = sent {
            let _ = tokio::time::timeout(self.settings.flush, sent.changed()).await;
        }
        self.abandon_releases();
        self.transport.close().await;
        self.teller.call_all();
    }

    /// Tells holders whose time is over, sends a request if one is due, and says when to look again.
    fn renew_due(self: &Arc<Self>) -> Duration {
        let mut state = self.state();
        state.leases.retain(|_, cell| !cell.is_over());
        let at = now();
        let mut wake = at + Duration::from_secs(60);
        let mut due = vec![];
        let mut is_due = false;
        for cell in state.leases.values() {
            // A part of the margin at the most: the timer does not run while the machine is suspended.
            wake = wake.min(at + cell.duration / 10).min(cell.stop());
            if let Some(next) = cell.next_renewal().filter(|_| !state.asks) {
                wake = wake.min(next);
                is_due |= next <= at;
                if next <= at + cell.duration / 6 {
                    due.push((next, cell.clone()));
                }
            }
        }
        if is_due {
            due.sort_by_key(|each| each.0);
            due.truncate(MOST_IN_REQUEST);
            state.asks = true;
            let cells: Vec<_> = due.into_iter().map(|each| each.1).collect();
            let (asked, is_asked) = watch::channel(());
            cells.iter().for_each(|cell| cell.set_asked(Some(is_asked.clone())));
            let core = self.clone();
            self.handle.spawn(async move {
                core.renew(cells).await;
                drop(asked);
            });
        }
        wake.saturating_sub(at)
    }

    /// One request for all of these leases.
    async fn renew(&self, cells: Vec<Arc<Cell>>) {
        let sent = now();
        // An answer that got lost must not cost the lease.
        let mine = |cell: &Arc<Cell>| (cell.duration / 6).min(cell.stop().saturating_sub(sent)).max(Duration::from_millis(10));
        let patience = cells.iter().map(mine).min().unwrap_or_default().min(self.settings.patience);
        let items: Vec<_> = cells.iter().map(|cell| cell.renewal()).collect();
        let answer = self.transport.heartbeat(&items, patience).await;
        self.state().asks = false;
        for (i, cell) in cells.iter().enumerate() {
            cell.set_asked(None);
            match &answer {
                Ok(beats) => {
                    cell.answered(sent, &beats[i]);
                    if let Beat::Renewed { asked: Some(request), .. } = &beats[i] {
                        self.tell_asked(cell, request.clone());
                    }
                }
                // One renewal that failed is no loss; the deadline is.
                Err(error) => cell.answered(sent, &Beat::Failed(error.to_string())),
            }
        }
        self.look();
    }

    /// Tries until a try is granted, or ends otherwise. The request gets its lease key here.
    async fn repeat(self: &Arc<Self>, request: &mut Request) -> Result<Vec<Grant>, Error> {
        request.scope.lease_key = new_uuid();
        let (mut wait_until, mut until) = (FOREVER, FOREVER);
        if !request.while_alive && request.wait != FOREVER {
            wait_until = now() + request.wait;
            until = wait_until + self.settings.patience;
        }
        for scope in request.refs() {
            self.await_release(&scope).await;
        }
        let mut is_repeated = false;
        let verb = match () {
            () if request.is_tick => "ClaimTick",
            () if request.scopes.is_empty() => "Acquire",
            () => "AcquireAll",
        };
        let mut retrying = Retrying::new(self, verb, &request.scope, &request.strategy);
        loop {
            let wait = if wait_until == FOREVER { FOREVER } else { wait_until.saturating_sub(now()) };
            let granted = match request.scopes.is_empty() {
                true => self.transport.acquire(request, wait).await.map(|grant| vec![grant]),
                false => self.transport.acquire_all(request, wait).await,
            };
            let error = match granted {
                Ok(grants) => return Ok(grants),
                Err(error) => error,
            };
            if is_repeated && error.is_ended() {
                // The daemon granted it, saw the connection break, and took the lease back; or one of several has ended.
                is_repeated = false;
                if !request.scopes.is_empty() {
                    let others = self.abandon(request.refs(), request.duration); // they are in the way
                    let _ = tokio::time::timeout(self.settings.patience, others).await;
                }
                request.scope.lease_key = new_uuid();
                continue;
            }
            let left = if until == FOREVER { FOREVER } else { until.saturating_sub(now()) };
            if !(error.is_unavailable() && left.is_zero()) && retrying.again(&error, left).await {
                is_repeated |= error.is_unavailable(); // the same lease key makes it the same acquisition, with its old place in the queue
                continue;
            }
            if is_repeated || error.is_unavailable() {
                self.abandon(request.refs(), request.duration); // a request may be on its way yet
            }
            return Err(error);
        }
    }
}

/// A version 4 UUID.
pub(crate) fn new_uuid() -> String {
    let mut bytes = [0u8; 16];
    getrandom::fill(&mut bytes).expect("leasehold: no random numbers");
    bytes[6] = bytes[6] & 0x0f | 0x40;
    bytes[8] = bytes[8] & 0x3f | 0x80;
    let hex: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
    format!("{}-{}-{}-{}-{}", &hex[..8], &hex[8..12], &hex[12..16], &hex[16..20], &hex[20..])
}
