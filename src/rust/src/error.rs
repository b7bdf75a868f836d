//! What a request may end with.

use std::fmt;
use std::time::Duration;

/// Why a request did not succeed.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum Error {
    /// Another holds the scope, or others wait for it, and the wait has passed.
    Held(Box<Held>),
    /// The lease was lost.
    Lost(Lost),
    /// A refusal that has nothing to do with another holder.
    Denied {
        /// NAMESPACE_FROZEN, HOOK_REJECTED, QUOTA_EXCEEDED, ACCESS_DENIED, UNAUTHENTICATED, LEASE_ENDED
        reason: String,
        message: String,
    },
    /// No server could be reached in time, or a transaction kept the row locked. An acquire that ends with it holds nothing for long: what was
    /// granted unheard is released as soon as a server can be reached, or ends by its deadline.
    Unavailable(Unavailable),
    /// The COMMIT of a transaction with the lease was not answered, and its outcome could not be looked up. A lease that it was to release counts as lost;
    /// one that it may have acquired is given back.
    UnknownOutcome { namespace: String, key: String, message: String },
    /// An argument is out of bounds; nothing was written.
    InvalidArgument(InvalidArgument),
    /// The lease was released before.
    Released,
    /// The client was closed.
    Closed,
}

/// Who holds a scope, as far as the server has said.
#[derive(Clone, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct Held {
    pub namespace: String,
    pub key: String,
    /// The owner's own words; empty where the scope is free but others wait for it.
    pub holder: String,
    /// Of several `holder` is the oldest.
    pub holder_count: u32,
    /// Of the capacity for shared leases; `None`: there is none.
    pub units_free: Option<u32>,
    /// Waiters ahead of the caller.
    pub ahead: u32,
    /// Whether the holder renews; false too where there is none, and where the server did not say, as with the next two.
    pub alive: bool,
    /// Since the holder's last renewal.
    pub silent: Duration,
    /// Since it was acquired.
    pub held_for: Duration,
    /// The server's sentence for people.
    pub message: String,
    pub(crate) retry: Option<RetryReason>,
}

/// How a lease ended without its holder's doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Reason {
    /// Renewed too late: another may hold it.
    Expired,
    /// By an administrator.
    Forced,
    /// By somebody else who knows the lease key.
    Released,
    /// The same, as failed.
    Failed,
    /// The policy of the namespace ends a lease after max_hold.
    MaxHold,
    /// No renewal was answered before the deadline.
    Unreachable,
    /// The client was closed: nothing renews the lease.
    Closed,
    /// It has ended, and the database does not remember how.
    Unknown,
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Reason::Expired => "expired",
            Reason::Forced => "forced",
            Reason::Released => "released",
            Reason::Failed => "failed",
            Reason::MaxHold => "max_hold",
            Reason::Unreachable => "unreachable",
            Reason::Closed => "closed",
            Reason::Unknown => "unknown",
        })
    }
}

/// A lease that ended without its holder's doing.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Lost {
    pub namespace: String,
    pub key: String,
    pub reason: Reason,
    /// More about it; may be empty.
    pub message: String,
}

/// No server could be reached, or none answered.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Unavailable {
    pub message: String,
    /// Of the last attempt.
    pub reason: RetryReason,
    /// The server's RetryInfo.
    pub retry_after: Option<Duration>,
}

/// An argument out of bounds.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct InvalidArgument {
    pub field: String,
    /// What is wanted.
    pub bound: String,
    /// The whole sentence, with the value.
    pub message: String,
}

/// Why an attempt failed, as in leasehold_retry.h.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum RetryReason {
    Unknown,
    SocketNotAvailable,
    EndpointNotAvailable,
    SocketClosedWhileInFlight,
    CircuitBreakerOpen,
    /// Repeated whatever the strategy says, as is `ShuttingDown`.
    BlockingTimeout,
    ShuttingDown,
    DatabaseUnavailable,
    Overloaded,
    ScopeBusy,
    OutcomeRetry,
    LeaseHeld,
    /// An unknown reason, with a RetryInfo.
    RetryInfo,
}

impl RetryReason {
    /// In the order of the header.
    pub const ALL: [RetryReason; 13] = [
        RetryReason::Unknown,
        RetryReason::SocketNotAvailable,
        RetryReason::EndpointNotAvailable,
        RetryReason::SocketClosedWhileInFlight,
        RetryReason::CircuitBreakerOpen,
        RetryReason::BlockingTimeout,
        RetryReason::ShuttingDown,
        RetryReason::DatabaseUnavailable,
        RetryReason::Overloaded,
        RetryReason::ScopeBusy,
        RetryReason::OutcomeRetry,
        RetryReason::LeaseHeld,
        RetryReason::RetryInfo,
    ];

