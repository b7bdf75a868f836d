//! Waiting, for a lease or for a tick: a place in the queue, and LISTEN; behind a pooler that gives each transaction another session it polls.

use std::sync::atomic::Ordering;
use std::time::Duration;

use tokio_postgres::types::Type;

use super::{Answer, Sql, Wanted, grant_of, texts, time};
use crate::clock::now;
use crate::error::Error;
use crate::request::{FOREVER, Ref, Request};
use crate::session::{Session, Value, text};
use crate::statements::{CLAIM, JOIN_QUEUE, LEAVE_QUEUE, TICK_CHANNEL, UNTIL_TICK};
use crate::ticks::Claimed;
use crate::together::Scope;
use crate::transport::Grant;

const POOLED_POLL: Duration = Duration::from_millis(200);
/// A tick may be due while no more may run at the same time.
const BUSY: Duration = Duration::from_millis(250);
/// A place in the queue lasts as long without being asked for again.
const LEAST_PLACE: Duration = Duration::from_secs(10);
const MOST_PLACE: Duration = Duration::from_secs(24 * 3600);

/// The parameters of CONTENTION.
pub(crate) struct InTheWay<'a>([Vec<&'a str>; 3]);

impl<'a> InTheWay<'a> {
    pub fn new(request: &'a Request) -> Self {
        let mode = |is_shared| if is_shared { "shared" } else { "exclusive" };
        if request.scopes.is_empty() {
            return InTheWay([vec![&*request.scope.namespace], vec![&*request.scope.key], vec![mode(request.units > 0)]]);
        }
        let of = |part: fn(&'a Scope) -> &'a str| request.scopes.iter().map(part).collect();
        let modes = request.scopes.iter().map(|each| mode(each.units.is_some())).collect();
        InTheWay([of(|each| &each.namespace), of(|each| &each.key), modes])
    }

    pub fn values(&self) -> [Value<'_>; 3] {
        let [namespaces, keys, modes] = &self.0;
        [texts(namespaces), texts(keys), texts(modes)]
    }
}

impl Sql {
    pub async fn queue_for(&self, session: &Session, request: &Request, wait: Duration, tell: &mut Answer) -> Result<Vec<Grant>, Error> {
        if let Some(grants) = self.try_one(session, request).await? {
            return Ok(grants);
        }
        if wait.is_zero() {
            return Err(Error::Held(Box::new(self.held(session, request).await?)));
        }
        let granted = self.wait_in_queue(session, request, wait, tell).await;
        self.unlisten(session).await;
        if let Some(grants) = granted? {
            return Ok(grants);
        }
        let held = self.held(session, request).await?;
        self.leave(session, std::slice::from_ref(&request.scope), self.patience).await?;
        Err(Error::Held(Box::new(held)))
    }

    /// `None`: the wait has passed.
    async fn wait_in_queue(&self, session: &Session, request: &Request, wait: Duration, tell: &mut Answer) -> Result<Option<Vec<Grant>>, Error> {
        let (mut until, poll) = (now().saturating_add(wait), self.poll(session));
        let lasting = (2 * poll).clamp(LEAST_PLACE, MOST_PLACE).as_secs_f64();
        let wanted = Wanted::new(request);
        let [namespace, key, .., mode, units, priority] = wanted.values();
        let join = [namespace, key, text(&request.scope.lease_key), (&lasting, Type::FLOAT8), mode, units, priority];
        let (mut is_listening, mut asked) = (session.is_pooled, String::new());
        while now() < until {
            let place = session.row(&request.scope, self.patience, JOIN_QUEUE, &join).await?;
            if !std::mem::replace(&mut is_listening, true) {
                self.listen(session, &request.scope, place.get(0)).await?;
            }
            if let Some(grants) = self.try_one(session, request).await? {
                return Ok(Some(grants));
            }
            if request.ask_hand_over {
                self.ask_once(session, request, &mut asked).await?;
            }
            if request.while_alive {
                let held = self.held(session, request).await?;
                let is_alive = held.alive || held.holder_count == 0;
                until = if is_alive { FOREVER } else { until.min(now() + request.wait) };
            }
            tokio::select! {
                () = session.hear(poll.min(until.saturating_sub(now()))) => {}
                () = tell.closed() => return Err(Error::Closed),
            }
        }
        Ok(None)
    }

