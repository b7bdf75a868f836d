//! A lease that is held until it is released or lost.

use std::future::Future;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, SystemTime};

use tokio::sync::watch;

use crate::bounds::check_units;
use crate::change::{Change, ChangeKind, OnChange, Teller};
use crate::client::{Client, Core, RETRY_AFTER};
use crate::clock::now;
use crate::error::{Error, Lost, Reason};
use crate::hand_over::{HandOver, OnAsked};
use crate::release::Outcome;
use crate::request::{FOREVER, Ref, Request};
use crate::retry::{Retrying, Strategy};
use crate::telemetry::{Acquiring, Story};
use crate::ticks::Claimed;
use crate::together;
use crate::transport::{Beat, Ending, Grant, Renewal};

/// A guard: dropping it gives the lease back, without waiting for the answer (as failed, if the thread panics).
#[must_use = "a lease that is dropped is released"]
pub struct Lease {
    pub(crate) client: Client,
    pub(crate) cell: Arc<Cell>,
    pub(crate) claimed: Option<Claimed>,
}

/// What the renewer knows of a lease, too.
pub(crate) struct Cell {
    pub scope: Ref,
    pub duration: Duration,
    pub strategy: Option<Strategy>,
    pub on_asked: Option<OnAsked>,
    on_change: Option<OnChange>,
    teller: Arc<Teller>,
    state: Mutex<State>,
    over: watch::Sender<bool>,
    /// A stream renews it.
    pub is_streaming: bool,
    pub story: Story,
}

struct State {
    token: i64,
    units: u32,
    slots: Vec<u32>,
    deadline: Duration,
    is_final: bool,
    /// Before the deadline the holder is told.
    margin: Duration,
    /// Of the next renewal.
    next: Duration,
    /// Why the last renewal failed.
    trouble: String,
    /// The program has it.
    is_granted: bool,
    lost: Option<Lost>,
    is_released: bool,
    /// Being released: renewed no more.
    ends: bool,
    /// The transaction that acquires or releases it is not committed yet.
    is_open: bool,
    /// A release of it.
    is_sent: bool,
    /// Its renewal is in flight; ends with that.
    asked: Option<watch::Receiver<()>>,
    /// The last request to hand it over.
    asked_at: Option<SystemTime>,
}

impl State {
    fn take(&mut self, grant: Grant, duration: Duration) {
        self.margin = duration / 5;
        self.next = grant.deadline.saturating_sub(duration * 2 / 3);
        if grant.is_final {
            // It may be for much less than its duration.
            let left = grant.deadline.saturating_sub(now());
            self.margin = self.margin.min(left / 5);
            self.next = now() + left / 3;
        }
        (self.token, self.units, self.slots) = (grant.token, grant.units, grant.slots);
        (self.deadline, self.is_final) = (grant.deadline, grant.is_final);
    }

    fn stop(&self) -> Duration {
        self.deadline.saturating_sub(self.margin)
    }

    fn is_held(&self) -> bool {
        self.lost.is_none() && !self.is_released
    }
}

impl Cell {
    fn new(request: &Request, grant: Grant, is_streaming: bool, teller: &Arc<Teller>) -> Cell {
        let mut state = State {
            token: 0,
            units: 0,
            slots: vec![],
            deadline: Duration::ZERO,
            is_final: false,
            margin: Duration::ZERO,
            next: Duration::ZERO,
            trouble: String::new(),
            is_granted: false,
            lost: None,
            is_released: false,
            ends: false,
            is_open: false,
            is_sent: false,
            asked: None,
            asked_at: None,
        };
        state.take(grant, request.duration);
        Cell {
            scope: request.scope.clone(),
            duration: request.duration,
            strategy: request.strategy.clone(),
            on_asked: request.on_asked.clone(),
            on_change: request.on_change.clone(),
            teller: teller.clone(),
            state: Mutex::new(state),
            over: watch::Sender::new(false),
            is_streaming,
            story: Default::default(),
        }
    }

