//! The ticks of a schedule, for a worker.

use std::convert::Infallible;
use std::fmt::Display;
use std::future::Future;
use std::ops::Deref;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use crate::change::Change;
use crate::client::Client;
use crate::error::{Error, scope_name};
use crate::hand_over::HandOver;
use crate::lease::Lease;
use crate::release::Outcome;
use crate::request::{FOREVER, LeaseBuilder, Request};
use crate::retry::Strategy;

/// What a claim was answered with.
#[derive(Clone, Debug)]
pub(crate) struct Claimed {
    pub key: String,
    pub at: SystemTime,
    pub attempt: u32,
}

/// An instant of a schedule that this process has claimed, and its lease: the namespace is the schedule, the key is the instant.
#[derive(Debug)]
pub struct Tick {
    lease: Lease,
    claimed: Claimed,
}

impl Tick {
    /// The instant, which the work is for, whenever it runs.
    pub fn at(&self) -> SystemTime {
        self.claimed.at
    }

    /// 1 for the first; a tick that failed comes again, as the schedule says.
    pub fn attempt(&self) -> u32 {
        self.claimed.attempt
    }

    /// What cannot be released is left to expire: then the tick has failed.
    pub(crate) async fn end<E: Display>(&self, result: Result<Outcome, E>) {
        if let Err(error) = self.release_with(result.unwrap_or_else(Outcome::failure)).await {
            (self.client.core().settings.log)(&format!("the tick {}: {error}", scope_name(self.namespace(), self.key())));
        }
    }
}

impl Deref for Tick {
    type Target = Lease;

    fn deref(&self) -> &Lease {
        &self.lease
    }
}

/// A worker of a schedule: [`Client::ticks`] makes it.
#[derive(Clone, Debug)]
#[must_use = "ticks are claimed by run()"]
pub struct Ticks {
    client: Client,
    pub(crate) lease: LeaseBuilder,
}

impl Client {
    /// A worker of the schedule of this name.
    ///
    /// ```no_run
    /// # async fn work(client: leasehold::Client) -> Result<(), leasehold::Error> {
    /// use leasehold::{Error, Outcome};
    ///
    /// client.ticks("reports.nightly").run(|tick| async move {
    ///     println!("attempt {} of {:?}", tick.attempt(), tick.at());
    ///     Ok::<_, Error>(Outcome::success())
    /// }).await?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn ticks(&self, schedule: &str) -> Ticks {
        Ticks { client: self.clone(), lease: self.lease(schedule, "tick").wait(FOREVER) }
    }

    /// Waits for the next.
    pub(crate) async fn claim(&self, request: &Request) -> Result<Tick, Error> {
        let lease = self.acquire(request.clone()).await?.remove(0);
        let claimed = lease.claimed.clone().expect("the lease of a claim has one");
        Ok(Tick { lease, claimed })
    }
}

impl Ticks {
    /// How long a tick's lease lives without a renewal; 30 s by default. So long after a worker has died another gets the tick.
    pub fn duration(mut self, duration: Duration) -> Self {
        self.lease = self.lease.duration(duration);
        self
    }

    /// Who works, for people; host and pid by default. At most 255 bytes.
    pub fn owner(mut self, owner: impl Into<String>) -> Self {
        self.lease = self.lease.owner(owner);
        self
    }

    /// A label is shown with each tick's lease; at most 16.
    pub fn label(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        self.lease = self.lease.label(name, value);
        self
    }

    /// Is told once of each request to hand a tick over: [`LeaseBuilder::on_asked`].
    pub fn on_asked(mut self, tell: impl Fn(HandOver) + Send + Sync + 'static) -> Self {
        self.lease = self.lease.on_asked(tell);
        self
    }

    /// Is told of each tick's lease: [`LeaseBuilder::on_change`].
    pub fn on_change(mut self, tell: impl Fn(Change) + Send + Sync + 'static) -> Self {
        self.lease = self.lease.on_change(tell);
        self
    }

    /// Decides about retries in place of the client's strategy.
    pub fn retries(mut self, strategy: Strategy) -> Self {
        self.lease = self.lease.retries(strategy);
        self
    }

    /// Waits for the next tick that may run, claims it, runs the work, and releases the tick's lease with the outcome, over and over. The outcome makes
    /// the tick done, with its result. An error makes it failed, with the error's words: the schedule says when it is claimed again. When the lease is
    /// lost the work's future is dropped, and the loop goes on. Any number of workers may share a schedule.
    ///
    /// It ends with [`Error::InvalidArgument`] where no schedule has this name, [`Error::Denied`], or [`Error::Closed`]; it repeats what is unavailable.
    /// Dropping its future while the work runs makes the tick failed.
    pub async fn run<E, F, W>(self, mut work: W) -> Result<Infallible, Error>
    where
        W: FnMut(Arc<Tick>) -> F,
        F: Future<Output = Result<Outcome, E>>,
        E: Display,
    {
        let request = self.lease.of_tick()?;
        loop {
            let tick = Arc::new(self.client.claim(&request).await?);
            if let Ok(result) = tick.run(work(tick.clone())).await {
                tick.end(result).await;
            }
        }
    }
}
