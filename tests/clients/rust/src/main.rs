//! The cases of tests/clients/cases.json, which says what each is about: cases TRANSPORT [PART OF A NAME,...]
//! Many run at once.

mod answers;
mod callbacks;
mod cases;
mod deadlines;
mod errors;
mod hand_over;
mod kit;
mod leaders;
mod look;
mod loss;
mod priorities;
mod reaping;
mod releases;
mod retries;
mod secure;
mod shared;
mod sql;
mod telemetry;
mod threads;
mod ticks;
mod together;
mod transactions;

use std::future::Future;
use std::pin::Pin;
use std::time::Duration;

use kit::Site;

pub type Running = Pin<Box<dyn Future<Output = ()> + Send>>;

#[derive(Clone)]
pub struct Case {
    name: &'static str,
    /// The transports; none: a test of this package alone.
    on: &'static str,
    run: fn(Site) -> Running,
}

impl Case {
    fn told(&self, on: &str) -> String {
        if self.on.is_empty() { format!("test {}", self.name) } else { format!("case {} on {on}", self.name) }
    }
}

#[macro_export]
macro_rules! case {
    ($name:ident, $on:literal, $site:ident => $body:block) => {
        $crate::Case { name: stringify!($name), on: $on, run: |$site| Box::pin(async move $body) }
    };
}

/// A program whose process is stopped, killed, or ends.
async fn child(what: &str, target: &str, key: &str, duration: Duration) -> i32 {
    let client = kit::connect(leasehold::Client::builder(), target).expect("a client");
    let lease = client.lease("cases", key).duration(duration);
    if what == "exit" {
        std::mem::forget(lease.acquire().await.expect("the lease"));
        return 7;
    }
    let lease = match what {
        "hold" => lease.while_connected(),
        "lead" => lease.while_connected().wait(leasehold::FOREVER),
        _ => lease,
    };
    let result: Result<(), leasehold::Error> = lease
        .run(|_| async {
            loop {
                println!("working");
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        })
        .await;
    match result {
        Err(leasehold::Error::Lost(lost)) => println!("lost {} {}", lost.reason, lost.message),
        other => println!("{other:?}"),
    }
    4
}

#[tokio::main(worker_threads = 8)]
async fn main() {
    if let Ok(arguments) = std::env::var("LEASEHOLD_CHILD") {
        let [what, target, key, seconds] = arguments.split('\n').collect::<Vec<_>>().try_into().expect("four");
        std::process::exit(child(what, target, key, Duration::from_secs(seconds.parse().expect("a number"))).await);
    }
    telemetry::set_up();
    let on = std::env::args().nth(1).expect("a transport");
    let part = std::env::args().nth(2).unwrap_or_default();
    let all = [
        loss::CASES, // one of which lasts the longest
        answers::CASES,
        callbacks::CASES,
        cases::CASES,
        deadlines::CASES,
        errors::CASES,
        hand_over::CASES,
        leaders::CASES,
        look::CASES,
        priorities::CASES,
        reaping::CASES,
        releases::CASES,
        retries::CASES,
        secure::CASES,
        shared::CASES,
        sql::CASES,
        telemetry::CASES,
        threads::CASES,
        ticks::CASES,
        together::CASES,
        transactions::CASES[0],
        transactions::CASES[1],
    ]
    .concat();
    let mut running = tokio::task::JoinSet::new();
    let mut is_good = true;
    for case in all.iter().filter(|case| {
        part.split(',').any(|part| case.name.contains(part)) && (case.on.is_empty() && on == "grpc" || case.on.split(' ').any(|each| each == on))
    }) {
        // Most of a case is waiting.
        while running.len() >= 12 {
            is_good &= running.join_next().await.expect("a case").expect("no panic");
        }
        let (case, on, site) = (case.clone(), on.clone(), Site::new(&on, case.name));
        running.spawn(async move {
            let is_good = tokio::spawn((case.run)(site)).await.is_ok();
            println!("{} {}", case.told(&on), if is_good { "passed" } else { "failed" });
            is_good
        });
    }
    while let Some(ended) = running.join_next().await {
        is_good &= ended.expect("no panic");
    }
    std::process::exit(i32::from(!is_good));
}
