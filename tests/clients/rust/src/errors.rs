//! Errors, and arguments out of bounds.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use leasehold::{Client, Error};
use serde_json::Value;

use crate::case;
use crate::kit::*;

fn tables() -> Value {
    let text = std::fs::read_to_string(std::env::var("LEASEHOLD_CASES").expect("cases.json")).expect("cases.json");
    // A lone surrogate is no string of Rust's.
    serde_json::from_str(&text.replace("\"\\ud800\"", "null")).expect("JSON")
}

pub const CASES: &[crate::Case] = &[
    case!(denied_is_a_type, "grpc sql pooler", s => {
        s.psql("select leasehold.set_policy('rust-frozen', frozen => true)");
        let client = s.client();
        loop {
            match client.lease("rust-frozen", &s.key).acquire().await {
                Err(Error::Denied { reason, .. }) => break assert_eq!(reason, "NAMESPACE_FROZEN"),
                Ok(_) => tokio::time::sleep(Duration::from_millis(100)).await, // the daemon follows within a second
                other => panic!("{other:?}"),
            }
        }
    }),
    case!(unavailable_is_a_type, "grpc sql", s => {
        let client = s.made(Client::builder().patience(Duration::from_millis(300)), &s.nowhere());
        let failed = s.lease(&client).acquire().await;
        assert!(matches!(failed, Err(Error::Unavailable(_))), "{failed:?}");
    }),
    case!(invalid_argument_is_told, "grpc sql pooler", s => {
        match s.lease(&s.client()).duration(Duration::from_millis(1)).acquire().await {
            Err(Error::InvalidArgument(wrong)) => assert!(wrong.field == "duration" && !wrong.bound.is_empty(), "{wrong:?}"),
            other => panic!("{other:?}"),
        }
    }),
    case!(wrong_arguments_are_named, "grpc sql", s => {
        let client = s.client();
        let mut seen = 0;
        for row in tables()["wrong_arguments"].as_array().expect("an array") {
            let (argument, value) = (row["argument"].as_str().expect("a name"), &row["value"]);
            if row["typed"] == false || value.as_i64() < Some(0) && value.is_number() {
                continue; // it does not compile
            }
            let (text, number) = (value.as_str().unwrap_or_default(), value.as_u64().unwrap_or_default());
            let lease = s.lease(&client);
            let (field, lease) = match argument {
                "namespace" => (argument, client.lease(text, &s.key)),
                "key" => (argument, client.lease("cases", text)),
                "owner" => (argument, lease.owner(text)),
                "duration" => (argument, lease.duration(seconds(number))),
                "wait" => (argument, lease.wait(seconds(number))),
                "at_least" => (argument, lease.at_least(seconds(number))),
                "units" => (argument, lease.shared(number as u32)),
                "timeout" => ("patience", lease),
                _ => panic!("not known: {argument}"),
            };
            let result = match field {
                "patience" => connect(Client::builder().patience(seconds(number)), &s.target).map(drop),
                _ => lease.acquire().await.map(drop),
            };
            let Err(Error::InvalidArgument(wrong)) = result else { panic!("{row}: {result:?}") };
            let shown = match field {
                "namespace" | "key" | "owner" => format!("{text:?}"),
                "units" => number.to_string(),
                _ => format!("{:?}", seconds(number)),
            };
            assert_eq!(wrong.message, format!("{field} must be {}, not {shown}", wrong.bound));
            assert_eq!(wrong.field, field);
            seen += 1;
        }
        assert!(seen >= 9, "{seen}");
        assert_eq!(s.row("state"), "");
    }),
    case!(bounds_are_told_before_any_request, "grpc sql", s => {
        let path = std::path::PathBuf::from(std::env::var("LEASEHOLD_CASES").expect("cases.json")).with_file_name("../lib/bounds.json");
        let rows: Vec<BTreeMap<String, Value>> = serde_json::from_str(&std::fs::read_to_string(path).expect("bounds.json")).expect("JSON");
        let client = s.made(Client::builder().patience(Duration::from_millis(1)), &s.nowhere());
        for row in &rows {
            let value = row["value"].as_str().expect("text").repeat(row["times"].as_u64().expect("a number") as usize);
            let kind = row["kind"].as_str().expect("a kind");
            if !matches!(kind, "namespace" | "key" | "owner" | "label_name" | "label_value") {
                continue;
            }
            let namespace = if kind == "namespace" { &value } else { "cases" };
            let declared = client.declare(namespace, |lease| match kind {
                "owner" => lease.owner(&value),
                "label_name" => lease.label(&value, ""),
                "label_value" => lease.label("n", &value),
                _ => lease,
            });
            assert_eq!(declared.is_err(), kind != "key" && !row["words"].is_null(), "{row:?}");
            let result = match declared {
                Ok(declared) => declared.lease(if kind == "key" { &value } else { "any" }).acquire().await.map(drop),
                Err(error) => Err(error),
            };
            match (row["words"].as_str(), result) {
                (None, Err(Error::Unavailable(_))) => {}
                (Some(words), Err(Error::InvalidArgument(wrong))) => assert_eq!(wrong.message, words),
                (_, other) => panic!("{row:?}: {other:?}"),
            }
        }
    }),
    case!(sqlstates_are_told_alike, "sql pooler", s => {
        let asked = Arc::new(AtomicU32::new(0));
        let its = asked.clone();
        let client = s.made(Client::builder().strategy(Arc::new(move |_| {
            its.fetch_add(1, Ordering::Relaxed);
            None
        })), &s.target);
        for (state, expected) in tables()["sqlstates"].as_object().expect("an object") {
            let (told, retries) = match client.lease("cases", &format!("sqlstate {state}")).acquire().await {
                Err(Error::Lost(_)) => ("Lost".into(), 0),
                Err(Error::InvalidArgument(_)) => ("InvalidArgument".into(), 0),
                Err(Error::Denied { reason, .. }) => (format!("Denied {reason}"), 0),
                Err(Error::Unavailable(trouble)) => (format!("Unavailable {}", trouble.reason), 1),
                other => panic!("{state}: {other:?}"),
            };
            assert_eq!((told.as_str(), asked.swap(0, Ordering::Relaxed)), (expected.as_str().expect("text"), retries), "{state}");
        }
    }),
    case!(token_goes_to_loopback_only, "grpc", s => {
        for (address, is_near) in tables()["token_addresses"].as_object().expect("an object") {
            for target in [address.clone(), format!("{},{address}", s.target)] {
                match Client::builder().token_file("/nonexistent").connect(&target) {
                    Ok(_) => assert_eq!(is_near, true, "{target}"),
                    Err(Error::InvalidArgument(wrong)) => {
                        assert_eq!((is_near, wrong.field.as_str()), (&Value::Bool(false), "target"), "{}", wrong.message);
                        assert!(wrong.message.starts_with(&format!("target {address:?}: a token is sent over TLS")), "{}", wrong.message);
                    }
                    Err(other) => panic!("{other:?}"),
                }
            }
        }
    }),
];
