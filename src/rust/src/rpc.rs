//! Daemons, over gRPC. Each address has a connection of its own: a call that is not answered in time, or fails, makes the next call use the
//! next address. Each call is one try; an error that is `Unavailable` says that another may succeed.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use tonic::Status;
use tonic::service::interceptor::InterceptedService;
use tonic::transport::Channel;

use crate::circuit::Circuit;
use crate::client::RETRY_AFTER;
use crate::clock::now;
use crate::connect::Bearer;
use crate::error::{Error, InvalidArgument, Lost, Reason, RetryReason};
use crate::hand_over::HandOver;
use crate::hold::{Holding, Said};
use crate::request::{FOREVER, Ref, Request};
use crate::status::{from_status, words_of};
use crate::ticks::Claimed;
use crate::together::Scope;
use crate::transport::{Beat, Ending, Grant, Renewal};
use crate::v1::console_service_client::ConsoleServiceClient;
use crate::v1::lease_service_client::LeaseServiceClient;
use crate::v1::schedule_service_client::ScheduleServiceClient;
use crate::v1::{self, acquire_event, hold_event, release_item};

/// The server says `queued` at least every 5 s: one that is silent for three times as long hangs.
pub(crate) const SILENCE: Duration = Duration::from_secs(15);

/// The longest wait of one request for a tick; it shows that the server lives.
const CLAIM_WAIT: Duration = Duration::from_secs(10);

pub(crate) type Wire = InterceptedService<Channel, Bearer>;
pub(crate) type Stub = LeaseServiceClient<Wire>;
type ScheduleStub = ScheduleServiceClient<Wire>;
pub(crate) type ConsoleStub = ConsoleServiceClient<Wire>;

pub(crate) struct Rpc {
    servers: Vec<Stub>,
    /// On the same connections.
    schedules: Vec<ScheduleStub>,
    pub consoles: Vec<ConsoleStub>,
    circuits: Vec<Circuit>,
    current: AtomicUsize,
    pub patience: Duration,
}

impl Rpc {
    pub fn new(wires: &[Wire], patience: Duration) -> Rpc {
        Rpc {
            servers: wires.iter().cloned().map(Stub::new).collect(),
            schedules: wires.iter().cloned().map(ScheduleStub::new).collect(),
            consoles: wires.iter().cloned().map(ConsoleStub::new).collect(),
            circuits: wires.iter().map(|_| Circuit::default()).collect(),
            current: AtomicUsize::new(0),
            patience,
        }
    }

    pub fn pick(&self) -> (usize, Stub) {
        let at = self.current.load(Ordering::Relaxed);
        (at, self.servers[at].clone())
    }

    /// Makes an error of this crate, and leaves the server where another may do better.
    fn failed(&self, at: usize, scope: &Ref, status: &Status) -> Error {
        self.left(at, from_status(scope, status))
    }

    fn left(&self, at: usize, error: Error) -> Error {
        if error.retry_reason().is_some_and(RetryReason::is_next) {
            self.leave(at);
        }
        error
    }

    /// Makes the next address the current one, unless another call did so already.
    pub fn leave(&self, at: usize) {
        let next = (at + 1) % self.servers.len();
        let _ = self.current.compare_exchange(at, next, Ordering::Relaxed, Ordering::Relaxed);
    }

    fn silent(&self, at: usize) -> Error {
        self.left(at, Error::unavailable(RetryReason::SocketClosedWhileInFlight, "the server was silent for too long"))
    }

    /// One call that is answered at once.
    pub async fn call<T>(
        &self,
        at: usize,
        scope: &Ref,
        patience: Duration,
        call: impl Future<Output = Result<tonic::Response<T>, Status>>,
    ) -> Result<T, Error> {
        let (circuit, sent) = (&self.circuits[at], now());
        circuit.admit(sent).map_err(|error| self.left(at, error))?;
        match tokio::time::timeout(patience, call).await {
            Ok(Ok(answer)) => {
                circuit.close();
                Ok(answer.into_inner())
            }
            Ok(Err(status)) => {
                match std::error::Error::source(&status) {
                    None => circuit.close(), // the server's own words
                    Some(_) => circuit.fail(sent, now(), words_of(&status)),
                }
                Err(self.failed(at, scope, &status))
            }
            Err(_) => Err(self.silent(at)),
        }
    }

