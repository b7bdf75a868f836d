//! PostgreSQL, without a daemon. Renewals have a connection of their own, and so has each request that acquires or releases, for as long as it
//! lasts; two of these are kept for the next.

mod queue;

pub(crate) use queue::InTheWay;

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use tokio::sync::{oneshot, watch};
use tokio_postgres::Row;
use tokio_postgres::types::{ToSql, Type};

use crate::client::Settings;
use crate::clock::now;
use crate::error::{Error, Held, Lost, Reason, RetryReason, scope_name};
use crate::explain::{Explanation, Liveness, State};
use crate::hand_over::HandOver;
use crate::request::{Ref, Request};
use crate::session::{Open, Session, Value, from_connect, place, text};
use crate::statements::*;
use crate::transport::{Beat, Ending, Grant, Renewal};

const MOST_IDLE: usize = 2;
/// A row that somebody keeps locked must not hold up the others.
const LOCK_TIMEOUT: &str = "200ms";
const CLOSING: Duration = Duration::from_secs(1);

pub(crate) struct Sql {
    open: Open,
    patience: Duration,
    poll: Duration,
    log: Arc<dyn Fn(&str) + Send + Sync>,
    idle: Mutex<Vec<Session>>,
    renewal: tokio::sync::Mutex<Option<Session>>,
    /// Connections, and tasks that use them, have a receiver each.
    work: watch::Sender<()>,
    is_closed: AtomicBool,
    /// It has said that it polls.
    is_known_to_poll: AtomicBool,
    /// It has said that it cannot read requests to hand over.
    is_known_deaf: AtomicBool,
}

type Answer = oneshot::Sender<Result<Vec<Grant>, Error>>;

fn texts<'a>(values: &'a (impl ToSql + Sync)) -> Value<'a> {
    (values, Type::TEXT_ARRAY)
}

fn time(seconds: f64) -> Duration {
    Duration::try_from_secs_f64(seconds).unwrap_or_default()
}

/// Of a row of `granting`.
pub(crate) fn grant_of(row: &Row, sent: Duration) -> Grant {
    let slots: Option<Vec<i32>> = row.get(3);
    Grant {
        token: row.get(0),
        deadline: sent + time(row.get(1)),
        is_final: row.get(4),
        units: row.get::<_, i32>(2) as u32,
        slots: slots.unwrap_or_default().into_iter().map(|slot| slot as u32).collect(),
        holding: None,
        claimed: None,
    }
}

/// Of a row of CONTENTION.
pub(crate) fn held_of(request: &Request, row: &Row) -> Held {
    let refs = request.refs();
    let scope = &refs[row.get::<_, i32>(9) as usize - 1];
    let (state, holder, advice): (&str, String, &str) = (row.get(0), row.get(1), row.get(3));
    let by = if state == "held" { format!("held by {holder}") } else { state.to_string() };
    let count = |at| row.get::<_, i32>(at) as u32;
    Held {
        namespace: scope.namespace.clone(),
        key: scope.key.clone(),
        message: format!("{} is {by}: {advice}", scope_name(&scope.namespace, &scope.key)),
        holder,
        holder_count: count(4),
        units_free: row.get::<_, Option<i32>>(5).map(|units| units as u32),
        ahead: count(2),
        alive: row.get(6),
        silent: time(row.get(7)),
        held_for: time(row.get(8)),
        retry: (request.wait.is_zero() && !request.while_alive).then_some(RetryReason::LeaseHeld),
    }
}

/// Of a row of ASK or ASKED.
fn hand_over_of(row: &Row) -> HandOver {
    let micros = |at| Duration::from_micros(row.get::<_, i64>(at) as u64);
    HandOver {
        asked_at: UNIX_EPOCH + micros(1),
        asked_by: row.get(2),
        principal: row.get(3),
        reason: row.get(4),
        answer_by: UNIX_EPOCH + micros(5),
        answer_in: micros(6),
        refusal: row.get(7),
        owner: row.get(8),
        token: row.get(9),
    }
}

pub(crate) fn reason_of(word: &str) -> Reason {
    [Reason::Expired, Reason::Forced, Reason::Released, Reason::Failed, Reason::MaxHold]
        .into_iter()
        .find(|reason| reason.to_string() == word)
        .unwrap_or(Reason::Unknown)
}

/// The parameters of ACQUIRE.
pub(crate) struct Wanted<'a> {
    request: &'a Request,
    seconds: f64,
    labels: String,
    at_least: Option<f64>,
    mode: &'static str,
    units: i32,
    priority: i32,
}

