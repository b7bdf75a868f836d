//! What the cases ask of tests/clients/control.py, and of processes of their own.

use std::future::Future;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use leasehold::tokio_postgres::NoTls;
use leasehold::{Builder, Client, Lease, LeaseBuilder};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tonic::codegen::http;

pub const MINUTE: Duration = Duration::from_secs(60);

pub fn seconds(n: u64) -> Duration {
    Duration::from_secs(n)
}

/// Calls the control by HTTP.
pub fn ask(what: &str, with: Value) -> Value {
    let url = std::env::var("LEASEHOLD_CONTROL").expect("started by tests/clients/rust/run");
    let host = url.trim_start_matches("http://");
    let mut stream = TcpStream::connect(host).expect("the control");
    let body = with.to_string();
    write!(stream, "POST /{what} HTTP/1.0\r\nHost: {host}\r\nContent-Length: {}\r\n\r\n{body}", body.len()).expect("to ask");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("an answer");
    let (head, body) = answer.split_once("\r\n\r\n").expect("an answer");
    assert!(head.contains(" 200 "), "{what} {with}: {body}");
    serde_json::from_str(body).expect("JSON")
}

/// A bound, not a measurement.
pub async fn until(what: &str, mut condition: impl FnMut() -> bool) {
    let end = Instant::now() + MINUTE;
    while !condition() {
        assert!(Instant::now() < end, "{what} did not come true within a minute");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

pub async fn within_a_minute<T>(what: &str, future: impl Future<Output = T>) -> T {
    tokio::time::timeout(MINUTE, future).await.unwrap_or_else(|_| panic!("{what} did not come within a minute"))
}

/// To a daemon, or to PostgreSQL.
pub fn connect(builder: Builder, target: &str) -> Result<Client, leasehold::Error> {
    if target.contains('=') { builder.over(target.parse().expect("a connection string"), NoTls) } else { builder.connect(target) }
}

/// One transport, and the scope of one case.
#[derive(Clone)]
pub struct Site {
    pub on: String,
    pub key: String,
    pub target: String,
    /// What PostgreSQL's clients take.
    pub database: String,
    pub port: u64,
}

pub type Later = JoinHandle<Result<Lease, leasehold::Error>>;

impl Site {
    pub fn new(on: &str, case: &str) -> Site {
        let all = ask("site", json!({}));
        let [target, database] = [on, if on == "grpc" { "grpc_sql" } else { on }].map(|each| all[each].as_str().expect("a target").to_string());
        Site { on: on.into(), key: format!("{} {case}", env!("CARGO_PKG_NAME")), target, database, port: all["port"].as_u64().expect("a port") }
    }

    /// Nothing is in its way: it has the time that a busy machine takes.
    pub fn client(&self) -> Client {
        self.made(Client::builder().patience(seconds(20)), &self.target)
    }

    /// Where nobody answers.
    pub fn nowhere(&self) -> String {
        if self.on == "grpc" { "127.0.0.1:1".into() } else { self.database_at(1) }
    }

    /// The database behind another port of this host.
    pub fn database_at(&self, port: u64) -> String {
        let name = self.database.split(' ').find(|each| each.starts_with("dbname=")).expect("a database");
        format!("host=127.0.0.1 port={port} user=postgres {name}")
    }

    /// Another database of the same server.
    pub fn at(&self, name: &str) -> String {
        let others = self.target.split(' ').filter(|each| !each.starts_with("dbname="));
        others.map(String::from).chain([format!("dbname={name}")]).collect::<Vec<_>>().join(" ")
    }

    pub fn client_at(&self, target: &str) -> Client {
        self.made(Client::builder(), target)
    }

    pub fn made(&self, builder: Builder, target: &str) -> Client {
        connect(builder, target).expect("a client")
    }

    pub fn lease(&self, client: &Client) -> LeaseBuilder {
        client.lease("cases", &self.key)
    }

    pub async fn acquire(&self, client: &Client) -> Lease {
        self.lease(client).acquire().await.expect("the lease")
    }

    pub fn psql(&self, sql: &str) -> String {
        ask("psql", json!({"on": self.on, "sql": sql})).as_str().expect("text").into()
    }

    pub fn row(&self, columns: &str) -> String {
        self.psql(&format!("select {columns} from leasehold.scope where namespace = 'cases' and key = '{}'", self.key))
    }

    pub fn waiters(&self) -> String {
        self.psql(&format!("select count(*) from leasehold.queue where namespace = 'cases' and key = '{}'", self.key))
    }

    pub fn beats(&self) -> u32 {
        self.row("heartbeats").parse().unwrap_or(0)
    }

    pub fn beats_of(&self, lease: &Lease) -> u32 {
        self.psql(&format!("select heartbeats from leasehold.lease where token = {}", lease.token())).parse().unwrap_or(0)
    }

    /// The token and the units of each holder.
    pub fn shares(&self) -> String {
        self.psql(&format!("select token, units from leasehold.lease where namespace = 'cases' and key = '{}' order by token", self.key))
    }

    pub fn force(&self) {
        self.psql(&format!("select from leasehold.force_release('cases', '{}', 'a test')", self.key));
    }

    /// As if the holder had neither renewed nor acquired since.
    pub fn silence(&self, seconds: u32) {
        self.psql(&format!(
            "update leasehold.scope set acquired_at = acquired_at - interval '{seconds} s', heartbeat_at = heartbeat_at - interval '{seconds} s' \
             where namespace = 'cases' and key = '{}'",
            self.key
        ));
    }

    /// Starts an acquire, and returns when it has the nth place.
    pub async fn queue(&self, n: u32, lease: LeaseBuilder) -> Later {
        let waiter = tokio::spawn(lease.acquire());
        until("a place in the queue", || self.waiters() == n.to_string()).await;
        waiter
    }

    pub fn proxy(&self) -> Proxy {
        if self.on == "grpc" { Proxy::new(0) } else { Proxy::before_postgres(self) }
    }

    /// Does what daemons do by themselves, and cron where there is none.
    pub fn reap(&self) -> impl Drop + use<> {
        struct Reaper(JoinHandle<()>);
        impl Drop for Reaper {
            fn drop(&mut self) {
                self.0.abort();
            }
        }
        let site = self.clone();
        Reaper(tokio::spawn(async move {
            if site.on == "grpc" {
                return;
            }
            loop {
                site.psql("select count(*) from leasehold.reap()");
                tokio::time::sleep(Duration::from_millis(200)).await;
            }
        }))
    }

    /// This program as a child that does its work under a lease.
    pub fn program(&self, what: &str, duration: Duration) -> Program {
        self.program_at(what, duration, &self.target)
    }

    pub fn program_at(&self, what: &str, duration: Duration, target: &str) -> Program {
        let mut child = Command::new(std::env::current_exe().expect("this program"))
            .env("LEASEHOLD_CHILD", [what, target, &self.key, &duration.as_secs().to_string()].join("\n"))
            .stdout(Stdio::piped())
            .spawn()
            .expect("a child");
        let lines = Arc::new(Mutex::new(vec![]));
        let (out, its) = (BufReader::new(child.stdout.take().expect("its output")), lines.clone());
        std::thread::spawn(move || out.lines().map_while(Result::ok).for_each(|line| its.lock().expect("lines").push(line)));
        Program { child, lines }
    }
}

pub async fn granted(waiter: Later) -> Lease {
    within_a_minute("the grant", waiter).await.expect("no panic").expect("the lease")
}

pub async fn lost(lease: &Lease) -> leasehold::Lost {
    within_a_minute("the loss", lease.lost()).await
}

/// The address of a gRPC server that knows no method, and one header of each call.
pub async fn noting(header: &'static str) -> (String, UnboundedReceiver<Option<String>>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let address = listener.local_addr().expect("an address").to_string();
    let (tell, noted) = unbounded_channel();
    tokio::spawn(async move {
        let (socket, _) = listener.accept().await.expect("the client");
        let mut calls = h2::server::handshake(socket).await.expect("HTTP/2");
        while let Some(Ok((request, mut answer))) = calls.accept().await {
            tell.send(request.headers().get(header).map(|value| value.to_str().expect("text").into())).expect("the case");
            let head = http::Response::builder().header("content-type", "application/grpc").header("grpc-status", "12");
            answer.send_response(head.body(()).expect("a response"), true).expect("to answer");
        }
    });
    (address, noted)
}

/// tests/lib/flaky_proxy.py before a daemon; before PostgreSQL, a pipe that may keep the answers.
pub struct Proxy {
    id: Value,
    pipe: Option<Pipe>,
    pub target: String,
}

#[derive(Clone)]
struct Pipe {
    is_frozen: watch::Sender<bool>,
    /// What is said on the connections that there are arrives later, although the client has closed them.
    is_held_up: watch::Sender<bool>,
    said: Arc<AtomicU64>,
    words: Arc<Mutex<String>>,
    /// The client has closed a connection that is held up.
    is_left: Arc<AtomicBool>,
    /// There are no connections.
    is_refusing: watch::Sender<bool>,
}

impl Pipe {
    async fn run(self, listener: TcpListener, port: u64) {
        loop {
            let (client, _) = listener.accept().await.expect("a client");
            let mut is_refusing = self.is_refusing.subscribe();
            if *is_refusing.borrow_and_update() {
                continue;
            }
            let server = tokio::net::TcpStream::connect(format!("127.0.0.1:{port}")).await.expect("PostgreSQL");
            let ((mut asks, mut hears), (mut answers, mut obeys)) = (client.into_split(), server.into_split());
            let (its, mut is_frozen) = (self.clone(), self.is_frozen.subscribe());
            let is_later = *self.is_held_up.borrow();
            let asking = tokio::spawn(async move {
                let (mut buffer, mut first, mut is_held_up) = (vec![0; 65536], [0], its.is_held_up.subscribe());
                while let Ok(n @ 1..) = asks.read(&mut buffer).await {
                    its.said.fetch_add(1, Ordering::Relaxed);
                    its.words.lock().expect("words").push_str(&String::from_utf8_lossy(&buffer[..n]));
                    while *is_held_up.borrow() && !is_later {
                        tokio::select! {
                            _ = is_held_up.changed() => {}
                            _ = asks.peek(&mut first), if !its.is_left.load(Ordering::Relaxed) => its.is_left.store(true, Ordering::Relaxed),
                        }
                    }
                    if obeys.write_all(&buffer[..n]).await.is_err() {
                        break;
                    }
                }
            });
            let answering = tokio::spawn(async move {
                let mut buffer = vec![0; 65536];
                while let Ok(n @ 1..) = answers.read(&mut buffer).await {
                    let _ = is_frozen.wait_for(|&frozen| !frozen).await;
                    if hears.write_all(&buffer[..n]).await.is_err() {
                        break;
                    }
                }
            });
            tokio::spawn(async move {
                let _ = is_refusing.wait_for(|&refusing| refusing).await;
                asking.abort();
                answering.abort();
            });
        }
    }
}

impl Proxy {
    pub fn new(daemon: u64) -> Proxy {
        let answer = ask("proxy", json!({"id": daemon}));
        Proxy { id: answer["id"].clone(), pipe: None, target: answer["target"].as_str().expect("a target").into() }
    }

    fn before_postgres(site: &Site) -> Proxy {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
        listener.set_nonblocking(true).expect("a socket");
        let target = site.database_at(listener.local_addr().expect("an address").port().into());
        let no = || watch::Sender::new(false);
        let pipe =
            Pipe { is_frozen: no(), is_held_up: no(), said: Arc::default(), words: Arc::default(), is_left: Arc::default(), is_refusing: no() };
        tokio::spawn(pipe.clone().run(TcpListener::from_std(listener).expect("a socket"), site.port));
        Proxy { id: Value::Null, pipe: Some(pipe), target }
    }

    pub fn set(&self, what: &str, value: impl Into<Value>) {
        ask("proxy/set", json!({"id": self.id, what: value.into()}));
    }

    /// Before PostgreSQL the first of them counts: pass, drop, or a delay.
    pub fn decide(&self, actions: Value) {
        let Some(pipe) = &self.pipe else { return self.set("decide", actions) };
        pipe.is_frozen.send_replace(actions[0] != "pass");
        if let Some(delay) = actions[0][1].as_f64() {
            let pipe = pipe.clone();
            tokio::spawn(async move {
                tokio::time::sleep(Duration::from_secs_f64(delay)).await;
                pipe.is_frozen.send_replace(false);
            });
        }
    }

    pub fn freeze(&self, on: bool) {
        match &self.pipe {
            Some(pipe) => drop(pipe.is_frozen.send_replace(on)),
            None => self.set("frozen", on),
        }
    }

    /// The next request of a daemon's client, or what is said on the connections to PostgreSQL that there are, arrives when this is off again.
    pub fn hold_up(&self, on: bool) {
        match &self.pipe {
            Some(pipe) => drop(pipe.is_held_up.send_replace(on)),
            None if on => self.set("decide_request", json!(["hold", "pass"])),
            None => drop(ask("proxy/let_requests_go", json!({"id": self.id}))),
        }
    }

    /// Whether the client has closed a connection that is held up, before PostgreSQL.
    pub fn is_left(&self) -> bool {
        self.pipe.as_ref().is_some_and(|pipe| pipe.is_left.load(Ordering::Relaxed))
    }

    /// Whether clients of PostgreSQL have said this so often.
    pub fn has_heard(&self, words: &str, times: usize) -> bool {
        self.pipe.as_ref().is_some_and(|pipe| pipe.words.lock().expect("words").matches(words).count() >= times)
    }

    pub fn refuse(&self, on: bool) {
        if let Some(pipe) = &self.pipe {
            pipe.is_refusing.send_replace(on);
            return;
        }
        self.set("refusing", on);
        if on {
            self.cut();
        }
    }

    pub fn cut(&self) {
        ask("proxy/cut", json!({"id": self.id}));
    }

    pub fn state(&self) -> Value {
        match &self.pipe {
            Some(pipe) => json!({"messages_sent": pipe.said.load(Ordering::Relaxed)}),
            None => ask("proxy/state", json!({"id": self.id})),
        }
    }
}

/// tests/clients/lying_server.py
pub struct Liar {
    id: Value,
    pub target: String,
}

impl Liar {
    pub fn new() -> Liar {
        let answer = ask("liar", json!({}));
        Liar { id: answer["id"].clone(), target: answer["target"].as_str().expect("a target").into() }
    }

    pub fn lie(&self, lies: Value) {
        ask("liar/set", json!({"id": self.id, "lies": lies}));
    }

    pub fn state(&self) -> Value {
        ask("liar/state", json!({"id": self.id}))
    }

    /// What was asked for last.
    pub fn is_given_back(&self) -> bool {
        let state = self.state();
        let asked = state["asked"].as_array().expect("lease keys").last().expect("an acquire");
        state["released"].as_array().expect("lease keys").contains(asked)
    }
}

/// One more daemon.
pub struct Daemon {
    pub id: u64,
    pub target: String,
}

impl Daemon {
    pub fn new() -> Daemon {
        let answer = ask("daemon", json!({}));
        Daemon { id: answer["id"].as_u64().expect("an id"), target: answer["target"].as_str().expect("a target").into() }
    }

    pub fn signal(&self, name: &str) {
        ask("daemon/signal", json!({"id": self.id, "signal": name}));
    }
}

pub struct Program {
    pub child: Child,
    lines: Arc<Mutex<Vec<String>>>,
}

impl Program {
    pub fn signal(&self, name: &str) {
        let status = Command::new("kill").args([&format!("-{name}"), &self.child.id().to_string()]).status();
        assert!(status.expect("kill").success());
    }

    pub fn count(&self, word: &str) -> usize {
        self.lines.lock().expect("lines").iter().filter(|line| line.starts_with(word)).count()
    }

    pub async fn line(&self, word: &str) {
        until(&format!("a line of {word}"), || self.count(word) > 0).await;
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