    pub fn renewal(&self) -> Renewal {
        Renewal { scope: self.scope.clone(), duration: self.duration, listens: self.on_asked.is_some() }
    }

    /// The state, after a look at the clock: the renewer may have slept with the machine.
    fn state(&self) -> MutexGuard<'_, State> {
        let mut state = self.state.lock().expect("no code panics under this lock");
        if state.is_held() && now() >= state.stop() {
            let (reason, message) = if state.is_final {
                (Reason::MaxHold, format!("the policy of {} ends a lease after max_hold", self.scope.namespace))
            } else {
                (Reason::Unreachable, state.trouble.clone())
            };
            self.lose_in(&mut state, reason, &message);
        }
        state
    }

    fn lose_in(&self, state: &mut State, reason: Reason, message: &str) {
        if state.is_held() {
            let (namespace, key) = (self.scope.namespace.clone(), self.scope.key.clone());
            let lost = Lost { namespace, key, reason, message: message.into() };
            self.tell(state, ChangeKind::Lost(lost.clone()));
            self.story.ended(Some(&lost.clone().into()));
            state.lost = Some(lost);
            self.over.send_replace(true);
        }
    }

    pub fn lose(&self, reason: Reason, message: &str) {
        self.lose_in(&mut self.state(), reason, message);
    }

    /// Later, in the order of its changes: the caller has the state.
    fn tell(&self, state: &State, kind: ChangeKind) {
        if let Some(tell) = self.on_change.clone().filter(|_| state.is_granted) {
            let change = Change { namespace: self.scope.namespace.clone(), key: self.scope.key.clone(), token: state.token, kind };
            self.teller.later(move || tell(change));
        }
    }

    pub fn set_granted(&self) {
        let mut state = self.state.lock().expect("no code panics under this lock");
        state.is_granted = true;
        self.tell(&state, ChangeKind::Granted);
    }

    /// It was granted to somebody who has it; it may be lost meanwhile.
    pub fn begin_story(&self, acquired: &Acquiring) {
        let state = self.state();
        self.story.begin(acquired, &self.scope, state.token, state.units);
        if let Some(lost) = &state.lost {
            self.story.ended(Some(&lost.clone().into()));
        }
    }

    pub fn set_released(&self) {
        let mut state = self.state();
        if state.is_held() {
            (state.is_released, state.is_open) = (true, false);
            self.tell(&state, ChangeKind::Released);
            self.over.send_replace(true);
        }
    }

    pub fn is_over(&self) -> bool {
        !self.state().is_held()
    }

    pub fn stop(&self) -> Duration {
        self.state().stop()
    }

    pub fn deadline(&self) -> Duration {
        self.state().deadline
    }

    pub fn remaining(&self) -> Duration {
        let state = self.state();
        if state.is_held() && !state.is_open { state.stop().saturating_sub(now()) } else { Duration::ZERO }
    }

    pub fn lost(&self) -> Option<Lost> {
        self.state().lost.clone()
    }

    /// When to renew; `None`: not now.
    pub fn next_renewal(&self) -> Option<Duration> {
        let state = self.state();
        (!self.is_streaming && state.is_held() && !state.ends && state.asked.is_none()).then_some(state.next)
    }

    /// Takes in a renewal by a stream, unless a newer one says more.
    pub fn extend(&self, deadline: Duration, is_final: bool) {
        let mut state = self.state();
        if state.is_held() && deadline >= state.deadline {
            (state.deadline, state.is_final) = (deadline, is_final);
            self.tell(&state, ChangeKind::Renewed);
        }
    }

    pub fn set_asked(&self, asked: Option<watch::Receiver<()>>) {
        self.state().asked = asked;
    }

    /// Takes in the answer to a renewal that was sent at `sent`. One that was read too late saves nothing.
    pub fn answered(&self, sent: Duration, beat: &Beat) {
        let mut state = self.state();
        if !state.is_held() {
            return;
        }
        match beat {
            Beat::Renewed { remaining, is_final, .. } => {
                (state.deadline, state.is_final) = (sent + *remaining, *is_final);
                state.next = sent + self.duration / 3;
                state.trouble.clear();
                self.tell(&state, ChangeKind::Renewed);
            }
            Beat::Lost { reason, message } if !state.ends => self.lose_in(&mut state, *reason, message),
            Beat::Lost { .. } => {}
            Beat::Failed(message) => {
                state.trouble = message.clone();
                state.next = now() + RETRY_AFTER.min(self.duration / 20);
            }
        }
    }

    /// Whether the holder has not been told of it.
    pub fn is_new(&self, request: &HandOver) -> bool {
        let mut state = self.state();
        state.is_held() && state.asked_at.replace(request.asked_at) != Some(request.asked_at)
    }

    pub fn check_held(&self) -> Result<(), Error> {
        let state = self.state();
        match &state.lost {
            Some(lost) => Err(lost.clone().into()),
            None if state.is_open => Err(open()),
            None if state.is_released || state.ends => Err(Error::Released),
            None => Ok(()),
        }
    }

    /// Renewed no more from now on. `Ok(false)`: it was released before, or is being released.
    pub fn begin_release(&self) -> Result<bool, Error> {
        let mut state = self.state();
        if let Some(lost) = &state.lost {
            return Err(lost.clone().into());
        }
        if state.is_open {
            return Err(open());
        }
        let is_first = !std::mem::replace(&mut state.ends, true) && !state.is_released;
        if is_first {
            self.story.releasing();
        }
        Ok(is_first)
    }

    /// A stream would not know of it.
    pub fn check_change(&self, how: &str) -> Result<(), Error> {
        self.check_held()?;
        if self.is_streaming {
            let bound = format!("must be a lease without a stream: one that is held while connected cannot be {how}");
            return Err(Error::out_of_bounds("mode", "mode", bound));
        }
        Ok(())
    }

    /// Waits for a renewal that is in flight: none comes after a release.
    pub async fn await_renewal(&self) {
        let asked = self.state().asked.clone();
        if let Some(mut asked) = asked {
            while asked.changed().await.is_ok() {}
        }
    }

    /// Whether a release was sent before, perhaps by another call.
    pub fn sends(&self) -> bool {
        std::mem::replace(&mut self.state().is_sent, true)
    }

    /// Takes in the answer to a release. A repeated one whose first answer was lost is told that the lease has been released.
    pub fn end_release(&self, answer: Result<(), Error>, is_repeated: bool) -> Result<(), Error> {
        match answer {
            Err(Error::Lost(lost)) if !(is_repeated && matches!(lost.reason, Reason::Released | Reason::Failed)) => {
                self.lose(lost.reason, &lost.message);
                Err(lost.into())
            }
            Err(error) if !matches!(error, Error::Lost(_)) => {
                self.story.stayed(Some(&error));
                Err(error)
            }
            _ => {
                self.set_released();
                self.story.ended(None);
                Ok(())
            }
        }
    }

    pub async fn until_over(&self) {
        let _ = self.over.subscribe().wait_for(|&over| over).await;
    }
}

