//! Answers calls until none waits, as deploy/examples/async-calls/worker.py does: calls DATABASE [SERVER]. Without SERVER the leases are in SQL.

use std::time::Duration;

use leasehold::tokio_postgres::{self, Client as Db, NoTls};
use leasehold::{Client, Error, Lease, Outcome};

type Wrong = Box<dyn std::error::Error + Send + Sync>;

const WAITING: &str = "select id, request::text from calls.call where state = 'waiting' order by id limit 1";
const MARK: &str = "update calls.call set state = 'running', attempts = attempts + 1 where id = $1 and state = 'waiting'";
const DONE: &str = "update calls.call set state = 'done', response = to_jsonb($2::text) where id = $1";
const FASTER: &str = "another worker was faster, and has ended";

/// The oldest call that waits: its row is marked and its lease begins together, or neither. The client renews it from then on.
async fn take(client: &Client, db: &mut Db) -> Result<Option<(Lease, i64, String)>, Wrong> {
    while let Some(row) = db.query_opt(WAITING, &[]).await? {
        let (id, request): (i64, String) = (row.get(0), row.get(1));
        let lease = client.lease("calls", &id.to_string()).duration(Duration::from_secs(10));
        let taken = lease.acquire_in(db, async |tx, _| match tx.execute(MARK, &[&id]).await? {
            0 => Err(Wrong::from(FASTER)),
            _ => Ok(()),
        });
        match taken.await {
            Ok(lease) => return Ok(Some((lease, id, request))),
            Err(error) if error.to_string() == FASTER || matches!(error.downcast_ref(), Some(Error::Held(_))) => continue,
            Err(error) => return Err(error),
        }
    }
    Ok(None)
}

#[tokio::main]
async fn main() -> Result<(), Wrong> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let database = arguments.first().ok_or("usage: calls DATABASE [SERVER]")?;
    let client = match arguments.get(1) {
        Some(server) => Client::connect(server)?,
        None => Client::over(database.parse()?, NoTls)?,
    };
    let (mut db, connection) = tokio_postgres::connect(database, NoTls).await?;
    tokio::spawn(connection);
    while let Some((lease, id, request)) = take(&client, &mut db).await? {
        let response = lease.run(async { request.to_uppercase() }).await?; // the work
        let done = lease.release_in(&mut db, Outcome::success(), async |tx| Ok::<_, Wrong>(tx.execute(DONE, &[&id, &response]).await?));
        done.await?;
        println!("call {id}: {response}");
    }
    client.close().await;
    Ok(())
}