    /// Waits for at most `wait`. When it fails, it may have been granted all the same.
    pub async fn acquire(&self, request: &Request, wait: Duration) -> Result<Grant, Error> {
        if request.is_tick {
            return self.claim(request).await;
        }
        let (at, mut stub) = self.pick();
        let sent = now();
        if request.while_connected {
            let (said, alive) = Said::new(message(request, wait), request.duration);
            let mut stream = self.call(at, &request.scope, self.patience, stub.hold(said)).await?;
            let mut limit = self.patience.saturating_sub(now() - sent);
            loop {
                let event = self.event(at, &request.scope, limit, &mut stream).await?;
                if let Some(hold_event::Event::Granted(lease)) = event.event {
                    let holding = Some(Holding::new(at, stream, alive));
                    return Ok(Grant { holding, ..grant_of(&lease, request, sent, event.waited)? });
                }
                limit = SILENCE;
            }
        }
        let mut stream = self.call(at, &request.scope, self.patience, stub.acquire_stream(message(request, wait))).await?;
        let mut limit = self.patience.saturating_sub(now() - sent);
        loop {
            let event = self.event(at, &request.scope, limit, &mut stream).await?;
            if let Some(acquire_event::Event::Granted(lease)) = event.event {
                let grant = grant_of(&lease, request, sent, event.waited)?;
                // The end; a reset in its place could take the grant back.
                let _ = tokio::time::timeout(Duration::from_millis(100), stream.message()).await;
                return Ok(grant);
            }
            limit = SILENCE;
        }
    }

    /// A grant for each scope, or none.
    pub async fn acquire_all(&self, request: &Request, wait: Duration) -> Result<Vec<Grant>, Error> {
        let (at, mut stub) = self.pick();
        let (sent, single) = (now(), message(request, wait));
        let item = |each: &Scope| v1::AcquireItem {
            scope: Some(v1::Scope { namespace: segments(&each.namespace), key: each.key.clone() }),
            mode: if each.units.is_some() { v1::Mode::Shared } else { v1::Mode::Exclusive } as i32,
            units: each.units.unwrap_or_default() as i32,
            at_least: None,
        };
        let message = v1::AcquireAllRequest {
            items: request.scopes.iter().map(item).collect(),
            duration: single.duration,
            wait: single.wait,
            wait_forever: single.wait_forever,
            owner: single.owner,
            lease_key: single.lease_key,
            labels: single.labels,
        };
        let any = Ref { namespace: String::new(), key: String::new(), lease_key: String::new() };
        let answer = self.call(at, &any, wait.saturating_add(self.patience), stub.acquire_all(message)).await?;
        grants_of(&answer.leases, request.scopes.len(), &request.scope, request.duration, sent, answer.waited)
    }

    /// Waits for a tick.
    async fn claim(&self, request: &Request) -> Result<Grant, Error> {
        loop {
            let (at, sent) = (self.pick().0, now());
            let message = v1::ClaimTickRequest {
                namespace: Some(v1::Namespace { segments: segments(&request.scope.namespace) }),
                wait: proto(CLAIM_WAIT),
                duration: proto(request.duration),
                owner: request.owner.clone(),
                lease_key: request.scope.lease_key.clone(),
                labels: request.labels.clone().into_iter().collect(),
            };
            let mut stub = self.schedules[at].clone();
            let answer = self.call(at, &request.scope, CLAIM_WAIT + self.patience, stub.claim_tick(message)).await?;
            if let Some(lease) = answer.lease {
                let grant = grant_of(&lease, request, sent, answer.waited)?;
                let key = lease.scope.unwrap_or_default().key;
                let claimed = Claimed { key, at: time_of(&answer.at), attempt: answer.attempt as u32 };
                return Ok(Grant { claimed: Some(claimed), ..grant });
            }
            // A server that does not wait is not asked more than ten times a second.
            tokio::time::sleep(RETRY_AFTER.saturating_sub(now() - sent)).await;
        }
    }

    /// The next event of a stream.
    pub async fn event<T>(&self, at: usize, scope: &Ref, limit: Duration, stream: &mut tonic::Streaming<T>) -> Result<T, Error> {
        match tokio::time::timeout(limit, stream.message()).await {
            Ok(Ok(Some(event))) => Ok(event),
            Ok(Ok(None)) => {
                let trouble = "the server ended the call without an answer";
                Err(self.left(at, Error::unavailable(RetryReason::SocketClosedWhileInFlight, trouble)))
            }
            Ok(Err(status)) => Err(self.failed(at, scope, &status)),
            Err(_) => Err(self.silent(at)),
        }
    }

    /// One answer for each.
    pub async fn heartbeat(&self, items: &[Renewal], patience: Duration) -> Result<Vec<Beat>, Error> {
        let (at, mut stub) = self.pick();
        let leases = items.iter().map(|item| lease_ref(&item.scope)).collect();
        let answer = self.call(at, &items[0].scope, patience, stub.heartbeat(v1::HeartbeatRequest { leases })).await?;
        check(answer.results.iter().map(|result| &result.lease_key), items.iter().map(|item| &item.scope))?;
        let beat = |(result, item): (v1::HeartbeatResult, &Renewal)| match result.outcome() {
            v1::Outcome::Ok => Beat::Renewed {
                remaining: duration_of(result.remaining).min(item.duration),
                is_final: result.deadline_is_final,
                asked: result.asked.map(|request| hand_over_of(request, "", 0)),
            },
            v1::Outcome::Lost => Beat::Lost { reason: reason_of(result.end_reason()), message: result.message },
            _ => Beat::Failed(result.message),
        };
        Ok(answer.results.into_iter().zip(items).map(beat).collect())
    }

