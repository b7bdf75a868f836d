//! The ticks of schedules.

use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use leasehold::{Client, Error, Outcome, Reason, Tick, Ticks};
use serde_json::json;
use tokio::sync::mpsc;
use tokio::task::JoinHandle;

use crate::case;
use crate::kit::*;

/// It has no tick of its own in this century.
pub const NEVER: &str = "starts_at => '2100-01-01Z', backoff => '0'";

pub fn schedule(s: &Site, expression: &str, settings: &str) -> String {
    let name = format!("ticks-{}", s.key.replace(' ', "-"));
    s.psql(&format!(
        "select from leasehold.set_schedule('{name}', '{expression}', {settings});
         update leasehold.schedule set look_at = '-infinity' where name = '{name}'"
    ));
    name
}

fn time(seconds: &str) -> SystemTime {
    UNIX_EPOCH + Duration::from_secs(seconds.parse().expect("seconds"))
}

pub fn run_now(s: &Site, name: &str) -> SystemTime {
    time(&s.psql(&format!("select extract(epoch from leasehold.run_schedule_now('{name}'))::bigint")))
}

pub fn ticks(s: &Site, name: &str, columns: &str) -> String {
    s.psql(&format!("select {columns} from (select * from leasehold.tick where schedule = '{name}' order by at) t"))
}

/// A worker has looked for a tick in vain.
async fn looked(s: &Site, name: &str) {
    until("a look", || s.psql(&format!("select look_at > now() from leasehold.schedule where name = '{name}'")) == "t").await;
}

/// A loop over a schedule's ticks.
struct Worker {
    got: mpsc::UnboundedReceiver<Arc<Tick>>,
    task: JoinHandle<Error>,
}

