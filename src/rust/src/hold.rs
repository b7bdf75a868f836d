//! A lease that a stream holds: the daemon renews it while this process says that it is alive, and releases it when the connection breaks, as it
//! does when the process dies. The daemon says `queued`, `granted`, then `renewed` until the end. When the stream ends before the lease, another
//! one, perhaps to another daemon, finds the lease again by its lease key.

use std::collections::BTreeMap;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};
use std::time::Duration;

use tonic::codegen::tokio_stream::Stream;

use crate::client::{Core, RETRY_AFTER};
use crate::clock::now;
use crate::error::{Error, Reason};
use crate::lease::Cell;
use crate::request::Request;
use crate::rpc::{SILENCE, check, duration_of, hand_over_of, reason_of};
use crate::transport::Beat;
use crate::v1::{self, hold_event, hold_request};

const MOST_KEPT: usize = 100; // `alive` whose time is remembered

/// When which `alive` was sent.
type Sent = Arc<Mutex<BTreeMap<i64, Duration>>>;

pub(crate) struct Holding {
    pub at: usize,
    pub stream: tonic::Streaming<v1::HoldEvent>,
    sent: Sent,
}

/// What the client says: `acquire`, then `alive` from time to time. Proxies end streams on which nothing is sent, and answer PINGs for a process
/// that is stopped.
pub(crate) struct Said {
    acquire: Option<v1::AcquireRequest>,
    ticks: tokio::time::Interval,
    sequence: i64,
    sent: Sent,
}

impl Said {
    pub fn new(acquire: v1::AcquireRequest, duration: Duration) -> (Said, Sent) {
        let mut ticks = tokio::time::interval((duration / 6).clamp(Duration::from_millis(1), SILENCE));
        ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        let sent = Sent::default();
        (Said { acquire: Some(acquire), ticks, sequence: 0, sent: sent.clone() }, sent)
    }
}

impl Stream for Said {
    type Item = v1::HoldRequest;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<v1::HoldRequest>> {
        let request = |request| Poll::Ready(Some(v1::HoldRequest { request: Some(request), by_ping: false }));
        if let Some(acquire) = self.acquire.take() {
            return request(hold_request::Request::Acquire(acquire));
        }
        std::task::ready!(self.ticks.poll_tick(context));
        self.sequence += 1;
        let mut sent = self.sent.lock().expect("no code panics under this lock");
        sent.insert(self.sequence, now());
        if sent.len() > MOST_KEPT {
            sent.pop_first();
        }
        request(hold_request::Request::Alive(v1::Alive { sequence: self.sequence }))
    }
}

impl Holding {
    pub fn new(at: usize, stream: tonic::Streaming<v1::HoldEvent>, sent: Sent) -> Holding {
        Holding { at, stream, sent }
    }

    /// When that `alive` was sent; older ones are forgotten.
    fn sent_at(&self, sequence: i64) -> Option<Duration> {
        let mut sent = self.sent.lock().expect("no code panics under this lock");
        *sent = sent.split_off(&sequence);
        sent.get(&sequence).copied()
    }

    /// Takes in what the daemon says, until the stream ends or the lease is over.
    async fn listen(&mut self, core: &Core, cell: &Cell) {
        // The next renewal comes after a third of the duration.
        let mut silent_at = tokio::time::Instant::now() + cell.duration / 2;
        loop {
            let event = tokio::select! {
                event = self.stream.message() => event,
                () = tokio::time::sleep_until(silent_at) => return,
                () = cell.until_over() => return,
            };
            let Ok(Some(event)) = event else { return };
            match event.event {
                Some(hold_event::Event::Lost(lost)) => return cell.lose(reason_of(lost.end_reason()), &lost.message),
                Some(hold_event::Event::Renewed(lease)) if check([&lease.lease_key].into_iter(), [&cell.scope].into_iter()).is_ok() => {
                    silent_at = tokio::time::Instant::now() + cell.duration / 2;
                    if let Some(at) = self.sent_at(event.alive_sequence) {
                        cell.extend(at + duration_of(lease.remaining).min(cell.duration), lease.deadline_is_final);
                    }
                }
                Some(hold_event::Event::Asked(request)) => core.tell_asked(cell, hand_over_of(request, "", 0)),
                _ => {}
            }
        }
    }
}

impl Core {
    /// Keeps a lease until it is over.
    pub async fn follow(&self, cell: &Cell, request: &Request, mut holding: Holding) {
        loop {
            holding.listen(self, cell).await;
            if cell.is_over() {
                // The end of the stream releases what it holds: not before the release with its outcome.
                return self.await_release(&cell.scope).await;
            }
            self.transport.leave(holding.at);
            holding = loop {
                let found = tokio::time::timeout(cell.duration / 6, self.transport.acquire(request, Duration::ZERO)).await;
                match found {
                    Ok(Ok(mut grant)) => {
                        cell.extend(grant.deadline, grant.is_final);
                        match grant.holding.take() {
                            Some(holding) => break holding,
                            None => return,
                        }
                    }
                    Ok(Err(error)) if error.is_ended() || matches!(error, Error::Held(_)) => {
                        let (reason, message) = self.end_of(cell).await;
                        cell.lose(reason, &message);
                    }
                    _ => {}
                }
                if cell.is_over() {
                    return;
                }
                tokio::time::sleep(RETRY_AFTER.min(cell.duration / 20)).await;
            };
        }
    }

    /// How a lease has ended. That the daemon released it is because the stream broke.
    async fn end_of(&self, cell: &Cell) -> (Reason, String) {
        let asked = self.transport.heartbeat(&[cell.renewal()], self.settings.patience).await;
        match asked.map(|mut beats| beats.remove(0)) {
            Ok(Beat::Lost { reason: Reason::Released | Reason::Failed, message }) => (Reason::Unreachable, message),
            Ok(Beat::Lost { reason, message }) => (reason, message),
            _ => (Reason::Unknown, "it had ended when the connection was back".into()),
        }
    }
}