    /// May be repeated: the answer is the same.
    pub async fn downgrade(&self, item: &Renewal, units: u32, patience: Duration) -> Result<Grant, Error> {
        let (at, mut stub) = self.pick();
        let sent = now();
        let request = v1::DowngradeRequest { lease: Some(lease_ref(&item.scope)), units: units as i32 };
        let answer = self.call(at, &item.scope, patience, stub.downgrade(request)).await?;
        Ok(grants_of(answer.lease.as_slice(), 1, &item.scope, item.duration, sent, answer.waited)?.remove(0))
    }

    /// A request for each holder.
    pub async fn ask_hand_over(&self, scope: &Ref, reason: &str, owner: &str) -> Result<Vec<HandOver>, Error> {
        let (at, mut stub) = self.pick();
        let request =
            v1::AskHandOverRequest { scope: Some(scope_of(scope)), reason: reason.into(), owner: owner.into(), ..v1::AskHandOverRequest::default() };
        match self.call(at, scope, self.patience, stub.ask_hand_over(request)).await {
            Ok(answer) => {
                let asked = |holder: v1::Lease| holder.asked.map(|request| hand_over_of(request, &holder.owner, holder.token));
                Ok(answer.holders.into_iter().filter_map(asked).collect())
            }
            Err(Error::Lost(_)) => Ok(vec![]), // nobody holds it
            Err(error) => Err(error),
        }
    }

