//! How a client finds its daemons, and what it shows them.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use tonic::Status;
use tonic::service::Interceptor;
use tonic::transport::Endpoint;
#[cfg(feature = "sql")]
use {
    crate::session::opener,
    crate::sql::Sql,
    tokio_postgres::Socket,
    tokio_postgres::tls::{MakeTlsConnect, TlsConnect},
};

use crate::change::tell;
use crate::client::{Client, Settings};
use crate::error::{Error, InvalidArgument};
use crate::retry::{RetryStep, Strategy};
use crate::rpc::{Rpc, SILENCE, Wire};
use crate::status::words_of;
use crate::telemetry::traceparent;
use crate::transport::Transport;

/// Options of a client; [`Client::builder`] makes it.
#[derive(Default)]
pub struct Builder {
    settings: Settings,
    token_file: Option<PathBuf>,
    #[cfg(feature = "tls")]
    tls: Option<tonic::transport::ClientTlsConfig>,
    #[cfg(feature = "sql")]
    poll: Option<Duration>,
}

impl std::fmt::Debug for Builder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Builder").field("token_file", &self.token_file).finish_non_exhaustive()
    }
}

impl Client {
    /// A client of one or more daemons: `host:port` or `unix:PATH`, or several separated by commas. An empty target is `LEASEHOLD_SERVER` of
    /// the environment, or 127.0.0.1:7420. It does not wait for a connection.
    pub fn connect(target: &str) -> Result<Client, Error> {
        Client::builder().connect(target)
    }

    /// A client of a database that has the schema leasehold, without a daemon; the arguments are those of [`tokio_postgres::connect`]. It makes
    /// connections of its own: one that renews, one for each acquire that waits, and up to two that are kept for the next request. It does not wait
    /// for one now.
    ///
    /// ```no_run
    /// # async fn work() -> Result<(), Box<dyn std::error::Error>> {
    /// use leasehold::tokio_postgres::NoTls;
    ///
    /// let client = leasehold::Client::over("host=localhost user=app dbname=app".parse()?, NoTls)?;
    /// # Ok(())
    /// # }
    /// ```
    #[cfg(feature = "sql")]
    pub fn over<T>(config: tokio_postgres::Config, tls: T) -> Result<Client, Error>
    where
        T: MakeTlsConnect<Socket> + Clone + Send + Sync + 'static,
        T::Stream: Send + 'static,
        T::TlsConnect: Send,
        <T::TlsConnect as TlsConnect<Socket>>::Future: Send,
    {
        Client::builder().over(config, tls)
    }

    /// For a client with options.
    pub fn builder() -> Builder {
        Builder::default()
    }
}

impl Builder {
    /// How long one server may stay silent before the next address is tried, and how long an acquire goes on without any server, after its wait
    /// has passed; 5 s by default. Renewals have less: a sixth of the duration.
    pub fn patience(mut self, patience: Duration) -> Self {
        self.settings.patience = patience;
        self
    }

    /// How long [`Client::close`] sends what dropped leases left; 5 s by default. What is not sent by then ends by its deadline.
    pub fn flush_timeout(mut self, time: Duration) -> Self {
        self.settings.flush = time;
        self
    }

    /// Sends the bearer token in this file with each call. The file is read each time, so that it can be replaced. A token is sent over TLS,
    /// unix sockets and loopback only: another address is refused.
    pub fn token_file(mut self, path: impl Into<PathBuf>) -> Self {
        self.token_file = Some(path.into());
        self
    }

    /// Encrypts the connections to daemons.
    #[cfg(feature = "tls")]
    pub fn tls(mut self, config: tonic::transport::ClientTlsConfig) -> Self {
        self.tls = Some(config);
        self
    }

    /// Decides about the retries of the client, [`best_effort`](crate::best_effort) by default.
    pub fn strategy(mut self, strategy: Strategy) -> Self {
        self.settings.strategy = Some(strategy);
        self
    }

    /// Gets each retry and each refusal. A panic of it costs the request nothing; one of a strategy is the caller's.
    pub fn retry_log(mut self, log: impl Fn(&RetryStep) + Send + Sync + 'static) -> Self {
        self.settings.retry_log = Some(Arc::new(move |step| tell(|| log(step))));
        self
    }

    /// Gets the few sentences for the operator, which otherwise go to stderr.
    pub fn log(mut self, log: impl Fn(&str) + Send + Sync + 'static) -> Self {
        self.settings.log = Arc::new(move |line| tell(|| log(line)));
        self
    }

    /// The name of the client's thread; "leasehold" by default.
    pub fn thread_name(mut self, name: impl Into<String>) -> Self {
        self.settings.thread_name = name.into();
        self
    }

