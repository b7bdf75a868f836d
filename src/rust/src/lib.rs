#![doc = include_str!("../README.md")]
#![warn(missing_debug_implementations)]

pub mod blocking;
mod bounds;
mod change;
mod circuit;
mod client;
mod clock;
mod connect;
mod deadline;
mod declared;
mod error;
mod explain;
mod given_up;
mod hand_over;
mod hold;
mod lease;
#[cfg(feature = "sql")]
mod reap;
mod release;
mod request;
mod retry;
mod rpc;
#[cfg(feature = "sql")]
mod session;
#[cfg(feature = "sql")]
mod sql;
#[cfg(feature = "sql")]
mod statements;
mod status;
#[cfg(not(feature = "opentelemetry"))]
#[path = "silent.rs"]
mod telemetry;
#[cfg(feature = "opentelemetry")]
mod telemetry;
mod ticks;
mod together;
#[cfg(feature = "sql")]
mod transaction;
mod transport;
mod watch;
#[allow(clippy::all, missing_debug_implementations)]
mod v1 {
    include!("proto/leasehold.v1.rs");
}
#[allow(clippy::all, dead_code, missing_debug_implementations)]
mod google_rpc {
    include!("proto/google.rpc.rs");
}

pub use change::{Change, ChangeKind};
pub use client::Client;
pub use connect::Builder;
pub use deadline::{Deadline, remaining};
pub use declared::Declared;
pub use error::{Error, Held, InvalidArgument, Lost, Reason, RetryReason, Unavailable, scope_name};
pub use explain::{Explanation, Liveness, State};
pub use hand_over::HandOver;
pub use lease::Lease;
#[cfg(feature = "sql")]
pub use reap::{Reaped, Reaping, StaleLease, reap_stale};
pub use release::Outcome;
pub use request::{FOREVER, LeaseBuilder};
pub use retry::{Retry, RetryStep, Strategy, best_effort, controlled_backoff, fail_fast};
pub use ticks::{Tick, Ticks};
pub use together::{Leases, LeasesBuilder, Scope};
#[cfg(feature = "sql")]
pub use tokio_postgres;
#[cfg(feature = "tls")]
pub use tonic::transport::{Certificate, ClientTlsConfig, Identity};
pub use watch::{Event, EventKind, Holder, Watch};
