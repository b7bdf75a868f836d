//! A connection to PostgreSQL.

use std::future::poll_fn;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::sync::{Notify, watch};
use tokio::task::AbortHandle;
use tokio_postgres::config::TargetSessionAttrs;
use tokio_postgres::tls::{ChannelBinding, MakeTlsConnect, TlsConnect, TlsStream};
use tokio_postgres::types::{ToSql, Type};
use tokio_postgres::{AsyncMessage, Config, Row, Socket};

use crate::error::{Error, InvalidArgument, Lost, Reason, RetryReason, Unavailable};
use crate::request::Ref;
use crate::status::words_of;

/// A parameter has its type: a statement without a name is parsed and run in one round trip, which poolers in transaction mode let through.
pub(crate) type Value<'a> = (&'a (dyn ToSql + Sync), Type);

pub(crate) fn text<'a>(value: &'a (impl ToSql + Sync)) -> Value<'a> {
    (value, Type::TEXT)
}

pub(crate) fn place(scope: &Ref) -> [Value<'_>; 3] {
    [text(&scope.namespace), text(&scope.key), text(&scope.lease_key)]
}

type Opening = Pin<Box<dyn Future<Output = Result<Session, tokio_postgres::Error>> + Send>>;

/// Makes a connection, whose task has a receiver of `work` until it has ended.
pub(crate) type Open = Box<dyn Fn(&watch::Sender<()>) -> Opening + Send + Sync>;

pub(crate) struct Session {
    client: tokio_postgres::Client,
    /// Of a notification, or of the end.
    news: Arc<Notify>,
    task: AbortHandle,
    /// Behind a pooler it is another session for each transaction, and hears no notification.
    pub is_pooled: bool,
    /// A statement is not answered.
    is_asked: AtomicBool,
}

/// Of several servers it takes the one that accepts writes.
pub(crate) fn opener<T>(mut config: Config, tls: T, patience: Duration) -> Open
where
    T: MakeTlsConnect<Socket> + Clone + Send + Sync + 'static,
    T::Stream: Send + 'static,
    T::TlsConnect: Send,
    <T::TlsConnect as TlsConnect<Socket>>::Future: Send,
{
    if config.get_target_session_attrs() == TargetSessionAttrs::Any {
        config.target_session_attrs(TargetSessionAttrs::ReadWrite);
    }
    if config.get_application_name().is_none() {
        config.application_name("leasehold");
    }
    if config.get_connect_timeout().is_none() {
        config.connect_timeout(patience);
    }
    Box::new(move |work| {
        let (config, tls, working) = (config.clone(), tls.clone(), work.subscribe());
        Box::pin(async move {
            let (client, mut connection) = config.connect(tls).await?;
            let news = Arc::new(Notify::new());
            let tell = news.clone();
            let task = tokio::spawn(async move {
                let _working = working;
                while let Some(Ok(message)) = poll_fn(|context| connection.poll_message(context)).await {
                    if matches!(message, AsyncMessage::Notification(_)) {
                        tell.notify_one();
                    }
                }
                tell.notify_one();
            });
            let mut session = Session { client, news, task: task.abort_handle(), is_pooled: false, is_asked: AtomicBool::new(false) };
            let pid: i32 = session.ask("select pg_backend_pid()", &[]).await?[0].get(0);
            session.is_pooled = backend_of(&session.client).await? != pid;
            Ok(session)
        })
    })
}