impl<'a> Wanted<'a> {
    pub fn new(request: &'a Request) -> Self {
        Wanted {
            request,
            seconds: request.duration.as_secs_f64(),
            labels: serde_json::json!(request.labels).to_string(),
            at_least: request.at_least.map(|time| time.as_secs_f64()),
            mode: if request.units > 0 { "shared" } else { "exclusive" },
            units: request.units.max(1) as i32,
            priority: request.priority as i32,
        }
    }

    pub fn values(&self) -> [Value<'_>; 10] {
        let [namespace, key, lease_key] = place(&self.request.scope);
        let (seconds, owner, labels) = ((&self.seconds as _, Type::FLOAT8), text(&self.request.owner), text(&self.labels));
        let (at_least, mode) = ((&self.at_least as _, Type::FLOAT8), text(&self.mode));
        [namespace, key, seconds, owner, lease_key, labels, at_least, mode, (&self.units, Type::INT4), (&self.priority, Type::INT4)]
    }
}

impl Sql {
    pub fn new(open: Open, settings: &Settings, poll: Duration) -> Arc<Sql> {
        Arc::new(Sql {
            open,
            patience: settings.patience,
            poll,
            log: settings.log.clone(),
            idle: Mutex::default(),
            renewal: tokio::sync::Mutex::new(None),
            work: watch::Sender::new(()),
            is_closed: AtomicBool::new(false),
            is_known_to_poll: AtomicBool::new(false),
            is_known_deaf: AtomicBool::new(false),
        })
    }

    /// Ends all connections, once what was given up has ended what it began.
    pub async fn close(&self) {
        self.is_closed.store(true, Ordering::Relaxed);
        let ended = async {
            drop(self.renewal.lock().await.take());
            self.idle().clear();
            self.work.closed().await;
        };
        let _ = tokio::time::timeout(CLOSING, ended).await;
    }

