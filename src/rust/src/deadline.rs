//! The time of leases, for the calls that their work makes.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use tonic::Status;
use tonic::service::Interceptor;

use crate::error::Error;
use crate::lease::{Cell, Lease};
use crate::together::lost;

tokio::task_local! {
    /// The leases around a task's work, those of outer work first.
    static HELD: Vec<Arc<Cell>>;
}

/// How long the leases still last that this work runs under, those of the work around it too: the least of their [`Lease::remaining`]. `None`: it runs
/// under none. Work is what the methods `run` and `lead` get, of the blocking client too; a task that it spawns runs under none.
pub fn remaining() -> Option<Duration> {
    HELD.try_with(|cells| cells.iter().map(|cell| cell.remaining()).min()).ok().flatten()
}

/// An interceptor of tonic: a call that is made in the work of a lease carries at most [`remaining`] as its grpc-timeout, which tonic keeps and the server
/// sees. Other calls are as they were.
///
/// ```no_run
/// # #[derive(Clone)] struct OrdersClient;
/// # impl OrdersClient { fn with_interceptor(_: tonic::transport::Channel, _: leasehold::Deadline) -> Self { OrdersClient } }
/// # async fn connect(channel: tonic::transport::Channel) {
/// let orders = OrdersClient::with_interceptor(channel, leasehold::Deadline);
/// # }
/// ```
#[derive(Clone, Copy, Debug, Default)]
pub struct Deadline;

impl Interceptor for Deadline {
    fn call(&mut self, mut request: tonic::Request<()>) -> Result<tonic::Request<()>, Status> {
        let own = request.metadata().get("grpc-timeout").and_then(|value| timeout_of(value.to_str().ok()?));
        if let Some(left) = remaining() {
            request.set_timeout(own.map_or(left, |own| own.min(left)));
        }
        Ok(request)
    }
}

fn held() -> Vec<Arc<Cell>> {
    HELD.try_with(Clone::clone).unwrap_or_default()
}

fn held_with(leases: &[Lease]) -> Vec<Arc<Cell>> {
    held().into_iter().chain(leases.iter().map(|lease| lease.cell.clone())).collect()
}

/// Runs work under leases.
pub(crate) fn within<F: Future>(leases: &[Lease], work: F) -> impl Future<Output = F::Output> {
    HELD.scope(held_with(leases), work)
}

/// The same without async.
pub(crate) fn within_now<T>(leases: &[Lease], work: impl FnOnce() -> T) -> T {
    HELD.sync_scope(held_with(leases), work)
}

/// Ends a call of such work when one of its leases is lost, as async work is dropped.
pub(crate) async fn bounded<T>(call: impl Future<Output = Result<T, Error>>) -> Result<T, Error> {
    let held = held();
    tokio::select! {
        biased;
        lost = lost(&held) => Err(lost.into()),
        answer = call => answer,
    }
}

/// Of a grpc-timeout, as gRPC's specification of its protocol over HTTP/2 has it.
fn timeout_of(value: &str) -> Option<Duration> {
    let (number, unit) = value.split_at_checked(value.len().checked_sub(1)?)?;
    let nanos: u64 = match unit {
        "H" => 3_600_000_000_000,
        "M" => 60_000_000_000,
        "S" => 1_000_000_000,
        "m" => 1_000_000,
        "u" => 1_000,
        "n" => 1,
        _ => return None,
    };
    Some(Duration::from_nanos(number.parse::<u64>().ok()?.saturating_mul(nanos)))
}