fn open() -> Error {
    Error::out_of_bounds("lease", "lease", "must not be in a transaction that acquires or releases it and is not committed yet".into())
}

#[cfg(feature = "sql")]
impl Cell {
    /// The next statement of a transaction releases it.
    pub fn leave(&self) -> Result<(), Error> {
        self.check_held()?;
        let mut state = self.state();
        (state.ends, state.is_open) = (true, true);
        Ok(())
    }

    /// It was not released.
    pub fn stay(&self) {
        let mut state = self.state();
        (state.ends, state.is_open) = (false, false);
    }

    /// The transaction that acquires it took longer than the lease lasts.
    pub fn check_time(&self) -> Result<(), Error> {
        self.lost().map_or(Ok(()), |lost| Err(lost.into()))
    }
}

#[cfg(feature = "sql")]
impl Lease {
    /// Acquired in a transaction that is not committed yet.
    pub(crate) fn opened(client: &Client, request: &Request, grant: Grant) -> Lease {
        let cell = Cell::new(request, grant, false, &client.core().teller);
        cell.state().is_open = true;
        Lease { client: client.clone(), cell: Arc::new(cell), claimed: None }
    }

    /// It was committed. A client that is closed has lost it.
    pub(crate) fn begin(&self) {
        self.cell.stay();
        let _ = self.client.core().add(&self.cell);
    }
}

