//! In the place of telemetry, without the feature `opentelemetry`: nothing is told.

use std::sync::Arc;

use crate::error::Error;
use crate::request::{Ref, Request};

pub(crate) type Around = ();

pub(crate) struct Instruments;

impl Instruments {
    pub fn new() -> Arc<Instruments> {
        Arc::new(Instruments)
    }
}

pub(crate) async fn within<F: Future>(_: Around, work: F) -> F::Output {
    work.await
}

pub(crate) fn traceparent() -> Option<String> {
    None
}

pub(crate) struct Acquiring;

impl Acquiring {
    pub fn begin(_: &Arc<Instruments>, _: &Request) -> Acquiring {
        Acquiring
    }

    pub fn around(&self) -> Around {}

    pub fn granted(&mut self, _: i64) {}

    pub fn refused(&mut self, _: &Error) {}

    #[cfg_attr(not(feature = "sql"), allow(dead_code))]
    pub fn failed(&mut self) {}
}

#[derive(Default)]
pub(crate) struct Story;

impl Story {
    pub fn begin(&self, _: &Acquiring, _: &Ref, _: i64, _: u32) {}

    pub fn downgraded(&self, _: &str, _: i64) {}

    pub fn releasing(&self) {}

    pub fn around(&self) -> Around {}

    pub fn stayed(&self, _: Option<&Error>) {}

    pub fn ended(&self, _: Option<&Error>) {}
}