    /// False: nobody has asked, or the lease has ended.
    pub async fn refuse_hand_over(&self, scope: &Ref, words: &str) -> Result<bool, Error> {
        let (at, mut stub) = self.pick();
        let request = v1::RefuseHandOverRequest { lease: Some(lease_ref(scope)), reason: words.into() };
        match self.call(at, scope, self.patience, stub.refuse_hand_over(request)).await {
            Ok(_) => Ok(true),
            Err(Error::Denied { reason, .. }) if reason == "NOT_ASKED" => Ok(false),
            Err(Error::Lost(_)) => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// One answer for each.
    pub async fn release(&self, items: &[Ending], patience: Duration) -> Vec<Result<(), Error>> {
        let (at, mut stub) = self.pick();
        let messages = items.iter().map(|item| v1::ReleaseItem {
            lease: Some(lease_ref(&item.scope)),
            result: Some(match item.outcome.is_failed {
                true => release_item::Result::Failure(item.outcome.value.clone()),
                false => release_item::Result::Success(item.outcome.value.clone()),
            }),
        });
        let request = v1::ReleaseRequest { items: messages.collect() };
        let answer = self.call(at, &items[0].scope, patience, stub.release(request)).await;
        let checked = answer.and_then(|answer| {
            check(answer.results.iter().map(|result| &result.lease_key), items.iter().map(|item| &item.scope))?;
            Ok(answer)
        });
        match checked {
            Err(error) => vec![Err(error); items.len()],
            Ok(answer) => items.iter().zip(answer.results).map(|(item, result)| released(&item.scope, result)).collect(),
        }
    }

    /// Ends what acquires may have left: places in the queue, and grants.
    pub async fn give_up(&self, refs: &[Ref], patience: Duration) -> Vec<Result<(), Error>> {
        self.release(&Ending::unheard(refs), patience).await
    }
}

fn released(scope: &Ref, result: v1::ReleaseResult) -> Result<(), Error> {
    let (namespace, key) = (scope.namespace.clone(), scope.key.clone());
    let denied = |reason: &str, message| Err(Error::Denied { reason: reason.into(), message });
    match result.outcome() {
        v1::Outcome::Ok => Ok(()),
        v1::Outcome::Lost => Err(Error::Lost(Lost { namespace, key, reason: reason_of(result.end_reason()), message: result.message })),
        v1::Outcome::Denied => denied("ACCESS_DENIED", result.message),
        v1::Outcome::Rejected => denied("HOOK_REJECTED", result.message),
        v1::Outcome::Invalid => {
            Err(Error::InvalidArgument(InvalidArgument { field: "result".into(), bound: String::new(), message: result.message }))
        }
        _ => Err(Error::unavailable(RetryReason::OutcomeRetry, result.message)),
    }
}

pub(crate) fn scope_of(scope: &Ref) -> v1::Scope {
    v1::Scope { namespace: segments(&scope.namespace), key: scope.key.clone() }
}

fn segments(namespace: &str) -> Vec<String> {
    namespace.split('.').map(String::from).collect()
}

fn lease_ref(scope: &Ref) -> v1::LeaseRef {
    v1::LeaseRef { scope: Some(scope_of(scope)), lease_key: scope.lease_key.clone() }
}

fn proto(duration: Duration) -> Option<prost_types::Duration> {
    Some(prost_types::Duration { seconds: duration.as_secs() as i64, nanos: duration.subsec_nanos() as i32 })
}

pub(crate) fn duration_of(duration: Option<prost_types::Duration>) -> Duration {
    duration.and_then(|duration| duration.try_into().ok()).unwrap_or_default()
}

fn message(request: &Request, wait: Duration) -> v1::AcquireRequest {
    let waits_for_holder = request.while_alive && !wait.is_zero();
    let wait = if waits_for_holder { request.wait } else { wait };
    v1::AcquireRequest {
        scope: Some(scope_of(&request.scope)),
        duration: proto(request.duration),
        wait: if wait == FOREVER { None } else { proto(wait) },
        wait_forever: wait == FOREVER,
        owner: request.owner.clone(),
        lease_key: request.scope.lease_key.clone(),
        labels: request.labels.clone().into_iter().collect(),
        wait_while_alive: waits_for_holder,
        mode: if request.units > 0 { v1::Mode::Shared } else { v1::Mode::Unspecified } as i32,
        units: request.units as i32,
        priority: request.priority as i32,
        ask_hand_over: request.ask_hand_over && !wait.is_zero(),
        at_least: request.at_least.and_then(proto),
    }
}

/// Refuses what is about other leases than were asked for. An answer may name none.
pub(crate) fn check<'a>(answered: impl ExactSizeIterator<Item = &'a String>, asked: impl ExactSizeIterator<Item = &'a Ref>) -> Result<(), Error> {
    if answered.len() == asked.len() && answered.zip(asked).all(|(key, scope)| key.is_empty() || *key == scope.lease_key) {
        return Ok(());
    }
    Err(Error::unavailable(RetryReason::Unknown, "the server answered for other leases than it was asked for"))
}

/// What an answer grants: no later than it came, and for no longer than was asked.
fn grants_of(
    leases: &[v1::Lease],
    count: usize,
    scope: &Ref,
    duration: Duration,
    sent: Duration,
    waited: Option<prost_types::Duration>,
) -> Result<Vec<Grant>, Error> {
    check(leases.iter().map(|lease| &lease.lease_key), std::iter::repeat_n(scope, count))?;
    let since = sent + duration_of(waited).min(now().saturating_sub(sent));
    let grant = |lease: &v1::Lease| Grant {
        token: lease.token,
        deadline: since + duration_of(lease.remaining).min(duration),
        is_final: lease.deadline_is_final,
        units: lease.units as u32,
        slots: lease.slots.iter().map(|&slot| slot as u32).collect(),
        holding: None,
        claimed: None,
    };
    Ok(leases.iter().map(grant).collect())
}

fn grant_of(lease: &v1::Lease, request: &Request, sent: Duration, waited: Option<prost_types::Duration>) -> Result<Grant, Error> {
    Ok(grants_of(std::slice::from_ref(lease), 1, &request.scope, request.duration, sent, waited)?.remove(0))
}

pub(crate) fn reason_of(reason: v1::EndReason) -> Reason {
    match reason {
        v1::EndReason::Released => Reason::Released,
        v1::EndReason::Failed => Reason::Failed,
        v1::EndReason::Expired => Reason::Expired,
        v1::EndReason::Forced => Reason::Forced,
        v1::EndReason::MaxHold => Reason::MaxHold,
        _ => Reason::Unknown,
    }
}

/// Nanoseconds since 1970.
pub(crate) fn nanos(at: &Option<prost_types::Timestamp>) -> i128 {
    at.as_ref().map_or(0, |at| at.seconds as i128 * 1_000_000_000 + at.nanos as i128)
}

pub(crate) fn some_time(at: Option<prost_types::Timestamp>) -> Option<SystemTime> {
    at.is_some().then(|| time_of(&at))
}

fn time_of(at: &Option<prost_types::Timestamp>) -> SystemTime {
    UNIX_EPOCH + Duration::from_nanos(nanos(at).clamp(0, u64::MAX as i128) as u64)
}

pub(crate) fn hand_over_of(request: v1::HandOver, owner: &str, token: i64) -> HandOver {
    HandOver {
        asked_at: time_of(&request.asked_at),
        asked_by: request.asked_by,
        principal: request.principal,
        reason: request.reason,
        answer_by: time_of(&request.answer_by),
        answer_in: duration_of(request.answer_in),
        refusal: request.refusal,
        owner: owner.into(),
        token,
    }
}
