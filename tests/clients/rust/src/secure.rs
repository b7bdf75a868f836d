//! TLS, and who the client is.

use leasehold::{Certificate, Client, ClientTlsConfig, Error, Identity};
use serde_json::{Value, json};

use crate::case;
use crate::kit::*;

/// tests/clients/secure.py: a daemon with TLS and access rules, and files to show it.
pub fn secured() -> Value {
    ask("secure", json!({}))
}

fn read(facts: &Value, name: &str) -> String {
    std::fs::read_to_string(facts[name].as_str().expect("a path")).expect("a file")
}

pub fn tls(facts: &Value, authority: &str) -> ClientTlsConfig {
    ClientTlsConfig::new().ca_certificate(Certificate::from_pem(read(facts, authority)))
}

/// A client that shows the token in a file.
pub fn with_token(facts: &Value, token: &str, tls: ClientTlsConfig) -> Client {
    let builder = Client::builder().tls(tls).token_file(facts[token].as_str().expect("a path"));
    builder.connect(facts["target"].as_str().expect("a target")).expect("a client")
}

async fn holds_as(s: &Site, client: Client, principal: &str) {
    let row = |columns: &str| s.psql(&format!("select {columns} from leasehold.scope where namespace = 'secure' and key = '{}'", s.key));
    let lease = client.lease("secure", &s.key).duration(seconds(9)).acquire().await.expect("the lease");
    assert_eq!(row("principal, token"), format!("{principal}|{}", lease.token()));
    until("two heartbeats", || row("heartbeats >= 2") == "t").await;
    lease.release().await.expect("the release");
    assert_eq!(row("state, last_outcome"), "free|ok");
}

/// On a slow machine the first handshake may pass its time before it fails.
async fn is_unavailable(s: &Site, client: Client, words: &str) {
    for _ in 0..10 {
        match client.lease("secure", &s.key).acquire().await {
            Err(Error::Unavailable(trouble)) if trouble.message.contains(words) => return,
            Err(Error::Unavailable(trouble)) => println!("{}", trouble.message),
            other => panic!("{other:?}"),
        }
    }
    panic!("nothing of {words}");
}

async fn denied(s: &Site, client: Client, reason: &str) -> String {
    match client.lease("secure", &s.key).acquire().await {
        Err(Error::Denied { reason: given, message }) if given == reason => message,
        other => panic!("{other:?}"),
    }
}

pub const CASES: &[crate::Case] = &[
    case!(certificate_is_the_principal, "grpc", s => {
        let facts = secured();
        let tls = tls(&facts, "ca").identity(Identity::from_pem(read(&facts, "cert"), read(&facts, "key")));
        let client = Client::builder().tls(tls).connect(facts["target"].as_str().expect("a target")).expect("a client");
        holds_as(&s, client, "dns:worker").await;
    }),
    case!(token_is_the_principal, "grpc", s => {
        let facts = secured();
        holds_as(&s, with_token(&facts, "worker", tls(&facts, "ca")), "token:worker").await;
    }),
    case!(wrong_authority_is_named, "grpc", s => {
        let facts = secured();
        is_unavailable(&s, with_token(&facts, "worker", tls(&facts, "other_ca")), "certificate").await;
    }),
    case!(wrong_server_name_is_named, "grpc", s => {
        let facts = secured();
        is_unavailable(&s, with_token(&facts, "worker", tls(&facts, "ca").domain_name("leases.example")), "leases.example").await;
    }),
    case!(revoked_token_is_denied, "grpc", s => {
        let facts = secured();
        denied(&s, with_token(&facts, "revoked", tls(&facts, "ca")), "UNAUTHENTICATED").await;
    }),
    case!(missing_right_is_denied, "grpc", s => {
        let facts = secured();
        let words = denied(&s, with_token(&facts, "stranger", tls(&facts, "ca")), "ACCESS_DENIED").await;
        assert!(words.contains("token:stranger") && words.contains("right lease"), "{words}");
    }),
];