    /// How often a request that waits in SQL looks by itself, beside what LISTEN tells it; 2 s by default. Behind a connection pooler it looks every 200 ms.
    #[cfg(feature = "sql")]
    pub fn poll(mut self, time: Duration) -> Self {
        self.poll = Some(time);
        self
    }

    /// [`Client::over`] with these options; the token file and the TLS of daemons count for nothing.
    #[cfg(feature = "sql")]
    pub fn over<T>(self, config: tokio_postgres::Config, tls: T) -> Result<Client, Error>
    where
        T: MakeTlsConnect<Socket> + Clone + Send + Sync + 'static,
        T::Stream: Send + 'static,
        T::TlsConnect: Send,
        <T::TlsConnect as TlsConnect<Socket>>::Future: Send,
    {
        let poll = self.poll.unwrap_or(Duration::from_secs(2));
        if poll.is_zero() {
            return Err(Error::wrong("poll", "more than 0", poll));
        }
        Client::start(self.settings, |settings| Ok(Transport::Sql(Sql::new(opener(config, tls, settings.patience), settings, poll))))
    }

    /// [`Client::connect`] with these options.
    pub fn connect(self, target: &str) -> Result<Client, Error> {
        let named = std::env::var("LEASEHOLD_SERVER").unwrap_or_default();
        let target = [target, &named, "127.0.0.1:7420"].into_iter().find(|each| !each.is_empty()).unwrap_or_default().to_string();
        let addresses: Vec<String> = target.trim_start_matches("ipv4:").split(',').map(|each| each.trim().to_string()).collect();
        Client::start(self.settings, |settings| {
            let bearer = Bearer(self.token_file.clone());
            #[cfg(feature = "tls")]
            let tls = self.tls.as_ref();
            #[cfg(not(feature = "tls"))]
            let tls: Option<&()> = None;
            let mut wires = vec![];
            for address in &addresses {
                let refuse = |bound: &str, why: String| {
                    Error::InvalidArgument(InvalidArgument {
                        field: "target".into(),
                        bound: bound.into(),
                        message: format!("target {address:?}: {why}"),
                    })
                };
                if self.token_file.is_some() && tls.is_none() && !may_be_sent_to(address) {
                    let why = "a token is sent over TLS, unix sockets and loopback only: add TLS";
                    return Err(refuse("unix:PATH or loopback, without TLS", why.into()));
                }
                let scheme = if tls.is_some() { "https://" } else { "http://" };
                let uri = if address.starts_with("unix:") { address.clone() } else { format!("{scheme}{address}") };
                let wrong = |error: tonic::transport::Error| refuse("host:port or unix:PATH", words_of(&error));
                let endpoint = Endpoint::from_shared(uri).map_err(wrong)?;
                let endpoint = endpoint.connect_timeout(settings.patience).http2_keep_alive_interval(SILENCE).keep_alive_timeout(settings.patience);
                #[cfg(feature = "tls")]
                let endpoint = match tls {
                    Some(config) => endpoint.tls_config(config.clone()).map_err(wrong)?,
                    None => endpoint,
                };
                wires.push(Wire::new(endpoint.connect_lazy(), bearer.clone()));
            }
            Ok(Transport::Rpc(Rpc::new(&wires, settings.patience)))
        })
    }
}

/// The bearer token of each call.
#[derive(Clone)]
pub(crate) struct Bearer(Option<PathBuf>);

impl Interceptor for Bearer {
    fn call(&mut self, mut request: tonic::Request<()>) -> Result<tonic::Request<()>, Status> {
        if let Some(Ok(parent)) = traceparent().map(|text| text.parse()) {
            request.metadata_mut().insert("traceparent", parent);
        }
        let Some(path) = &self.0 else { return Ok(request) };
        let trouble = |why: String| Status::unavailable(format!("{}: {why}", path.display()));
        let text = std::fs::read_to_string(path).map_err(|error| trouble(error.to_string()))?;
        if text.trim().is_empty() {
            return Err(trouble("is empty".into())); // it is being written
        }
        let value = format!("Bearer {}", text.trim()).parse().map_err(|_| trouble("has bytes that no token has".into()))?;
        request.metadata_mut().insert("authorization", value);
        Ok(request)
    }
}

/// Whether nobody else can read what is sent to an address without TLS. A name that only begins like a loopback address is another host's.
fn may_be_sent_to(address: &str) -> bool {
    if address.starts_with("unix:") {
        return true;
    }
    let mut host = address;
    if let Some((name, port)) = address.rsplit_once(':').filter(|_| !address.ends_with(']')) {
        if port.parse::<u16>().is_err() {
            return false;
        }
        host = name;
    }
    host == "[::1]" || host.eq_ignore_ascii_case("localhost") || host.parse::<std::net::Ipv4Addr>().is_ok_and(|ip| ip.is_loopback())
}
