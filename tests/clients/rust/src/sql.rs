//! PostgreSQL without a daemon.

use std::sync::{Arc, Mutex};

use leasehold::tokio_postgres::{self, NoTls};
use leasehold::{Client, Error};
use serde_json::json;

use crate::case;
use crate::kit::*;

type Lines = Arc<Mutex<Vec<String>>>;

/// A client, and what it logs.
fn talking(s: &Site) -> (Client, Lines) {
    let said = Lines::default();
    let its = said.clone();
    (s.made(Client::builder().log(move |line| its.lock().expect("lines").push(line.into())), &s.target), said)
}

pub const CASES: &[crate::Case] = &[
    case!(broken_connections_cost_no_lease, "sql pooler", s => {
        // Behind a pooler a session keeps the name of whoever had it last, and may have another case's transaction meanwhile.
        let (target, whose) = if s.on == "pooler" {
            (s.at("apart"), "usename = 'apart'")
        } else {
            (format!("{} application_name=rust-broken", s.target), "application_name = 'rust-broken'")
        };
        let client = s.client_at(&target);
        let lease = s.lease(&client).duration(seconds(15)).acquire().await.expect("the lease");
        for _ in 0..2 {
            let before = s.beats();
            until("a renewal", || s.beats() > before).await;
            assert_ne!(s.psql(&format!("select count(pg_terminate_backend(pid)) from pg_stat_activity where {whose}")), "0");
        }
        let before = s.beats();
        until("two renewals", || s.beats() > before + 1).await;
        lease.release().await.expect("the release");
        assert_eq!(s.row("state, last_outcome"), "free|ok");
    }),
    case!(renewal_has_its_own_connection, "sql pooler", s => {
        let (mut application, connection) = tokio_postgres::connect(&s.database, NoTls).await.expect("PostgreSQL");
        tokio::spawn(connection);
        let client = s.client();
        let lease = s.lease(&client).duration(seconds(9)).acquire().await.expect("the lease");
        let open = application.transaction().await.expect("a transaction");
        until("two renewals", || s.beats() >= 2).await;
        open.rollback().await.expect("its end");
        lease.release().await.expect("the release");
    }),
    case!(wait_hears_notify, "sql", s => {
        let client = s.made(Client::builder().poll(10 * MINUTE), &s.target);
        let first = s.acquire(&client).await;
        let waiter = s.queue(1, s.lease(&client).wait(10 * MINUTE)).await;
        first.release().await.expect("the release");
        granted(waiter).await.release().await.expect("the release");
        match Client::builder().poll(seconds(0)).over(tokio_postgres::Config::new(), NoTls) {
            Err(Error::InvalidArgument(wrong)) => assert_eq!(wrong.message, "poll must be more than 0, not 0ns"),
            other => panic!("{other:?}"),
        }
    }),
    case!(pooler_is_noticed, "pooler", s => {
        let (client, said) = talking(&s);
        for _ in 0..2 {
            let first = s.acquire(&client).await;
            let waiter = s.queue(1, s.lease(&client).wait(MINUTE)).await;
            first.release().await.expect("the release");
            granted(waiter).await.release().await.expect("the release");
        }
        let said = said.lock().expect("lines");
        assert!(said.len() == 1 && said[0].contains("poll every 200ms"), "{said:?}");
    }),
    case!(standby_is_left_out, "sql", s => {
        let standby = ask("standby", json!({}));
        let name = s.database_at(0);
        let name = name.split(' ').find(|each| each.starts_with("dbname=")).expect("a database");
        let at = |hosts: &str, ports: String| format!("host={hosts} port={ports} user=postgres {name}");
        let both = s.client_at(&at("127.0.0.1,127.0.0.1", format!("{},{}", standby["port"], s.port)));
        s.acquire(&both).await.release().await.expect("the release");
        let alone = s.made(Client::builder().patience(seconds(1)), &at("127.0.0.1", standby["port"].to_string()));
        let refused = s.lease(&alone).acquire().await;
        assert!(matches!(refused, Err(Error::Unavailable(_))), "{refused:?}");
    }),
    case!(unreadable_requests_cost_no_lease, "sql pooler", s => {
        let (client, said) = talking(&s);
        let (tell, mut told) = tokio::sync::mpsc::unbounded_channel();
        let lease = s.lease(&client).duration(seconds(6)).on_asked(move |request| tell.send(request).expect("the case"));
        let lease = lease.acquire().await.expect("the lease");
        let set = |at: &str| {
            s.psql(&format!("select from leasehold.ask_hand_over('cases', '{0}', reason => 'well?');
                             update leasehold.hand_over set answer_by = {at} where namespace = 'cases' and key = '{0}'", s.key));
        };
        set("'infinity'"); // from which asked() cannot subtract
        until("a renewal after more than the duration", || s.row("heartbeat_at > acquired_at + interval '8 s'") == "t").await;
        assert_eq!((lease.is_lost(), told.is_empty()), (None, true));
        let words = said.lock().expect("lines").join("\n");
        assert_eq!(words.matches("requests to hand over are not heard").count(), 1, "{words}");
        set("now() + interval '30 s'");
        assert_eq!(within_a_minute("the request", told.recv()).await.expect("a request").reason, "well?");
        lease.release().await.expect("the release");
    }),
];
