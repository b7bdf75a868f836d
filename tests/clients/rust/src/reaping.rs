//! reap_stale, async and blocking.

use std::error::Error as StdError;

use leasehold::blocking::postgres;
use leasehold::tokio_postgres::{self, NoTls};
use leasehold::{Error, Reaped, StaleLease, blocking, reap_stale};

use crate::case;
use crate::kit::*;

const INSERT: &str = "insert into public.reaped_rust values ($1)";
const KEYS: [&str; 4] = ["broken", "slow", "twice", "well"];

/// Leases of a namespace whose time is over; each one's work has three seconds.
async fn leave(s: &Site, parent: &str) {
    s.psql(&format!("select from leasehold.set_policy('{parent}', reaper => 'external', hook_timeout => '3 s')"));
    let client = s.client();
    let mut leases = vec![];
    for key in KEYS {
        let lease = client.lease(&format!("{parent}.rust"), key).owner("somebody");
        leases.push(lease.acquire().await.expect("the lease"));
    }
    client.close().await;
    let earlier = ["acquired_at", "heartbeat_at", "deadline", "check_at"].map(|each| format!("{each} = {each} - interval '1 h'")).join(", ");
    s.psql(&format!("update leasehold.scope set {earlier} where namespace = '{parent}.rust'"));
}

fn check(lease: &StaleLease) {
    assert_eq!((&*lease.owner, lease.limit), ("somebody", seconds(3)));
    assert!(lease.token > 0 && lease.deadline > lease.acquired_at, "{lease:?}");
}

/// Whether one has ended and each of the others has failed, which are tried again.
fn is_enough(all: &mut Reaped, some: Reaped) -> bool {
    *all = Reaped { ended: all.ended + some.ended, failed: all.failed + some.failed };
    all.ended == 1 && all.failed >= 3
}

fn look(s: &Site, parent: &str) {
    assert_eq!(s.psql("select string_agg(key, ' ') from public.reaped_rust"), "well");
    let states = s.psql(&format!("select key, state, last_outcome from leasehold.scope where namespace = '{parent}.rust' order by key"));
    assert_eq!(states, "broken|held|\nslow|held|\ntwice|held|\nwell|free|expired");
    let words = s.psql(&format!("select error from leasehold.reap_failure where namespace = '{parent}.rust' order by key"));
    let expected = ["it cannot be put back", "it ran over its limit of 3s", "current transaction is aborted"];
    assert!(expected.iter().all(|each| words.contains(each)), "{words}");
    s.psql("truncate public.reaped_rust");
}

fn refused<T: std::fmt::Debug>(result: Result<T, Error>, field: &str) {
    assert!(matches!(&result, Err(Error::InvalidArgument(wrong)) if wrong.field == field), "{result:?}");
}

fn reap_blocking(s: &Site, target: &str) {
    let mut db = postgres::Client::connect(target, NoTls).expect("PostgreSQL");
    let mut all = Reaped::default();
    let end = |tx: &mut postgres::Transaction<'_>, lease: &StaleLease| -> Result<(), Box<dyn StdError + Send + Sync>> {
        check(lease);
        tx.execute(INSERT, &[&lease.key])?;
        match &*lease.key {
            "broken" => return Err("it cannot be put back".into()),
            "slow" => std::thread::sleep(seconds(4)),
            "twice" => drop(tx.execute(INSERT, &[&lease.key])), // COMMIT would say nothing of it
            _ => {}
        }
        Ok(())
    };
    while !is_enough(&mut all, blocking::reap_stale(&mut db, &["blocked"], true, end).expect("a reap")) {
        std::thread::sleep(std::time::Duration::from_millis(100));
    }
    look(s, "blocked");
    assert_eq!(blocking::reap_stale(&mut db, &["blocked.rust"], false, |_, _| Ok(())), Ok(Reaped { ended: 3, failed: 0 }));
    db.batch_execute("begin").expect("a transaction");
    refused(blocking::reap_stale(&mut db, &[], false, |_, _| Ok(())), "db");
}

pub const CASES: &[crate::Case] = &[case!(reaping_calls_back, "sql", s => {
    s.psql("drop table if exists public.reaped_rust; create table public.reaped_rust (key text primary key)");
    leave(&s, "reaped").await;
    leave(&s, "blocked").await;
    let (mut db, connection) = tokio_postgres::connect(&s.database, NoTls).await.expect("PostgreSQL");
    tokio::spawn(connection);
    let mut all = Reaped::default();
    let words = "it cannot be put back".to_string();
    let end = within_a_minute("the end of the lease", async {
        loop {
            let some = reap_stale(&mut db, &["reaped"], true, |tx, lease| {
                let words = words.clone();
                Box::pin(async move {
                    check(lease);
                    tx.execute(INSERT, &[&lease.key]).await?;
                    match &*lease.key {
                        "broken" => return Err(words.into()),
                        "slow" => tokio::time::sleep(MINUTE).await,
                        "twice" => drop(tx.execute(INSERT, &[&lease.key]).await), // COMMIT would say nothing of it
                        _ => {}
                    }
                    Ok(())
                })
            });
            if is_enough(&mut all, some.await.expect("a reap")) {
                break;
            }
            tokio::time::sleep(std::time::Duration::from_millis(100)).await;
        }
    });
    end.await;
    look(&s, "reaped");
    let ended = reap_stale(&mut db, &["reaped.rust"], false, |_, _| Box::pin(async { Ok(()) })).await;
    assert_eq!(ended, Ok(Reaped { ended: 3, failed: 0 }));
    refused(reap_stale(&mut db, &[""], false, |_, _| Box::pin(async { Ok(()) })).await, "namespace");
    db.batch_execute("begin").await.expect("a transaction");
    refused(reap_stale(&mut db, &[], false, |_, _| Box::pin(async { Ok(()) })).await, "db");
    let its = s.clone();
    tokio::task::spawn_blocking(move || reap_blocking(&its, &its.database)).await.expect("no panic");
})];