impl std::fmt::Debug for Lease {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Lease").field("namespace", &self.namespace()).field("key", &self.key()).field("token", &self.token()).finish()
    }
}

impl Lease {
    pub(crate) fn new(client: Client, mut request: Request, mut grant: Grant) -> Result<Lease, Error> {
        let (holding, claimed) = (grant.holding.take(), grant.claimed.take());
        if let Some(claimed) = &claimed {
            request.scope.key.clone_from(&claimed.key);
        }
        let cell = Arc::new(Cell::new(&request, grant, holding.is_some(), &client.core().teller));
        client.core().add(&cell)?;
        if let Some(holding) = holding {
            let (core, its) = (client.core().clone(), cell.clone());
            client.core().spawn(async move { core.follow(&its, &request, holding).await })?;
        }
        Ok(Lease { client, cell, claimed })
    }

    /// Dotted: payments.invoices.
    pub fn namespace(&self) -> &str {
        &self.cell.scope.namespace
    }

    /// The name inside of the namespace.
    pub fn key(&self) -> &str {
        &self.cell.scope.key
    }

    /// Grows with each grant of the scope: hand it to whatever must refuse a holder that is late. [`Lease::downgrade`] changes it.
    pub fn token(&self) -> i64 {
        self.cell.state().token
    }

    /// What a shared lease takes of the capacity; 0: an exclusive lease has all of it.
    pub fn units(&self) -> u32 {
        self.cell.state().units
    }

    /// Numbers from 1 to the capacity that no other holder of the scope has, as many as there are units, ascending; none for an exclusive
    /// lease, and where there is no capacity.
    pub fn slots(&self) -> Vec<u32> {
        self.cell.state().slots.clone()
    }

    /// How long work under the lease may still take, if it is not renewed again: until a fifth of the duration before the deadline.
    /// [`crate::Deadline`] makes it the limit of gRPC calls.
    pub fn remaining(&self) -> Duration {
        self.cell.remaining()
    }

    /// When the database ends the lease, if it is not renewed again; the holder is told earlier, see [`Lease::remaining`].
    pub fn deadline(&self) -> std::time::Instant {
        std::time::Instant::now() + self.cell.deadline().saturating_sub(now())
    }

    /// `None` while the lease is held, and after it was released.
    pub fn is_lost(&self) -> Option<Lost> {
        self.cell.lost()
    }

    /// Ends when the lease is lost; never after it was released.
    pub async fn lost(&self) -> Lost {
        together::lost(std::slice::from_ref(&self.cell)).await
    }

    /// Runs work until it ends or the lease is lost: then the work's future is dropped.
    pub async fn run<F: Future>(&self, work: F) -> Result<F::Output, Lost> {
        together::run_under(std::slice::from_ref(self), work).await
    }

    /// Gives the lease back. It repeats the request until it is answered or the deadline has passed; `Ok` says that the lease was still held.
    /// Work under the lease must have stopped before. A lease whose release failed is not renewed any more.
    pub async fn release(&self) -> Result<(), Error> {
        self.release_with(Outcome::success()).await
    }

    /// [`Lease::release`] with the outcome of the work.
    pub async fn release_with(&self, outcome: Outcome) -> Result<(), Error> {
        together::release_all(std::slice::from_ref(self), outcome).await
    }

