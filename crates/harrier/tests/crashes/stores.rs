//! The same upon real servers: files on S3 or HDFS, or a catalog in PostgreSQL, whose server is killed too.
//!
//! Of the steps of each that dies so many are tried as the constants say, about half a minute for a store; from which on, the seed says, so
//! that runs come to all of them.

use std::collections::BTreeSet;
use std::path::Path;
use std::time::Instant;

use harrier_launch::{absent, alone};
use harrier_servers::{ACCESS_KEY, Hdfs, Postgres, REGION, S3, SECRET_KEY};

use crate::ground::{PATIENCE, Place};
use crate::transaction::{Dying, Transaction};

/// How many steps are tried of one process, of each rank that dies, and of the catalog's server.
const OF_PROCESS: usize = 8;
const OF_RANK: usize = 3;
const OF_CATALOG: usize = 8;

/// One in as many steps as leaves `tried` of them.
fn leaving(tried: usize) -> impl Fn(usize) -> usize {
    move |steps| steps.div_ceil(tried)
}

/// A process, and two ranks.
fn every_process_dies(transaction: &Transaction) {
    transaction.dies(Dying::Process, leaving(OF_PROCESS)).expect("it needs no launcher");
    for rank in [0, 2] {
        if let Err(reason) = transaction.dies(Dying::Rank(rank), leaving(OF_RANK)) {
            return absent(&reason);
        }
    }
}

fn names(paths: &[String]) -> BTreeSet<String> {
    paths.iter().map(|path| path.rsplit('/').next().unwrap_or(path).to_string()).collect()
}

struct OnS3 {
    server: &'static S3,
    bucket: String,
}

impl Place for OnS3 {
    fn arguments(&self, _work: &Path) -> Vec<String> {
        vec!["--data".to_string(), format!("s3://{}/lake/", self.bucket)]
    }

    fn environment(&self) -> Vec<(&'static str, String)> {
        vec![
            ("AWS_ACCESS_KEY_ID", ACCESS_KEY.to_string()),
            ("AWS_SECRET_ACCESS_KEY", SECRET_KEY.to_string()),
            ("AWS_REGION", REGION.to_string()),
            ("AWS_ENDPOINT_URL", self.server.endpoint()),
            ("AWS_ALLOW_HTTP", "true".to_string()),
        ]
    }

    fn ports(&self) -> Vec<u16> {
        vec![self.server.address().port()]
    }

    fn files(&self, _work: &Path) -> BTreeSet<String> {
        let mut files = names(&self.server.objects(&self.bucket));
        // They take room too, and nobody refers to them.
        files.extend(
            (0..self.server.uploads(&self.bucket)).map(|number| format!("unfinished upload {number}")),
        );
        files
    }
}

#[test]
fn somebody_dies_at_every_step_of_a_transaction_on_s3() {
    let Some(server) = S3::shared() else { return };
    let _turn = alone();
    every_process_dies(&Transaction::new(OnS3 { server, bucket: server.new_bucket() }));
}

struct OnHdfs {
    server: &'static Hdfs,
    ports: [u16; 2],
}

/// Of HDFS.
const FOLDER: &str = "/crashes";

impl Place for OnHdfs {
    fn arguments(&self, _work: &Path) -> Vec<String> {
        vec!["--data".to_string(), format!("{}{FOLDER}/", self.server.url())]
    }

    fn ports(&self) -> Vec<u16> {
        self.ports.to_vec()
    }

    fn files(&self, _work: &Path) -> BTreeSet<String> {
        names(&self.server.files(FOLDER))
    }
}

#[test]
fn somebody_dies_at_every_step_of_a_transaction_on_hdfs() {
    let Some(server) = Hdfs::shared() else { return };
    let _turn = alone();
    every_process_dies(&Transaction::new(OnHdfs { server, ports: server.ports() }));
}

/// Its files are local.
struct InPostgres {
    server: &'static Postgres,
    database: String,
}

impl InPostgres {
    fn kept(&self) -> String {
        format!("{}_kept", self.database)
    }

    fn run(&self, sql: &str) -> String {
        self.server.psql("postgres", sql)
    }
}

impl Place for InPostgres {
    fn arguments(&self, work: &Path) -> Vec<String> {
        let data = work.join("warehouse/data").display().to_string();
        vec!["--catalog".to_string(), self.catalog(work), "--data".to_string(), data]
    }

    fn ports(&self) -> Vec<u16> {
        vec![self.server.port()]
    }

    fn catalog(&self, _work: &Path) -> String {
        self.server.url(&self.database)
    }

    fn keep(&mut self) {
        self.settle();
        self.run(&format!("CREATE DATABASE {} TEMPLATE {}", self.kept(), self.database));
    }

    fn restore(&self) {
        self.run(&format!("DROP DATABASE {} WITH (FORCE)", self.database));
        self.run(&format!("CREATE DATABASE {} TEMPLATE {}", self.database, self.kept()));
    }

    /// A server goes on with a commit that it has heard of, though nobody waits for it any more.
    fn settle(&self) {
        let sql = format!(
            "SELECT count(*) FROM pg_stat_activity WHERE datname = '{}' AND backend_type = 'client backend'",
            self.database
        );
        let deadline = Instant::now() + PATIENCE;
        while self.run(&sql) != "0" {
            assert!(Instant::now() < deadline, "somebody uses the catalog still");
        }
    }
}

#[test]
fn somebody_dies_at_every_step_of_a_transaction_with_a_catalog_in_postgres() {
    let Some(server) = Postgres::shared() else { return };
    let _turn = alone();
    let transaction = Transaction::new(InPostgres { server, database: server.new_database() });
    every_process_dies(&transaction);
    transaction.dies(Dying::Catalog(server), leaving(OF_CATALOG)).expect("it needs no launcher");
}
