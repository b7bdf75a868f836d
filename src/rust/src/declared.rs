//! Leases of a namespace with their options, written down once and used everywhere.

use crate::client::Client;
use crate::error::Error;
use crate::request::LeaseBuilder;

/// Made by [`Client::declare`]; may be a static:
///
/// ```no_run
/// use leasehold::{Client, Declared};
/// use std::{sync::LazyLock, time::Duration};
///
/// static DEPLOY: LazyLock<Declared> = LazyLock::new(|| {
///     let client = Client::connect("").expect("a target");
///     client.declare("deploy", |lease| lease.duration(Duration::from_secs(60))).expect("valid options")
/// });
/// ```
#[derive(Clone)]
pub struct Declared {
    template: LeaseBuilder,
}

impl std::fmt::Debug for Declared {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("leasehold::Declared")
    }
}

impl Client {
    /// Declares the leases of a namespace. It asks nobody, and refuses a namespace or an option that is out of bounds. Keys are checked in the
    /// same words when they are used, before anything is sent.
    pub fn declare(&self, namespace: &str, options: impl FnOnce(LeaseBuilder) -> LeaseBuilder) -> Result<Declared, Error> {
        let template = options(self.lease(namespace, "any"));
        template.check()?;
        Ok(Declared { template })
    }
}

impl Declared {
    /// The lease of this key that is to be acquired; options given here count before those that were declared.
    pub fn lease(&self, key: &str) -> LeaseBuilder {
        self.template.clone().with_key(key)
    }
}