    /// Gives the lease back without waiting for anything: from the call on it is neither held nor renewed. The client sends what is given
    /// back in the background, all that there is in one request. A release that fails is repeated until the lease's deadline, and at the
    /// client's end for at most the flush time-out; then the lease is left to expire, and the log gets a line. An acquire of the same scope by
    /// the same client follows it.
    pub fn try_release(&self, outcome: Outcome) -> Result<(), Error> {
        if !self.cell.begin_release()? || self.cell.is_over() {
            return Err(Error::Released);
        }
        self.client.core().part(&self.cell, outcome);
        Ok(())
    }

    /// Makes an exclusive lease shared, with so many units, in one step: shared requests that wait behind it are let in, and no exclusive
    /// one comes between. With a shared lease it gives units back. The lease goes on under another token. It repeats the request until it is
    /// answered, or the lease is lost; it may be called again.
    pub async fn downgrade(&self, units: u32) -> Result<(), Error> {
        check_units(units)?;
        self.cell.check_change("downgraded")?;
        let (core, cell) = (self.client.core().clone(), self.cell.clone());
        self.client.run(async move { core.downgrade(&cell, units).await }).await
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        let outcome = match () {
            () if std::thread::panicking() => Outcome::failure("the work panicked"),
            () if self.claimed.is_some() => Outcome::failure("the loop was left before the work had ended"),
            () => Outcome::success(),
        };
        let _ = self.try_release(outcome);
    }
}

impl Core {
    /// In one request; those that are to be repeated, in another. The first error counts.
    pub async fn release(&self, cells: &[Arc<Cell>], outcome: Outcome) -> Result<(), Error> {
        for cell in cells {
            cell.await_renewal().await;
        }
        let mut retrying = Retrying::new(self, "Release", &cells[0].scope, &cells[0].strategy);
        let mut left: Vec<_> = cells.iter().collect();
        let mut result = Ok(());
        while !left.is_empty() {
            let repeated: Vec<_> = left.iter().map(|cell| cell.sends()).collect();
            let items: Vec<_> = left.iter().map(|cell| Ending { scope: cell.scope.clone(), outcome: outcome.clone() }).collect();
            let answers = self.transport.release(&items, self.settings.patience).await;
            let mut again = vec![];
            for ((cell, answer), is_repeated) in left.into_iter().zip(answers).zip(repeated) {
                match answer {
                    Err(error) if error.is_unavailable() && !cell.remaining().is_zero() => again.push((cell, error)),
                    answer => result = result.and(cell.end_release(answer, is_repeated)),
                }
            }
            if let Some((_, error)) = again.first() {
                let time = again.iter().map(|(cell, _)| cell.remaining()).min().unwrap_or_default();
                if !retrying.again(error, time).await {
                    again.iter().for_each(|(cell, error)| cell.story.stayed(Some(error)));
                    result = result.and(Err(error.clone()));
                    break;
                }
            }
            left = again.into_iter().map(|(cell, _)| cell).collect();
        }
        self.look();
        result
    }

    async fn downgrade(&self, cell: &Arc<Cell>, units: u32) -> Result<(), Error> {
        let mut retrying = Retrying::new(self, "Downgrade", &cell.scope, &cell.strategy);
        let patience = self.settings.patience.min((cell.duration / 6).max(Duration::from_millis(500)));
        loop {
            cell.check_held()?;
            match self.transport.downgrade(&cell.renewal(), units, patience).await {
                Ok(grant) => {
                    let mut state = cell.state();
                    if let Some(lost) = &state.lost {
                        return Err(lost.clone().into());
                    }
                    state.take(grant, cell.duration);
                    cell.story.downgraded(&cell.scope.namespace, state.token);
                    return Ok(());
                }
                Err(Error::Lost(lost)) => {
                    cell.lose(lost.reason, &lost.message);
                    return Err(lost.into());
                }
                Err(error) if !error.is_unavailable() => return Err(error),
                Err(error) => {
                    if !retrying.again(&error, cell.remaining().min(FOREVER)).await {
                        return Err(error);
                    }
                }
            }
        }
    }
}