    fn idle(&self) -> std::sync::MutexGuard<'_, Vec<Session>> {
        self.idle.lock().expect("no code panics under this lock")
    }

    async fn connect(&self, patience: Duration) -> Result<Session, Error> {
        match tokio::time::timeout(patience, (self.open)(&self.work)).await {
            Ok(session) => session.map_err(|error| from_connect(&error)),
            Err(_) => Err(Error::unavailable(RetryReason::SocketNotAvailable, "PostgreSQL was silent for too long")),
        }
    }

    async fn session(&self) -> Result<Session, Error> {
        loop {
            let found = self.idle().pop();
            match found {
                None => return self.connect(self.patience).await,
                Some(session) if session.is_usable() => return Ok(session),
                Some(_) => {}
            }
        }
    }

    fn put(&self, session: Session) {
        let mut idle = self.idle();
        if session.is_usable() && idle.len() < MOST_IDLE && !self.is_closed.load(Ordering::Relaxed) {
            idle.push(session);
        }
    }

    pub async fn acquire(self: &Arc<Self>, request: &Request, wait: Duration) -> Result<Grant, Error> {
        Ok(self.acquire_all(request, wait).await?.remove(0))
    }

    /// Runs in a task of its own, which outlives a caller who gives up in the middle of a statement, and ends what it began.
    pub async fn acquire_all(self: &Arc<Self>, request: &Request, wait: Duration) -> Result<Vec<Grant>, Error> {
        if !request.scopes.is_empty() && !request.wait.is_zero() {
            return Err(Error::wrong("wait", "0 for several scopes in SQL", request.wait));
        }
        let (mut tell, answer) = oneshot::channel();
        let (its, mut request, working) = (self.clone(), request.clone(), self.work.subscribe());
        tokio::spawn(async move {
            let _working = working;
            let session = match its.session().await {
                Ok(session) => session,
                Err(error) => return drop(tell.send(Err(error))),
            };
            let granted = match () {
                () if request.is_tick => its.claim(&session, &request, &mut tell).await,
                () if request.scopes.is_empty() => its.queue_for(&session, &request, wait, &mut tell).await,
                () => its.try_all(&session, &request).await,
            };
            let unheard = tell.send(granted).err();
            its.put(session);
            if let Some(unheard) = unheard {
                if let Some(claimed) = unheard.ok().and_then(|mut grants| grants.remove(0).claimed) {
                    request.scope.key = claimed.key;
                }
                its.give_up(&request.refs(), its.patience).await;
            }
        });
        answer.await.unwrap_or(Err(Error::Closed))
    }

    async fn try_one(&self, session: &Session, request: &Request) -> Result<Option<Vec<Grant>>, Error> {
        let sent = now();
        let rows = session.rows(&request.scope, self.patience, ACQUIRE, &Wanted::new(request).values()).await?;
        Ok(rows.first().map(|row| vec![grant_of(row, sent)]))
    }

    async fn try_all(&self, session: &Session, request: &Request) -> Result<Vec<Grant>, Error> {
        let units: Vec<_> = request.scopes.iter().map(|each| each.units.unwrap_or(1) as i32).collect();
        let (scopes, wanted, sent) = (InTheWay::new(request), Wanted::new(request), now());
        let ([namespaces, keys, modes], [_, _, seconds, owner, lease_key, labels, ..]) = (scopes.values(), wanted.values());
        let values = [namespaces, keys, seconds, owner, lease_key, labels, modes, (&units, Type::INT4_ARRAY)];
        let rows = session.rows(&request.scope, self.patience, ACQUIRE_ALL, &values).await?;
        if rows.is_empty() {
            return Err(Error::Held(Box::new(self.held(session, request).await?)));
        }
        Ok(rows.iter().map(|row| grant_of(row, sent)).collect())
    }

    async fn contention(&self, session: &Session, request: &Request) -> Result<Row, Error> {
        session.row(&request.scope, self.patience, CONTENTION, &InTheWay::new(request).values()).await
    }

    async fn held(&self, session: &Session, request: &Request) -> Result<Held, Error> {
        Ok(held_of(request, &self.contention(session, request).await?))
    }

    /// All in one transaction, and one by one if that fails for one of them.
    pub async fn heartbeat(&self, items: &[Renewal], patience: Duration) -> Result<Vec<Beat>, Error> {
        let until = now() + patience;
        let mut renewal = self.renewal.lock().await;
        let session = match renewal.take().filter(Session::is_usable) {
            Some(session) => session,
            None if self.is_closed.load(Ordering::Relaxed) => return Err(Error::Closed),
            None => self.connect(patience).await?,
        };
        let mut answer = self.renew(&session, items, until).await;
        if answer.is_err() && items.len() > 1 && session.is_usable() {
            let mut beats = vec![];
            for item in items {
                beats.push(match self.renew(&session, std::slice::from_ref(item), until).await {
                    Ok(mut one) => one.remove(0),
                    Err(error) => Beat::Failed(error.to_string()),
                });
            }
            answer = Ok(beats);
        }
        *renewal = Some(session);
        answer
    }

    async fn renew(&self, session: &Session, items: &[Renewal], until: Duration) -> Result<Vec<Beat>, Error> {
        let left = || until.saturating_sub(now());
        let of = |part: fn(&Ref) -> &str| items.iter().map(|item| part(&item.scope)).collect::<Vec<_>>();
        let (namespaces, keys, lease_keys) = (of(|scope| &scope.namespace), of(|scope| &scope.key), of(|scope| &scope.lease_key));
        let values = [texts(&namespaces), texts(&keys), texts(&lease_keys)];
        let rows = session.rows(&items[0].scope, left(), HEARTBEAT, &values).await?;
        let beat = |(item, row): (&Renewal, &Row)| match row.get::<_, Option<&str>>(2) {
            Some(reason) => Beat::Lost { reason: reason_of(reason), message: String::new() },
            None => Beat::Renewed { remaining: time(row.get(0)), is_final: row.get::<_, f64>(1) < item.duration.as_secs_f64(), asked: None },
        };
        let mut beats: Vec<_> = items.iter().zip(&rows).map(beat).collect();
        if items.iter().any(|item| item.listens) {
            let asked = session.rows(&items[0].scope, left() / 2, ASKED, &values).await;
            self.hear_requests(items, &mut beats, asked);
        }
        Ok(beats)
    }

    /// After renewals, which are committed. Without an answer the next renewal reads them.
    fn hear_requests(&self, items: &[Renewal], beats: &mut [Beat], asked: Result<Vec<Row>, Error>) {
        match asked {
            Ok(rows) => rows.iter().for_each(|row| {
                let n = row.get::<_, i32>(0) as usize - 1;
                if let (true, Beat::Renewed { asked, .. }) = (items[n].listens, &mut beats[n]) {
                    *asked = Some(hand_over_of(row));
                }
            }),
            Err(error) if !self.is_known_deaf.swap(true, Ordering::Relaxed) => {
                (self.log)(&format!("requests to hand over are not heard: {error}"));
            }
            Err(_) => {}
        }
    }

    /// All in one transaction, and one by one if that fails for one of them.
    pub async fn release(&self, items: &[Ending], patience: Duration) -> Vec<Result<(), Error>> {
        let session = match self.session().await {
            Ok(session) => session,
            Err(error) => return vec![Err(error); items.len()],
        };
        // One alone waits for whoever keeps its row locked.
        let mut answers = self.end(&session, items, if items.len() == 1 { "0" } else { LOCK_TIMEOUT }, patience).await;
        if items.len() > 1 && session.is_usable() && answers.iter().any(|answer| !matches!(answer, Ok(()) | Err(Error::Lost(_)))) {
            answers.clear();
            for item in items {
                answers.extend(self.end(&session, std::slice::from_ref(item), LOCK_TIMEOUT, patience).await);
            }
        }
        self.put(session);
        answers
    }

    async fn end(&self, session: &Session, items: &[Ending], lock_timeout: &str, patience: Duration) -> Vec<Result<(), Error>> {
        let of = |part: fn(&Ending) -> &str| items.iter().map(part).collect::<Vec<_>>();
        let (namespaces, keys) = (of(|item| &item.scope.namespace), of(|item| &item.scope.key));
        let (lease_keys, outcomes) = (of(|item| &item.scope.lease_key), of(|item| &item.outcome.value));
        let failed: Vec<_> = items.iter().map(|item| item.outcome.is_failed).collect();
        let flags = (&failed as _, Type::BOOL_ARRAY);
        let values = [texts(&namespaces), texts(&keys), texts(&lease_keys), flags, texts(&outcomes), text(&lock_timeout)];
        let answer = |(Ending { scope, .. }, row): (&Ending, &Row)| match row.get::<_, Option<&str>>(0) {
            None => Ok(()),
            Some(reason) => {
                let (namespace, key) = (scope.namespace.clone(), scope.key.clone());
                Err(Lost { namespace, key, reason: reason_of(reason), message: String::new() }.into())
            }
        };
        match session.rows(&items[0].scope, patience, RELEASE, &values).await {
            Ok(rows) => items.iter().zip(&rows).map(answer).collect(),
            Err(error) => vec![Err(error); items.len()],
        }
    }

    /// Ends what acquires may have left: places in the queue, and grants. A place that cannot be left is free soon: nobody asks for it again.
    pub async fn give_up(&self, refs: &[Ref], patience: Duration) -> Vec<Result<(), Error>> {
        let session = match self.session().await {
            Ok(session) => session,
            Err(error) => return vec![Err(error); refs.len()],
        };
        let left = self.leave(&session, refs, patience).await;
        self.put(session);
        match left {
            Err(error) if error.is_unavailable() => vec![Err(error); refs.len()],
            _ => self.release(&Ending::unheard(refs), patience).await,
        }
    }

    pub async fn downgrade(&self, Renewal { scope, .. }: &Renewal, units: u32, patience: Duration) -> Result<Grant, Error> {
        let (session, sent, units) = (self.session().await?, now(), units as i32);
        let [namespace, key, lease_key] = place(scope);
        let values = [namespace, key, lease_key, (&units, Type::INT4)];
        let row = session.row(scope, patience, DOWNGRADE, &values).await;
        self.put(session);
        Ok(grant_of(&row?, sent))
    }

    /// As the waiter with this lease key or, without one, as an administrator.
    async fn ask(&self, session: &Session, scope: &Ref, reason: &str) -> Result<Vec<HandOver>, Error> {
        let [namespace, key, lease_key] = place(scope);
        let rows = session.rows(scope, self.patience, ASK, &[namespace, key, lease_key, text(&reason)]).await?;
        Ok(rows.iter().map(hand_over_of).collect())
    }

    /// The asker is the database's role.
    pub async fn ask_hand_over(&self, scope: &Ref, reason: &str, _owner: &str) -> Result<Vec<HandOver>, Error> {
        let session = self.session().await?;
        let asked = self.ask(&session, scope, reason).await;
        self.put(session);
        asked
    }

    /// False: nobody has asked, or the lease has ended.
    pub async fn refuse_hand_over(&self, scope: &Ref, words: &str) -> Result<bool, Error> {
        let session = self.session().await?;
        let [namespace, key, lease_key] = place(scope);
        let row = session.row(scope, self.patience, REFUSE, &[namespace, key, lease_key, text(&words)]).await;
        self.put(session);
        Ok(row?.get(0))
    }

    pub async fn explain(&self, scope: &Ref) -> Result<Explanation, Error> {
        let session = self.session().await?;
        let row = session.row(scope, self.patience, EXPLAIN, &place(scope)[..2]).await;
        self.put(session);
        let row = row?;
        let (count, at) = (|at| row.get::<_, i32>(at) as u32, |at| row.get::<_, Option<SystemTime>>(at));
        Ok(Explanation {
            state: State::of(row.get(0)),
            advice: row.get(1),
            liveness: Liveness::of(row.get(2)),
            holder: row.get(3),
            principal: row.get(4),
            token: row.get(5),
            units: count(6),
            holders: count(7),
            waiters: count(8),
            first_waiter: row.get(9),
            since: at(10),
            heartbeats: row.get::<_, i64>(11) as u64,
            last_heartbeat_at: at(12),
            expires_at: at(13),
            rests_until: at(14),
            policy: row.get(15),
        })
    }
}