impl Session {
    async fn ask(&self, statement: &str, values: &[Value<'_>]) -> Result<Vec<Row>, tokio_postgres::Error> {
        self.is_asked.store(true, Ordering::Relaxed);
        let answer = self.client.query_typed(statement, values).await;
        self.is_asked.store(false, Ordering::Relaxed);
        answer
    }

    /// Its rows. One that is not answered in time makes the connection useless: it may still do what it says.
    pub async fn rows(&self, scope: &Ref, patience: Duration, statement: &str, values: &[Value<'_>]) -> Result<Vec<Row>, Error> {
        match tokio::time::timeout(patience, self.ask(statement, values)).await {
            Ok(answer) => answer.map_err(|error| from_sql(scope, &error)),
            Err(_) => Err(Error::unavailable(RetryReason::SocketClosedWhileInFlight, "PostgreSQL was silent for too long")),
        }
    }

    /// The first row of a statement that has one.
    pub async fn row(&self, scope: &Ref, patience: Duration, statement: &str, values: &[Value<'_>]) -> Result<Row, Error> {
        let first = self.rows(scope, patience, statement, values).await?.into_iter().next();
        first.ok_or_else(|| Error::unavailable(RetryReason::Unknown, "PostgreSQL answered without a row"))
    }

    /// Until something is heard, the connection breaks, or the time has passed.
    pub async fn hear(&self, time: Duration) {
        if self.is_pooled {
            return tokio::time::sleep(time).await;
        }
        let _ = tokio::time::timeout(time, self.news.notified()).await;
    }

    pub fn is_usable(&self) -> bool {
        !self.is_asked.load(Ordering::Relaxed) && !self.client.is_closed()
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        if self.is_asked.load(Ordering::Relaxed) {
            self.task.abort(); // it would wait for the answer
        }
    }
}

/// The process of the server that the connection began with. The driver tells it to nobody but the server, in a request to cancel.
async fn backend_of(client: &tokio_postgres::Client) -> Result<i32, tokio_postgres::Error> {
    let heard = Ear::default();
    client.cancel_token().cancel_query_raw(heard.clone(), heard.clone()).await?;
    let said = heard.0.lock().expect("no code panics under this lock");
    Ok(said.last_chunk::<8>().map_or(0, |[a, b, c, d, ..]| i32::from_be_bytes([*a, *b, *c, *d])))
}

/// Takes down what is sent, and says yes to TLS.
#[derive(Clone, Default)]
struct Ear(Arc<Mutex<Vec<u8>>>);

impl TlsConnect<Ear> for Ear {
    type Stream = Ear;
    type Error = std::io::Error;
    type Future = std::future::Ready<Result<Ear, std::io::Error>>;

    fn connect(self, stream: Ear) -> Self::Future {
        std::future::ready(Ok(stream))
    }
}

impl TlsStream for Ear {
    fn channel_binding(&self) -> ChannelBinding {
        ChannelBinding::none()
    }
}

impl AsyncRead for Ear {
    fn poll_read(self: Pin<&mut Self>, _: &mut Context<'_>, into: &mut ReadBuf<'_>) -> Poll<std::io::Result<()>> {
        into.put_slice(b"S");
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for Ear {
    fn poll_write(self: Pin<&mut Self>, _: &mut Context<'_>, said: &[u8]) -> Poll<std::io::Result<usize>> {
        self.0.lock().expect("no code panics under this lock").extend_from_slice(said);
        Poll::Ready(Ok(said.len()))
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}

/// SQLSTATEs, by their beginning, after which a repetition may succeed; the first that fits counts.
const PASSING: &[(&str, RetryReason)] = &[
    ("08", RetryReason::DatabaseUnavailable),
    ("57P", RetryReason::DatabaseUnavailable),
    ("53300", RetryReason::DatabaseUnavailable),
    ("25P03", RetryReason::DatabaseUnavailable), // a limit of the server ended the session
    ("25P04", RetryReason::DatabaseUnavailable),
    ("25006", RetryReason::DatabaseUnavailable), // a standby
    ("0A000", RetryReason::DatabaseUnavailable),
    ("53", RetryReason::Overloaded),
    ("58", RetryReason::Overloaded),
    ("57014", RetryReason::Overloaded),
    ("40", RetryReason::ScopeBusy),
    ("55P03", RetryReason::ScopeBusy),
];

/// Makes an error of this crate from one of PostgreSQL's, or of the connection's.
pub(crate) fn from_sql(scope: &Ref, error: &tokio_postgres::Error) -> Error {
    let Some(its) = error.as_db_error() else {
        return Error::unavailable(RetryReason::SocketClosedWhileInFlight, words_of(error));
    };
    let code = its.code().code();
    // A condition of Leasehold's: its message begins with the name.
    let words = || its.message().split_once(' ').map_or("", |(_, words)| words).to_string();
    let denied = |reason: &str, message: String| Error::Denied { reason: reason.into(), message };
    let reason = match code {
        "LH001" => {
            let (namespace, key) = (scope.namespace.clone(), scope.key.clone());
            return Error::Lost(Lost { namespace, key, reason: Reason::Unknown, message: words() });
        }
        "LH002" => {
            let [field, bound] = [its.detail(), its.hint()].map(|text| text.unwrap_or_default().to_string());
            return Error::InvalidArgument(InvalidArgument { field, bound, message: words() });
        }
        "LH003" => return denied("NAMESPACE_FROZEN", words()),
        "LH004" => return denied("QUOTA_EXCEEDED", words()),
        "LH005" => return denied("HOOK_REJECTED", words()),
        "LH006" => return denied("LEASE_ENDED", words()),
        "LH007" | "42501" => return denied("ACCESS_DENIED", its.message().into()),
        _ if code.starts_with("28") => return denied("UNAUTHENTICATED", its.message().into()),
        _ => match PASSING.iter().find(|(state, _)| code.starts_with(state)) {
            Some((_, reason)) => *reason,
            None => return denied(code, its.message().into()),
        },
    };
    Error::Unavailable(Unavailable { message: words_of(error), reason, retry_after: None })
}

/// Of a connection that could not be made.
pub(crate) fn from_connect(error: &tokio_postgres::Error) -> Error {
    let nowhere = Ref { namespace: String::new(), key: String::new(), lease_key: String::new() };
    match from_sql(&nowhere, error) {
        Error::Unavailable(trouble) if error.as_db_error().is_none() => {
            Error::Unavailable(Unavailable { reason: RetryReason::SocketNotAvailable, ..trouble })
        }
        error => error,
    }
}
