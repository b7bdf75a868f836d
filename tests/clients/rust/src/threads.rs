//! The client without async.

use std::sync::{Arc, Mutex};
use std::thread;

use leasehold::blocking::Client;
use leasehold::blocking::postgres::{Client as Db, NoTls};
use leasehold::{Error, FOREVER, Outcome, Reason, remaining};

use crate::case;
use crate::kit::*;
use crate::ticks::{NEVER, run_now, schedule, ticks};

/// In a thread of its own.
async fn away(s: &Site, case: impl FnOnce(&Site, Client) + Send + 'static) {
    let (site, client) = (s.clone(), Client::new(s.client()));
    let thread = thread::spawn(move || case(&site, client));
    tokio::task::block_in_place(|| thread.join()).expect("no panic");
}

fn wait(what: &str, condition: impl FnMut() -> bool) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().expect("a runtime");
    runtime.block_on(until(what, condition));
}

pub const CASES: &[crate::Case] = &[
    case!(threads_without_async_use_it, "", s => {
        away(&s, |s, client| {
            let lease = client.acquire(client.lease("cases", &s.key).duration(seconds(9))).expect("the lease");
            wait("two renewals", || s.beats() >= 2);
            client.downgrade(&lease, 1).expect("the downgrade");
            client.release(&lease, Outcome::success()).expect("the release");
            let result = client.run(client.lease("cases", &s.key), |_| Err::<(), Error>(Error::Released));
            assert_eq!(result, Err(Error::Released));
            client.close();
        }).await;
        assert_eq!(s.row("state, last_outcome"), "free|failed");
    }),
    case!(work_of_threads_makes_calls, "", s => {
        let database = s.database.clone();
        away(&s, move |s, client| {
            let inner = || client.lease("cases", &format!("{} inner", s.key));
            let outcome = client.run(client.lease("cases", &s.key).duration(seconds(6)), |outer| {
                let mut db = Db::connect(&database, NoTls).expect("PostgreSQL");
                db.batch_execute("select").expect("an answer");
                client.run(inner(), |lease| {
                    let most = outer.remaining();
                    assert!(remaining() <= Some(most), "{most:?}");
                    client.release(lease, Outcome::success())
                })?;
                // A call ends with the lease.
                let held = client.acquire(inner())?;
                s.force();
                match client.acquire(inner().wait(FOREVER)) {
                    Err(Error::Lost(lost)) => assert_eq!((lost.reason, lost.key.as_str()), (Reason::Forced, outer.key())),
                    other => panic!("{other:?}"),
                }
                client.release(&held, Outcome::success())
            });
            assert!(matches!(outcome, Err(Error::Lost(_))), "{outcome:?}");
        }).await;
        until("an empty queue", || s.psql(&format!("select count(*) from leasehold.queue where key like '{}%'", s.key)) == "0").await;
    }),
    case!(threads_lead, "", s => {
        away(&s, |s, client| {
            let mut terms = vec![];
            let result = client.lead(client.lease("cases", &s.key).duration(seconds(9)), |lease| {
                terms.push(lease.token());
                if terms.len() == 1 {
                    s.force();
                    wait("the loss", || lease.is_lost().is_some());
                }
                Ok::<_, Error>(terms.len())
            });
            assert_eq!(result, Ok(2));
            assert!(terms[1] > terms[0], "{terms:?}");
            let panics = || client.lead(client.lease("cases", &s.key), |_| -> Result<(), Error> { std::panic::resume_unwind(Box::new("the work panics")) });
            assert!(std::panic::catch_unwind(std::panic::AssertUnwindSafe(panics)).is_err());
            wait("the release", || s.row("state, last_outcome, last_error") == "free|failed|the work panicked");
        }).await;
    }),
    case!(threads_work_on_ticks, "", s => {
        let name = schedule(&s, "every 365 d", NEVER);
        run_now(&s, &name);
        let done = Arc::new(Mutex::new(vec![]));
        let (its, of_work) = (name.clone(), done.clone());
        away(&s, move |s, client| {
            let ended = client.run_ticks(client.ticks(&its).duration(seconds(9)), |tick| {
                done.lock().expect("attempts").push(tick.attempt());
                match tick.attempt() {
                    1 => return Err("the disk is full".to_string()),
                    2 => {
                        s.psql(&format!("select from leasehold.force_release('{its}', '{}', 'a test')", tick.key()));
                        wait("the loss", || tick.is_lost().is_some());
                    }
                    _ => client.close(),
                }
                Ok(Outcome::success())
            });
            assert_eq!(ended, Err(Error::Closed));
        }).await;
        assert_eq!(*of_work.lock().expect("attempts"), [1, 2, 3]);
        assert_eq!(ticks(&s, &name, "attempts, state <> 'done'"), "3|t");
    }),
];