    pub async fn leave(&self, session: &Session, refs: &[Ref], patience: Duration) -> Result<(), Error> {
        let of = |part: fn(&Ref) -> &str| refs.iter().map(part).collect::<Vec<_>>();
        let (namespaces, keys, lease_keys) = (of(|scope| &scope.namespace), of(|scope| &scope.key), of(|scope| &scope.lease_key));
        let values = [texts(&namespaces), texts(&keys), texts(&lease_keys)];
        session.rows(&refs[0], patience, LEAVE_QUEUE, &values).await.map(drop)
    }

    /// The next tick of a schedule.
    pub async fn claim(&self, session: &Session, request: &Request, tell: &mut Answer) -> Result<Vec<Grant>, Error> {
        let schedule = [text(&request.scope.namespace)];
        if !session.is_pooled {
            let channel = session.row(&request.scope, self.patience, TICK_CHANNEL, &schedule).await?;
            self.listen(session, &request.scope, channel.get(0)).await?;
        }
        let (wanted, poll) = (Wanted::new(request), self.poll(session));
        let [namespace, _, seconds, owner, lease_key, labels, ..] = wanted.values();
        let values = [namespace, owner, seconds, lease_key, labels];
        let granted = loop {
            let sent = now();
            if let Some(row) = session.rows(&request.scope, self.patience, CLAIM, &values).await?.first() {
                let claimed = Claimed { key: row.get(5), at: row.get(6), attempt: row.get::<_, i32>(7) as u32 };
                break Ok(vec![Grant { claimed: Some(claimed), ..grant_of(row, sent) }]);
            }
            let left: Option<f64> = session.row(&request.scope, self.patience, UNTIL_TICK, &schedule).await?.get(0);
            let look = left.map_or(poll, |seconds| poll.min(time(seconds).max(BUSY)));
            tokio::select! {
                () = session.hear(look) => {}
                () = tell.closed() => break Err(Error::Closed),
            }
        };
        self.unlisten(session).await;
        granted
    }

    async fn listen(&self, session: &Session, scope: &Ref, channel: &str) -> Result<(), Error> {
        session.rows(scope, self.patience, &format!("listen \"{}\"", channel.replace('"', "\"\"")), &[]).await.map(drop)
    }

    /// Makes the connection fit for somebody else.
    async fn unlisten(&self, session: &Session) {
        let nothing = Ref { namespace: String::new(), key: String::new(), lease_key: String::new() };
        if session.is_usable() && !session.is_pooled {
            let _ = session.rows(&nothing, self.patience, "unlisten *", &[]).await;
        }
    }

    fn poll(&self, session: &Session) -> Duration {
        if !session.is_pooled {
            return self.poll;
        }
        let poll = self.poll.min(POOLED_POLL);
        if !self.is_known_to_poll.swap(true, Ordering::Relaxed) {
            (self.log)(&format!("a connection pooler is between this client and PostgreSQL: waiters hear no notifications, and poll every {poll:?}"));
        }
        poll
    }

    /// Asks whom a waiter waits behind, once: `asked` says whom it has asked.
    async fn ask_once(&self, session: &Session, request: &Request, asked: &mut String) -> Result<(), Error> {
        let holders: String = self.contention(session, request).await?.get(10);
        if holders != *asked {
            match self.ask(session, &request.scope, "").await {
                Err(Error::InvalidArgument(_)) => return Ok(()), // its place is lost: it joins again
                answer => answer?,
            };
            *asked = holders;
        }
        Ok(())
    }
}