impl Drop for Worker {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Worker {
    fn new<F>(ticks: Ticks, mut work: impl FnMut(Arc<Tick>) -> F + Send + 'static) -> Worker
    where
        F: Future<Output = Result<Outcome, String>> + Send + 'static,
    {
        let (tell, got) = mpsc::unbounded_channel();
        let task = tokio::spawn(async move {
            let ended = ticks.run(|tick| {
                let _ = tell.send(tick.clone());
                work(tick)
            });
            ended.await.expect_err("it ends with an error")
        });
        Worker { got, task }
    }

    fn of(client: &Client, name: &str) -> Worker {
        Worker::new(client.ticks(name), |_| async { Ok(Outcome::success()) })
    }

    async fn next(&mut self) -> Arc<Tick> {
        within_a_minute("a tick", self.got.recv()).await.expect("the worker works")
    }
}

pub const CASES: &[crate::Case] = &[
    case!(tick_is_claimed_once, "grpc sql pooler", s => {
        let name = schedule(&s, "every 365 d", NEVER);
        let finish = tokio::sync::watch::Sender::new(false);
        let worker = || {
            let its = finish.subscribe();
            Worker::new(s.client().ticks(&name).owner("worker-1").label("kind", "report"), move |_| {
                let mut its = its.clone();
                async move {
                    let _ = its.wait_for(|&finished| finished).await;
                    Outcome::result(&json!({"rows": 3})).map_err(|error| error.to_string())
                }
            })
        };
        let (mut one, mut two) = (worker(), worker());
        let at = run_now(&s, &name);
        let first = tokio::select! { tick = one.next() => tick, tick = two.next() => tick };
        assert_eq!((first.at(), first.attempt(), first.namespace()), (at, 1, name.as_str()));
        assert_eq!(s.psql(&format!("select to_timestamp({}) = '{}'", at.duration_since(UNIX_EPOCH).expect("later").as_secs(), first.key())), "t");
        assert_eq!(ticks(&s, &name, "state, attempts, token, owner"), format!("running|1|{}|worker-1", first.token()));
        assert_eq!(s.psql(&format!("select labels ->> 'kind' from leasehold.lease where namespace = '{name}'")), "report");
        finish.send_replace(true);
        until("the end of the tick", || ticks(&s, &name, "state, result ->> 'rows'") == "done|3").await;
        let at = run_now(&s, &name);
        let second = tokio::select! { tick = one.next() => tick, tick = two.next() => tick };
        assert!(second.at() == at && second.attempt() == 1 && second.token() > first.token(), "{second:?}");
        until("the end of both", || ticks(&s, &name, "state") == "done\ndone").await;
    }),
    case!(failed_tick_is_tried_again, "grpc sql pooler", s => {
        let name = schedule(&s, "every 365 d", "starts_at => '2100-01-01Z', backoff => '1 h'");
        let at = run_now(&s, &name);
        let mut worker = Worker::new(s.client().ticks(&name), |tick| async move {
            if tick.attempt() == 1 { Err("the disk is full".to_string()) } else { Ok(Outcome::success()) }
        });
        let first = worker.next().await;
        assert_eq!((first.at(), first.attempt()), (at, 1));
        until("the failure", || ticks(&s, &name, "state, attempts, error") == "failed|1|the disk is full").await;
        s.psql(&format!("update leasehold.tick set next_try_at = now() where schedule = '{name}'"));
        let second = worker.next().await;
        assert_eq!((second.at(), second.attempt()), (at, 2));
        until("the end", || ticks(&s, &name, "state, attempts") == "done|2").await;
    }),
    case!(lost_tick_lets_the_loop_go_on, "grpc sql pooler", s => {
        let name = schedule(&s, "every 365 d", NEVER);
        run_now(&s, &name);
        let mut worker = Worker::new(s.client().ticks(&name).duration(seconds(9)), |tick| async move {
            if tick.attempt() == 1 { std::future::pending().await } else { Ok(Outcome::success()) }
        });
        let first = worker.next().await;
        until("a renewal", || s.beats_of(&first) >= 1).await;
        s.psql(&format!("select from leasehold.force_release('{name}', '{}', 'a test')", first.key()));
        assert_eq!(within_a_minute("the loss", first.lost()).await.reason, Reason::Forced);
        assert_eq!(worker.next().await.attempt(), 2);
        until("the end", || ticks(&s, &name, "state, attempts") == "done|2").await;
    }),
    case!(missed_tick_is_not_yielded, "grpc sql pooler", s => {
        let name = schedule(&s, "every 365 d", NEVER);
        let missed = run_now(&s, &name);
        s.psql(&format!("update leasehold.tick set claim_until = now() - interval '1 s' where schedule = '{name}';
                         update leasehold.schedule set look_at = now() where name = '{name}'"));
        let mut worker = Worker::of(&s.client(), &name);
        until("the miss", || ticks(&s, &name, "state, attempts") == "missed|0").await;
        until("another second", || SystemTime::now() > missed + seconds(1)).await;
        let at = run_now(&s, &name);
        assert_eq!(worker.next().await.at(), at);
    }),
    case!(leaving_the_loop_releases_the_tick, "grpc sql pooler", s => {
        let name = schedule(&s, "every 365 d", NEVER);
        let client = s.client();
        run_now(&s, &name);
        let mut worker = Worker::new(client.ticks(&name).duration(seconds(300)), |_| std::future::pending());
        drop(worker.next().await);
        drop(worker);
        until("the failure", || ticks(&s, &name, "state, attempts, error") == "failed|1|the loop was left before the work had ended").await;
        let (client_of_work, done) = (client.clone(), Arc::new(Mutex::new(0)));
        let its = done.clone();
        let ended = client.ticks(&name).run(move |_| {
            *its.lock().expect("no panic") += 1;
            let client = client_of_work.clone();
            async move {
                tokio::spawn(async move { client.close().await });
                std::future::pending::<Result<Outcome, String>>().await
            }
        });
        assert!(matches!(within_a_minute("the end", ended).await, Err(Error::Closed)));
        assert_eq!(*done.lock().expect("no panic"), 1);
    }),
    case!(cancelled_wait_claims_nothing, "grpc sql pooler", s => {
        let name = schedule(&s, "every 365 d", NEVER);
        let client = s.client();
        let worker = Worker::of(&client, &name);
        looked(&s, &name).await;
        drop(worker);
        client.close().await;
        run_now(&s, &name);
        assert_eq!(Worker::of(&s.client(), &name).next().await.attempt(), 1);
    }),
    case!(run_now_is_seen, "grpc sql pooler", s => {
        let name = schedule(&s, "every 365 d", NEVER);
        let mut worker = Worker::of(&s.client(), &name);
        looked(&s, &name).await;
        let at = run_now(&s, &name);
        assert_eq!(worker.next().await.at(), at);
    }),
    case!(paused_schedule_waits, "grpc sql pooler", s => {
        let name = schedule(&s, "every 1 s", "starts_at => '2020-01-01Z', tick_deadline => '1 h'");
        let pause = |paused: bool| time(&s.psql(&format!("select floor(extract(epoch from clock_timestamp()))::bigint from leasehold.pause_schedule('{name}', {paused})")));
        let paused = pause(true);
        let mut worker = Worker::of(&s.client(), &name);
        until("three seconds", || SystemTime::now() > paused + seconds(4)).await;
        assert_eq!(ticks(&s, &name, "count(*) filter (where state not in ('due', 'skipped'))"), "0");
        let resumed = pause(false);
        loop {
            let at = worker.next().await.at();
            if at >= resumed {
                break;
            }
            assert!(at <= paused, "the last before the pause may have been due; {at:?} {paused:?} {resumed:?}");
        }
    }),
    case!(unknown_schedule_is_named, "grpc sql pooler", s => {
        for (name, words) in [("no-such", "no-such"), ("a..b", "segment 2 of namespace must be 1 to 63 bytes")] {
            let ended = s.client().ticks(name).run(|_| async { Ok::<_, String>(Outcome::success()) }).await;
            let Err(Error::InvalidArgument(wrong)) = ended else { panic!("{ended:?}") };
            assert!(wrong.message.contains(words), "{wrong:?}");
        }
    }),
    case!(workers_share_ticks, "grpc sql pooler", s => {
        let name = schedule(&s, "every 365 d", &format!("{NEVER}, overlap => 3"));
        let mut workers: Vec<_> = (0..3).map(|_| Worker::of(&s.client(), &name)).collect();
        // As if nobody had looked for 8 s.
        s.psql(&format!("select from leasehold.set_schedule('{name}', 'every 1 s', ends_at => now(), catch_up => 'all', overlap => 3, tick_deadline => '1 h');
                         update leasehold.schedule set made_until = ends_at - interval '8 s', look_at = now() where name = '{name}'"));
        until("the first half", || ticks(&s, &name, "count(*) filter (where state = 'done') >= 4") == "t").await;
        until("8 ticks", || ticks(&s, &name, "count(*) >= 8 and bool_and(state = 'done') and max(attempts) = 1") == "t").await;
        let mut got = vec![];
        for worker in &mut workers {
            while let Ok(tick) = worker.got.try_recv() {
                got.push(tick.at());
            }
        }
        got.sort();
        let claims = got.len();
        got.dedup();
        assert!(claims >= 8 && got.len() == claims, "{claims} {}", got.len());
    }),
    case!(lost_answer_of_a_claim_is_found, "grpc", s => {
        let name = schedule(&s, "every 365 d", NEVER);
        let proxy = s.proxy();
        run_now(&s, &name);
        proxy.decide(json!(["drop", "pass"]));
        let client = s.made(Client::builder().patience(seconds(5)), &proxy.target);
        let mut worker = Worker::new(client.ticks(&name).duration(seconds(300)), |_| std::future::pending());
        assert_eq!(worker.next().await.attempt(), 1);
        assert_eq!(ticks(&s, &name, "state, attempts"), "running|1");
        assert_eq!(proxy.state()["actions"]["drop"], 1);
    }),
];
