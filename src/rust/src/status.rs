//! What the statuses of gRPC say.

use std::time::Duration;

use prost::Message;
use tonic::{Code, Status};

use crate::error::{Error, Held, InvalidArgument, Lost, Reason, RetryReason, Unavailable};
use crate::request::Ref;
use crate::rpc::{duration_of, nanos};
use crate::{google_rpc, v1};

/// Makes an error of this crate from one of gRPC's, by the reason in its details.
pub(crate) fn from_status(scope: &Ref, status: &Status) -> Error {
    let message = status.message().to_string();
    let mut held = Held { namespace: scope.namespace.clone(), key: scope.key.clone(), message: message.clone(), ..Held::default() };
    let mut info = google_rpc::ErrorInfo::default();
    let mut retry_after = None;
    let details = google_rpc::Status::decode(status.details()).unwrap_or_default().details;
    for detail in &details {
        match detail.type_url.rsplit('/').next() {
            Some("google.rpc.ErrorInfo") => info = Message::decode(&*detail.value).unwrap_or_default(),
            Some("google.rpc.RetryInfo") => {
                let retry: google_rpc::RetryInfo = Message::decode(&*detail.value).unwrap_or_default();
                retry_after = Some(duration_of(retry.retry_delay));
            }
            Some("leasehold.v1.Contention") => take_contention(&mut held, &Message::decode(&*detail.value).unwrap_or_default()),
            _ => {}
        }
    }
    let of = |name: &str| info.metadata.get(name).cloned().unwrap_or_default();
    if scope.namespace.is_empty() {
        (held.namespace, held.key) = (of("namespace"), of("key")); // of several
    }
    let reason = match info.reason.as_str() {
        reason @ ("LEASE_HELD" | "WAIT_TIMEOUT") => {
            held.retry = (reason == "LEASE_HELD").then_some(RetryReason::LeaseHeld);
            return Error::Held(Box::new(held));
        }
        "NOT_HELD" => {
            let (namespace, key) = (scope.namespace.clone(), scope.key.clone());
            return Error::Lost(Lost { namespace, key, reason: Reason::Unknown, message });
        }
        "INVALID_ARGUMENT" | "MESSAGE_TOO_LARGE" => {
            return Error::InvalidArgument(InvalidArgument { field: of("field"), bound: of("limit"), message });
        }
        reason @ ("NAMESPACE_FROZEN" | "HOOK_REJECTED" | "LEASE_ENDED" | "QUOTA_EXCEEDED" | "UNAUTHENTICATED" | "ACCESS_DENIED" | "NOT_ASKED") => {
            return Error::Denied { reason: reason.into(), message };
        }
        word => match RetryReason::ALL.into_iter().find(|reason| reason.is_unsent() && reason.to_string() == word) {
            Some(reason) => reason,
            None if retry_after.is_some() => RetryReason::RetryInfo,
            None => match status.code() {
                Code::Unauthenticated | Code::PermissionDenied | Code::Unimplemented | Code::FailedPrecondition => {
                    return Error::Denied { reason: format!("{:?}", status.code()), message };
                }
                code => evidence(status).unwrap_or(match code {
                    Code::Unavailable | Code::Cancelled | Code::DeadlineExceeded => RetryReason::SocketClosedWhileInFlight,
                    _ => RetryReason::Unknown,
                }),
            },
        },
    };
    Error::Unavailable(Unavailable { message: words_of(status), reason, retry_after })
}

/// How far a call had come whose end the server did not say.
fn evidence(status: &Status) -> Option<RetryReason> {
    let mut reason = None;
    let mut source = std::error::Error::source(status);
    while let Some(error) = source {
        if error.is::<tonic::ConnectError>() || error.downcast_ref().is_some_and(hyper::Error::is_canceled) {
            return Some(RetryReason::SocketNotAvailable); // hyper cancels what it has not sent
        }
        if error.is::<tonic::transport::Error>() {
            reason = Some(RetryReason::SocketClosedWhileInFlight);
        }
        source = error.source();
    }
    reason
}

/// The words of an error and of what caused it.
pub(crate) fn words_of(error: &dyn std::error::Error) -> String {
    let mut words = error.to_string();
    let mut source = error.source();
    while let Some(error) = source {
        let more = error.to_string();
        if !words.contains(&more) {
            words = format!("{words}: {more}");
        }
        source = error.source();
    }
    words
}

fn since(now: i128, at: &Option<prost_types::Timestamp>) -> Duration {
    Duration::from_nanos((now - nanos(at)).clamp(0, u64::MAX as i128) as u64)
}

fn take_contention(held: &mut Held, contention: &v1::Contention) {
    held.holder_count = contention.holder_count as u32;
    held.ahead = contention.waiters_ahead as u32;
    held.units_free = contention.units_free.map(|units| units as u32);
    if let Some(holder) = &contention.holder {
        let now = nanos(&holder.deadline) - duration_of(holder.remaining).as_nanos() as i128; // of the database
        held.holder = holder.owner.clone();
        held.alive = matches!(contention.liveness(), v1::Liveness::Alive | v1::Liveness::Overdue);
        held.silent = since(now, &holder.heartbeat_at);
        held.held_for = since(now, &holder.acquired_at);
    }
}
