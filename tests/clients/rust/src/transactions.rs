//! Leases that begin and end in a transaction of the application's; of programs without async in blocking.rs.

mod blocking;

use leasehold::tokio_postgres::{Client as Db, NoTls, Transaction, connect};
use leasehold::{Error, Lease, Outcome, Reason};
use serde_json::{Value, json};

use crate::case;
use crate::kit::*;

/// What work of the application's ends with.
type Wrong = Box<dyn std::error::Error + Send + Sync>;

async fn db(place: &str) -> Db {
    let (client, connection) = connect(place, NoTls).await.expect("PostgreSQL");
    tokio::spawn(connection);
    client
}

impl Site {
    async fn application(&self) -> Db {
        db(&self.database).await
    }

    /// Behind tests/clients/commit_proxy.py
    fn cut_at_commit(&self, mode: &str) -> String {
        let port: Value = ask("commit_proxy", json!({"mode": mode}))["port"].clone();
        self.database_at(port.as_u64().expect("a port"))
    }

    /// A row of the application's.
    fn call(&self, state: &str) -> String {
        self.psql("create table if not exists call (id text primary key, state text not null)");
        self.psql(&format!("insert into call values ('{}', '{state}')", self.key));
        format!("update call set state = 'done' where id = '{}'", self.key)
    }

    fn call_state(&self) -> String {
        self.psql(&format!("select state from call where id = '{}'", self.key))
    }

    async fn is_renewed(&self) {
        let before = self.beats();
        until("two renewals", || self.beats() >= before + 2).await;
    }

    fn is_free(&self) -> bool {
        ["", "free"].contains(&self.row("state").as_str())
    }
}

fn leasehold_error(result: Result<(), Wrong>) -> Error {
    *result.expect_err("an error").downcast::<Error>().expect("one of Leasehold's")
}

pub const CASES: [&[crate::Case]; 2] = [AWAITING, blocking::CASES];

