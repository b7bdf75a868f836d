//! The same cases with leasehold::blocking and a postgres::Client.

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

use leasehold::blocking::Client;
use leasehold::blocking::postgres::{Client as Db, Transaction};
use leasehold::tokio_postgres::NoTls;
use leasehold::{Error, Lease, Outcome, Reason};
use serde_json::json;
use tokio::runtime::Handle;

use super::{Wrong, leasehold_error};
use crate::case;
use crate::kit::*;

fn db(place: &str) -> Db {
    Db::connect(place, NoTls).expect("PostgreSQL")
}

/// Away from the runtime's own threads, under a key of its own.
async fn away(mut s: Site, case: impl FnOnce(&Site, Client, Db) + Send + 'static) {
    s.key.push_str(" blocking");
    let client = Client::new(s.client());
    let its = move || case(&s, client, db(&s.database));
    tokio::task::spawn_blocking(its).await.expect("no panic");
}

impl Site {
    fn goes_on(&self, lease: &Lease) {
        assert!(self.call_state() == "running" && !lease.remaining().is_zero());
        Handle::current().block_on(self.is_renewed());
    }

    fn becomes(&self, state: &str) -> String {
        format!("update call set state = '{state}' where id = '{}'", self.key)
    }
}

pub const CASES: &[crate::Case] = &[
    case!(released_in_a_transaction, "grpc sql pooler", s => {
        away(s, |s, client, mut db| {
            let done = s.call("running");
            let lease = client.acquire(client.lease("cases", &s.key).duration(seconds(12))).expect("the lease");
            let result: Result<(), Wrong> = client.release_in(&lease, &mut db, Outcome::success(), |tx| {
                tx.batch_execute(&done)?;
                Err("the disk is full".into())
            });
            assert_eq!(result.expect_err("an error").to_string(), "the disk is full");
            s.goes_on(&lease);
            let panics = AssertUnwindSafe(|| {
                client.release_in(&lease, &mut db, Outcome::success(), |tx| -> Result<(), Wrong> {
                    tx.batch_execute(&done)?;
                    resume_unwind(Box::new("the work panics"))
                })
            });
            assert!(catch_unwind(panics).is_err());
            s.goes_on(&lease);
            // PostgreSQL refuses the COMMIT.
            s.psql("create table if not exists twice (n integer unique deferrable initially deferred)");
            let twice = |tx: &mut Transaction<'_>| {
                tx.batch_execute(&done)?;
                Ok::<_, Wrong>(tx.batch_execute("insert into twice values (1), (1)")?)
            };
            let refused = client.release_in(&lease, &mut db, Outcome::success(), twice).expect_err("an error");
            let code = refused.downcast_ref::<leasehold::tokio_postgres::Error>().and_then(|error| error.code()).map(|code| code.code());
            assert_eq!(code, Some("23505"));
            s.goes_on(&lease);
            let rows = Outcome::result(&json!({"rows": 3})).expect("JSON");
            let seven = client.release_in(&lease, &mut db, rows, |tx| {
                tx.batch_execute(&done)?;
                Ok::<_, Wrong>(7)
            });
            assert_eq!(seven.expect("the release"), 7);
            assert!(lease.remaining().is_zero() && lease.is_lost().is_none());
            assert_eq!((s.call_state(), s.row("state, last_outcome, last_result ->> 'rows'")), ("done".into(), "free|ok|3".into()));
            let again = client.release_in(&lease, &mut db, Outcome::success(), |_| -> Result<(), Wrong> { panic!("it ran") });
            assert_eq!(leasehold_error(again), Error::Released);
            let second = client.acquire(client.lease("cases", &s.key)).expect("the lease");
            client.release_in(&second, &mut db, Outcome::failure("no such payee"), |_| Ok::<_, Wrong>(())).expect("the release");
            assert_eq!(s.row("state, last_outcome, last_error"), "free|failed|no such payee");
        }).await;
    }),
    case!(acquired_in_a_transaction, "grpc sql pooler", s => {
        away(s, |s, client, mut db| {
            s.call("queued");
            let wanted = || client.lease("cases", &s.key).duration(seconds(12)).owner("worker-1");
            let result = client.acquire_in(wanted(), &mut db, |tx, lease| {
                tx.batch_execute(&s.becomes("running"))?;
                assert!(lease.token() > 0 && lease.remaining().is_zero());
                assert!(matches!(client.release(lease, Outcome::success()), Err(Error::InvalidArgument(_))));
                Err::<(), Wrong>("the disk is full".into())
            });
            assert_eq!(result.expect_err("an error").to_string(), "the disk is full");
            assert!(s.call_state() == "queued" && s.is_free());
            // A statement that has failed rolls back, though the work says nothing of it.
            let result = client.acquire_in(wanted(), &mut db, |tx, _| {
                assert!(tx.batch_execute("select 1 / 0").is_err());
                Ok::<_, Wrong>(())
            });
            assert!(result.expect_err("an error").is::<leasehold::tokio_postgres::Error>() && s.is_free());
            let held = client.acquire_in(wanted(), &mut db, |tx, _| Ok::<_, Wrong>(tx.batch_execute(&s.becomes("running"))?)).expect("the lease");
            s.goes_on(&held);
            match leasehold_error(client.acquire_in(wanted(), &mut db, |_, _| panic!("it ran")).map(drop)) {
                Error::Held(held) => assert_eq!(held.holder, "worker-1"),
                other => panic!("{other:?}"),
            }
            match leasehold_error(client.acquire_in(wanted().wait(seconds(3)), &mut db, |_, _| panic!("it ran")).map(drop)) {
                Error::InvalidArgument(wrong) => assert!(wrong.message.starts_with("wait must be 0 in a transaction"), "{wrong:?}"),
                other => panic!("{other:?}"),
            }
            client.release(&held, Outcome::success()).expect("the release");
        }).await;
    }),
    case!(lost_lease_rolls_back, "grpc sql pooler", s => {
        away(s, |s, client, mut db| {
            let done = s.call("running");
            let lease = client.acquire(client.lease("cases", &s.key).duration(5 * MINUTE)).expect("the lease");
            let result = client.release_in(&lease, &mut db, Outcome::success(), |tx| {
                tx.batch_execute(&done)?;
                s.force();
                Ok::<_, Wrong>(())
            });
            match leasehold_error(result) {
                Error::Lost(lost) => assert_eq!((lost.reason, lease.is_lost().map(|lost| lost.reason)), (Reason::Forced, Some(Reason::Forced))),
                other => panic!("{other:?}"),
            }
            assert_eq!(s.call_state(), "running");
        }).await;
    }),
    case!(open_transaction_is_refused, "grpc sql", s => {
        away(s, |s, client, mut db| {
            let done = s.call("running");
            let lease = client.acquire(client.lease("cases", &s.key)).expect("the lease");
            db.batch_execute(&format!("begin; {done}")).expect("a transaction");
            let refused = client.release_in(&lease, &mut db, Outcome::success(), |_| panic!("it ran"));
            let other = client.acquire_in(client.lease("cases", &format!("{} 2", s.key)), &mut db, |_, _| panic!("it ran")).map(drop);
            for error in [refused, other].map(leasehold_error) {
                assert_eq!(error.to_string(), "db must have no transaction open: this begins one, and commits it");
            }
            db.batch_execute("commit").expect("the commit");
            assert!(s.call_state() == "done" && !lease.remaining().is_zero());
            client.release(&lease, Outcome::success()).expect("the release");
        }).await;
    }),
    case!(unanswered_commit_of_a_release_is_looked_up, "grpc sql", s => {
        away(s, |s, client, _| {
            let done = s.call("running");
            let lease = client.acquire(client.lease("cases", &s.key).duration(seconds(12))).expect("the lease");
            let release = |mode: &str| {
                let work = |tx: &mut Transaction<'_>| Ok::<_, Wrong>(tx.batch_execute(&done)?);
                client.release_in(&lease, &mut db(&s.cut_at_commit(mode)), Outcome::success(), work)
            };
            assert!(release("before").expect_err("an error").is::<leasehold::tokio_postgres::Error>());
            s.goes_on(&lease);
            let other = s.client();
            let waiter = Handle::current().block_on(s.queue(1, s.lease(&other).wait(MINUTE)));
            release("after").expect("the release");
            assert!(s.call_state() == "done" && lease.remaining().is_zero() && lease.is_lost().is_none());
            let next = Handle::current().block_on(granted(waiter));
            client.release(&next, Outcome::success()).expect("the release");
        }).await;
    }),
    case!(unanswered_commit_of_an_acquire_is_looked_up, "grpc sql", s => {
        away(s, |s, client, _| {
            s.call("queued");
            let acquire = |mode: &str| -> Result<Lease, Wrong> {
                let work = |tx: &mut Transaction<'_>, _: &Lease| Ok(tx.batch_execute(&s.becomes("running"))?);
                client.acquire_in(client.lease("cases", &s.key).duration(seconds(12)), &mut db(&s.cut_at_commit(mode)), work)
            };
            let unknown = leasehold_error(acquire("before").map(drop));
            assert!(matches!(&unknown, Error::UnknownOutcome { key, .. } if *key == s.key), "{unknown:?}");
            assert!(s.call_state() == "queued" && s.is_free());
            let lease = acquire("after").expect("the lease");
            s.goes_on(&lease);
            client.release(&lease, Outcome::success()).expect("the release");
        }).await;
    }),
    case!(guard_fences, "grpc sql pooler", s => {
        away(s, |s, client, mut db| {
            let lease = client.acquire(client.lease("cases", &s.key).duration(5 * MINUTE)).expect("the lease");
            let mut open = db.transaction().expect("a transaction");
            client.guard(&lease, &mut open).expect("it is held");
            open.commit().expect("the commit");
            s.force();
            let mut open = db.transaction().expect("a transaction");
            assert!(matches!(client.guard(&lease, &mut open), Err(Error::Lost(_))));
        }).await;
    }),
];