    /// Nothing was done: also a request that is not idempotent may be repeated.
    pub fn is_unsent(self) -> bool {
        !matches!(self, RetryReason::Unknown | RetryReason::SocketClosedWhileInFlight)
    }

    /// Repeated whatever the strategy says.
    pub fn is_always(self) -> bool {
        matches!(self, RetryReason::BlockingTimeout | RetryReason::ShuttingDown)
    }

    /// Repeated at the next address.
    pub fn is_next(self) -> bool {
        !matches!(
            self,
            RetryReason::Unknown
                | RetryReason::BlockingTimeout
                | RetryReason::ScopeBusy
                | RetryReason::OutcomeRetry
                | RetryReason::LeaseHeld
                | RetryReason::RetryInfo
        )
    }
}

impl fmt::Display for RetryReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            RetryReason::Unknown => "UNKNOWN",
            RetryReason::SocketNotAvailable => "SOCKET_NOT_AVAILABLE",
            RetryReason::EndpointNotAvailable => "ENDPOINT_NOT_AVAILABLE",
            RetryReason::CircuitBreakerOpen => "CIRCUIT_BREAKER_OPEN",
            RetryReason::SocketClosedWhileInFlight => "SOCKET_CLOSED_WHILE_IN_FLIGHT",
            RetryReason::BlockingTimeout => "BLOCKING_TIMEOUT",
            RetryReason::ShuttingDown => "SHUTTING_DOWN",
            RetryReason::DatabaseUnavailable => "DATABASE_UNAVAILABLE",
            RetryReason::Overloaded => "OVERLOADED",
            RetryReason::ScopeBusy => "SCOPE_BUSY",
            RetryReason::OutcomeRetry => "OUTCOME_RETRY",
            RetryReason::LeaseHeld => "LEASE_HELD",
            RetryReason::RetryInfo => "RETRY_INFO",
        })
    }
}

/// A scope as errors and logs name it. A namespace that has a slash stands in quotes: a/b/k would name two scopes.
pub fn scope_name(namespace: &str, key: &str) -> String {
    if namespace.contains('/') { format!("\"{namespace}\"/{key}") } else { format!("{namespace}/{key}") }
}

impl fmt::Display for Lost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the lease {} is lost: {}", scope_name(&self.namespace, &self.key), self.reason)?;
        if self.message.is_empty() { Ok(()) } else { write!(f, ": {}", self.message) }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Error::Held(held) if !held.message.is_empty() => f.write_str(&held.message),
            Error::Held(held) => {
                write!(f, "{} is held by {:?}, {} waiters ahead", scope_name(&held.namespace, &held.key), held.holder, held.ahead)
            }
            Error::Lost(lost) => lost.fmt(f),
            Error::Denied { reason, message } => write!(f, "{reason}: {message}"),
            Error::Unavailable(trouble) => write!(f, "unavailable: {}", trouble.message),
            Error::UnknownOutcome { namespace, key, message } => {
                let scope = scope_name(namespace, key);
                write!(f, "the outcome of the transaction with the lease {scope} is unknown, for COMMIT was not answered: {message}")
            }
            Error::InvalidArgument(wrong) => f.write_str(&wrong.message),
            Error::Released => f.write_str("the lease was released"),
            Error::Closed => f.write_str("the client is closed"),
        }
    }
}

impl std::error::Error for Error {}
impl std::error::Error for Lost {}

impl From<Lost> for Error {
    fn from(lost: Lost) -> Error {
        Error::Lost(lost)
    }
}

impl Error {
    pub(crate) fn unavailable(reason: RetryReason, message: impl fmt::Display) -> Error {
        Error::Unavailable(Unavailable { message: message.to_string(), reason, retry_after: None })
    }

    /// An error that names the field, the value and what is wanted.
    pub(crate) fn wrong(field: &str, bound: &str, value: impl fmt::Debug) -> Error {
        let message = format!("{field} must be {bound}, not {value:?}");
        Error::InvalidArgument(InvalidArgument { field: field.into(), bound: bound.into(), message })
    }

    /// An error with the daemon's words about a bound.
    pub(crate) fn out_of_bounds(field: &str, name: &str, bound: String) -> Error {
        Error::InvalidArgument(InvalidArgument { field: field.into(), message: format!("{name} {bound}"), bound })
    }

    pub(crate) fn is_unavailable(&self) -> bool {
        matches!(self, Error::Unavailable(_))
    }

    pub(crate) fn is_ended(&self) -> bool {
        matches!(self, Error::Denied { reason, .. } if reason == "LEASE_ENDED")
    }

    /// Why another attempt may succeed.
    pub(crate) fn retry_reason(&self) -> Option<RetryReason> {
        match self {
            Error::Held(held) => held.retry,
            Error::Unavailable(trouble) => Some(trouble.reason),
            _ => None,
        }
    }
}