const AWAITING: &[crate::Case] = &[
    case!(released_in_a_transaction, "grpc sql pooler", s => {
        let (done, client, mut db) = (s.call("running"), s.client(), s.application().await);
        let lease = s.lease(&client).duration(seconds(12)).acquire().await.expect("the lease");
        let result: Result<(), Wrong> = lease.release_in(&mut db, Outcome::success(), async |tx| {
            tx.batch_execute(&done).await?;
            Err("the disk is full".into())
        }).await;
        assert_eq!(result.expect_err("an error").to_string(), "the disk is full");
        assert!(s.call_state() == "running" && !lease.remaining().is_zero());
        s.is_renewed().await;
        // The future is dropped in the middle of the work: then the lease goes on, too.
        let stopped = lease.release_in(&mut db, Outcome::success(), async |tx| {
            tx.batch_execute(&done).await?;
            std::future::pending::<Result<(), Wrong>>().await
        });
        assert!(tokio::time::timeout(seconds(1), stopped).await.is_err());
        s.is_renewed().await;
        // PostgreSQL refuses the COMMIT.
        s.psql("create table if not exists once (n integer unique deferrable initially deferred)");
        let twice = async |tx: &Transaction<'_>| Ok::<_, Wrong>(tx.batch_execute("insert into once values (1), (1)").await?);
        let refused = lease.release_in(&mut db, Outcome::success(), twice).await.expect_err("an error");
        let code = refused.downcast_ref::<leasehold::tokio_postgres::Error>().and_then(|error| error.code()).map(|code| code.code());
        assert_eq!(code, Some("23505"));
        s.is_renewed().await;
        // It may be spawned.
        let (statement, rows) = (done.clone(), Outcome::result(&json!({"rows": 3})).expect("JSON"));
        let (lease, mut db) = tokio::spawn(async move {
            let seven = lease.release_in(&mut db, rows, async |tx| {
                tx.batch_execute(&statement).await?;
                Ok::<_, Wrong>(7)
            }).await;
            assert_eq!(seven.expect("the release"), 7);
            (lease, db)
        }).await.expect("no panic");
        assert!(lease.remaining().is_zero() && lease.is_lost().is_none());
        assert_eq!((s.call_state(), s.row("state, last_outcome, last_result ->> 'rows'")), ("done".into(), "free|ok|3".into()));
        let again = lease.release_in(&mut db, Outcome::success(), async |_| -> Result<(), Wrong> { panic!("it ran") }).await;
        assert_eq!(leasehold_error(again), Error::Released);
        let second = s.acquire(&client).await;
        second.release_in(&mut db, Outcome::failure("no such payee"), async |_| Ok::<_, Wrong>(())).await.expect("the release");
        assert_eq!(s.row("state, last_outcome, last_error"), "free|failed|no such payee");
    }),
    case!(acquired_in_a_transaction, "grpc sql pooler", s => {
        let (_, client, mut db) = (s.call("queued"), s.client(), s.application().await);
        let becomes = |state: &str| format!("update call set state = '{state}' where id = '{}'", s.key);
        let lease = || s.lease(&client).duration(seconds(12)).owner("worker-1");
        let result = lease().acquire_in(&mut db, async |tx, lease| {
            tx.batch_execute(&becomes("running")).await?;
            assert!(lease.token() > 0 && lease.remaining().is_zero());
            assert!(matches!(lease.release().await, Err(Error::InvalidArgument(_))));
            Err::<(), Wrong>("the disk is full".into())
        }).await;
        assert_eq!(result.expect_err("an error").to_string(), "the disk is full");
        assert!(s.call_state() == "queued" && s.is_free());
        // A statement that has failed rolls back, though the work says nothing of it.
        let result = lease().acquire_in(&mut db, async |tx, _| {
            assert!(tx.batch_execute("select 1 / 0").await.is_err());
            Ok::<_, Wrong>(())
        }).await;
        assert!(result.expect_err("an error").is::<leasehold::tokio_postgres::Error>());
        assert!(s.is_free());
        let held = lease().acquire_in(&mut db, async |tx, lease| {
            tx.batch_execute(&becomes(&format!("token {}", lease.token()))).await?;
            Ok::<_, Wrong>(())
        }).await.expect("the lease");
        assert!(s.call_state() == format!("token {}", held.token()) && !held.remaining().is_zero());
        s.is_renewed().await;
        match leasehold_error(lease().acquire_in(&mut db, async |_, _| panic!("it ran")).await.map(drop)) {
            Error::Held(held) => assert_eq!(held.holder, "worker-1"),
            other => panic!("{other:?}"),
        }
        match leasehold_error(lease().wait(seconds(3)).acquire_in(&mut db, async |_, _| panic!("it ran")).await.map(drop)) {
            Error::InvalidArgument(wrong) => assert!(wrong.message.starts_with("wait must be 0 in a transaction"), "{wrong:?}"),
            other => panic!("{other:?}"),
        }
        held.release().await.expect("the release");
    }),
    case!(lost_lease_rolls_back, "grpc sql pooler", s => {
        let (done, client, mut db) = (s.call("running"), s.client(), s.application().await);
        let lease = s.lease(&client).duration(5 * MINUTE).acquire().await.expect("the lease");
        let result = lease.release_in(&mut db, Outcome::success(), async |tx| {
            tx.batch_execute(&done).await?;
            s.force();
            Ok::<_, Wrong>(())
        }).await;
        match leasehold_error(result) {
            Error::Lost(lost) => assert_eq!((lost.reason, lease.is_lost().map(|lost| lost.reason)), (Reason::Forced, Some(Reason::Forced))),
            other => panic!("{other:?}"),
        }
        assert_eq!(s.call_state(), "running");
    }),
    case!(open_transaction_is_refused, "grpc sql", s => {
        let (done, client, mut db) = (s.call("running"), s.client(), s.application().await);
        let lease = s.acquire(&client).await;
        db.batch_execute(&format!("begin; {done}")).await.expect("a transaction");
        let refused = lease.release_in(&mut db, Outcome::success(), async |_| panic!("it ran")).await;
        let other = client.lease("cases", &format!("{} 2", s.key)).acquire_in(&mut db, async |_, _| panic!("it ran")).await.map(drop);
        for error in [refused, other].map(leasehold_error) {
            assert_eq!(error.to_string(), "db must have no transaction open: this begins one, and commits it");
        }
        db.batch_execute("commit").await.expect("the commit");
        assert!(s.call_state() == "done" && !lease.remaining().is_zero());
        lease.release().await.expect("the release");
    }),
    case!(unanswered_commit_of_a_release_is_looked_up, "grpc sql", s => {
        let (done, client) = (s.call("running"), s.client());
        let lease = s.lease(&client).duration(seconds(12)).acquire().await.expect("the lease");
        let release = async |mode: &str| {
            let mut db = db(&s.cut_at_commit(mode)).await;
            lease.release_in(&mut db, Outcome::success(), async |tx| Ok::<_, Wrong>(tx.batch_execute(&done).await?)).await
        };
        assert!(release("before").await.expect_err("an error").is::<leasehold::tokio_postgres::Error>());
        assert!(s.call_state() == "running" && !lease.remaining().is_zero());
        s.is_renewed().await;
        let other = s.client();
        let waiter = s.queue(1, s.lease(&other).wait(MINUTE)).await;
        release("after").await.expect("the release");
        assert!(s.call_state() == "done" && lease.remaining().is_zero() && lease.is_lost().is_none());
        granted(waiter).await.release().await.expect("the release");
    }),
    case!(unanswered_commit_of_an_acquire_is_looked_up, "grpc sql", s => {
        let (done, client) = (s.call("queued"), s.client());
        let acquire = async |mode: &str| -> Result<Lease, Wrong> {
            let mut db = db(&s.cut_at_commit(mode)).await;
            s.lease(&client).duration(seconds(12)).acquire_in(&mut db, async |tx, _| Ok(tx.batch_execute(&done).await?)).await
        };
        let unknown = leasehold_error(acquire("before").await.map(drop));
        assert!(matches!(&unknown, Error::UnknownOutcome { key, .. } if *key == s.key), "{unknown:?}");
        assert!(unknown.to_string().contains("COMMIT was not answered"), "{unknown}");
        assert!(s.call_state() == "queued" && s.is_free());
        let lease = acquire("after").await.expect("the lease");
        assert!(s.call_state() == "done" && !lease.remaining().is_zero());
        s.is_renewed().await;
        lease.release().await.expect("the release");
    }),
    case!(guard_fences, "grpc sql pooler", s => {
        let (client, mut db) = (s.client(), s.application().await);
        let lease = s.lease(&client).duration(5 * MINUTE).acquire().await.expect("the lease");
        let open = db.transaction().await.expect("a transaction");
        lease.guard(&open).await.expect("it is held");
        open.commit().await.expect("the commit");
        s.force();
        let open = db.transaction().await.expect("a transaction");
        assert!(matches!(lease.guard(&open).await, Err(Error::Lost(_))));
    }),
    case!(acquire_given_up_at_commit_leaves_nothing, "", s => {
        let (client, mut db, other) = (s.client(), s.application().await, s.application().await);
        s.psql("drop table if exists slow; create table slow (n integer);
                create or replace function await_lock() returns trigger language plpgsql as
                $$ begin perform pg_advisory_xact_lock(7420); return null; end $$;
                create constraint trigger slow after insert on slow deferrable initially deferred for each row execute function await_lock()");
        other.batch_execute("select pg_advisory_lock(7420)").await.expect("the lock");
        let lease = s.lease(&client).duration(5 * MINUTE);
        let acquired = lease.acquire_in(&mut db, async |tx, _| Ok::<_, Wrong>(tx.batch_execute("insert into slow values (1)").await?));
        tokio::select! {
            ended = acquired => panic!("{ended:?}"),
            () = until("a COMMIT that waits", || s.psql("select count(*) from pg_locks where locktype = 'advisory' and not granted") == "1") => {}
        }
        other.batch_execute("select pg_advisory_unlock(7420)").await.expect("the lock");
        until("the release of what was committed", || s.row("state, last_outcome") == "free|failed").await;
    }),
    case!(client_closed_before_commit_is_told_by_the_lease, "", s => {
        let (done, client, mut db) = (s.call("queued"), s.client(), s.application().await);
        let acquired = s.lease(&client).acquire_in(&mut db, async |tx, _| {
            client.close().await;
            Ok::<_, Wrong>(tx.batch_execute(&done).await?)
        });
        let lease = acquired.await.expect("what is committed is no error");
        assert_eq!((s.call_state(), lease.is_lost().map(|lost| lost.reason)), ("done".into(), Some(Reason::Closed)));
    }),
];
