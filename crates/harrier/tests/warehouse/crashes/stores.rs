//! Crash tests on real servers: files on S3 or HDFS, or a catalog in PostgreSQL, with kills of the servers
//! too.
//!
//! The constants set the number of steps that are tried for each victim, about half a minute per store; the
//! seed sets the first step, so that repeated runs cover all of them.

use std::collections::BTreeSet;
use std::path::Path;
use std::time::Instant;

use harrier_launch::{absent, gang_slot};
use harrier_servers::{ACCESS_KEY, Hdfs, Postgres, REGION, S3, SECRET_KEY};

use super::crash_fixture::{Place, TIMEOUT};
use crate::support::MARKER;

use super::sequences::Sequences;
use super::transaction::{Moments, Server, Then, Transaction, Victim};

/// Steps tried of one process, of each crashing rank, of the catalog's server, and of an S3 server that
/// restarts, stays down, or stays down for ranks.
const OF_PROCESS: usize = 8;
const OF_RANK: usize = 3;
const OF_CATALOG: usize = 8;
const OF_S3: usize = 5;
const OF_S3_AWAY: usize = 4;
const OF_S3_RANKS: usize = 2;
/// Steps tried of a query.
const OF_QUESTION: usize = 2;

/// Interval that leaves `steps_to_try` steps.
fn interval_for(tried: usize) -> impl Fn(usize) -> usize {
    move |steps| steps.div_ceil(tried)
}

/// Crashes a process, and two ranks.
fn crash_every_process(transaction: &Transaction) {
    transaction.crash_at_steps(Victim::Process, interval_for(OF_PROCESS)).expect("it needs no launcher");
    for rank in [0, 2] {
        if let Err(reason) = transaction.crash_at_steps(Victim::Rank(rank), interval_for(OF_RANK)) {
            return absent(&reason);
        }
    }
}

fn names(paths: &[String]) -> BTreeSet<String> {
    let names = paths.iter().map(|path| path.rsplit('/').next().unwrap_or(path).to_string());
    names.filter(|name| name != MARKER).collect()
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
        // Uploads take space too, and nothing references them.
        files.extend(
            (0..self.server.uploads(&self.bucket)).map(|number| format!("unfinished upload {number}")),
        );
        files
    }
}

#[test]
fn crash_at_every_step_of_a_transaction_on_s3() {
    let Some(server) = S3::shared_instance() else { return };
    let _turn = gang_slot();
    crash_every_process(&Transaction::new(OnS3 { server, bucket: server.new_bucket() }));
}

impl Server for S3 {
    fn name(&self) -> &'static str {
        "the server of S3"
    }

    fn pid(&self) -> Option<u32> {
        Self::pid(self)
    }

    fn is_up(&self) -> bool {
        self.listens()
    }

    fn is_responding(&self) -> bool {
        self.answers()
    }

    fn restart(&self) {
        Self::restart(self);
    }

    /// The catalog is on another server, so a committed statement has not failed.
    fn is_expected_error(&self, stderr: &str, has_happened: bool) -> bool {
        !has_happened && stderr.contains("ERROR 58030") && stderr.contains(&self.endpoint())
    }
}

#[test]
fn s3_crash_at_every_step_of_a_transaction() {
    let Some(server) = S3::start_dedicated() else { return };
    // It is stopped with the process, as every server of the tests.
    let server: &'static S3 = Box::leak(Box::new(server));
    let _turn = gang_slot();
    let transaction = Transaction::new(OnS3 { server, bucket: server.new_bucket() });
    let victim = |then, rank| Victim::Server { server, then, rank };
    transaction
        .crash_at_steps(victim(Then::ComesBack, None), interval_for(OF_S3))
        .expect("it needs no launcher");
    transaction
        .crash_at_steps(victim(Then::StaysAway, None), interval_for(OF_S3_AWAY))
        .expect("it needs no launcher");
    for then in [Then::ComesBack, Then::StaysAway] {
        transaction.query_during_crashes(server, then, 0, OF_QUESTION);
    }
    // A rank that writes, without access to the catalog.
    if let Err(reason) =
        transaction.crash_at_steps(victim(Then::StaysAway, Some(1)), interval_for(OF_S3_RANKS))
    {
        absent(&reason);
    }
}

struct OnHdfs {
    server: &'static Hdfs,
    /// Folder of one test.
    folder: &'static str,
}

impl Place for OnHdfs {
    fn arguments(&self, _work: &Path) -> Vec<String> {
        vec!["--data".to_string(), format!("{}{}/", self.server.url(), self.folder)]
    }

    fn ports(&self) -> Vec<u16> {
        self.server.ports().to_vec()
    }

    fn files(&self, _work: &Path) -> BTreeSet<String> {
        names(&self.server.files(self.folder))
    }
}

#[test]
fn crash_at_every_step_of_a_transaction_on_hdfs() {
    let Some(server) = Hdfs::shared_instance() else { return };
    let _turn = gang_slot();
    crash_every_process(&Transaction::new(OnHdfs { server, folder: "/crashes" }));
}

/// The HDFS server with the names of files.
struct NameNode(&'static Hdfs);

/// The HDFS server with the contents.
struct DataNode(&'static Hdfs);

/// Their index in the list of ports.
const NAMENODE: usize = 0;
const DATANODE: usize = 1;

impl Server for NameNode {
    fn name(&self) -> &'static str {
        "the NameNode"
    }

    fn pid(&self) -> Option<u32> {
        self.0.namenode_pid()
    }

    fn is_up(&self) -> bool {
        self.0.is_up()
    }

    fn is_responding(&self) -> bool {
        self.0.works()
    }

    fn restart(&self) {
        self.0.start_namenode();
    }

    fn is_expected_error(&self, stderr: &str, has_happened: bool) -> bool {
        !has_happened && names_hdfs(self.0, stderr)
    }
}

impl Server for DataNode {
    fn name(&self) -> &'static str {
        "the DataNode"
    }

    fn pid(&self) -> Option<u32> {
        self.0.datanode_pid()
    }

    fn is_up(&self) -> bool {
        self.0.is_up()
    }

    fn is_responding(&self) -> bool {
        self.0.works()
    }

    fn restart(&self) {
        self.0.start_datanode();
    }

    fn is_expected_error(&self, stderr: &str, has_happened: bool) -> bool {
        !has_happened && names_hdfs(self.0, stderr)
    }
}

fn names_hdfs(server: &Hdfs, stderr: &str) -> bool {
    stderr.contains("ERROR 58030") && stderr.contains(&server.url())
}

/// A NameNode takes many seconds to start, so a few chosen steps represent all. Writes wait for a server that
/// is down before the first file and after the last one; a crash in the middle of a file costs that file; a
/// server that is down after the commit leaves an unreferenced file.
#[test]
fn hdfs_crash_at_chosen_steps_of_a_transaction() {
    let Some(server) = Hdfs::start_dedicated() else { return };
    let server: &'static Hdfs = Box::leak(Box::new(server));
    let _turn = gang_slot();
    let transaction = Transaction::new(OnHdfs { server, folder: "/deaths" });
    let (namenode, datanode) = (NameNode(server), DataNode(server));
    let of = |server, then| Victim::Server { server, then, rank: None };
    let of_namenode = |then| of(&namenode as &dyn Server, then);
    let of_datanode = |then| of(&datanode as &dyn Server, then);
    let steps = transaction.steps(of_namenode(Then::ComesBack)).expect("it needs no launcher");
    let (names, bytes) = (Moments::of(&steps, NAMENODE), Moments::of(&steps, DATANODE));
    let (mut died, mut waited) = (0, 0);
    for (victim, step) in [
        (of_datanode(Then::ComesBack), bytes.middle),
        (of_datanode(Then::StaysAway), bytes.first),
        (of_datanode(Then::StaysAway), bytes.middle),
        (of_namenode(Then::ComesBack), names.first),
        (of_namenode(Then::StaysAway), names.middle),
        (of_namenode(Then::ComesBack), names.committing),
        (of_namenode(Then::StaysAway), names.removing),
    ] {
        let outcome = transaction.crash_at(victim, step, steps.len()).expect("it needs no launcher");
        println!("{}, step {step} of {}: {outcome:?}", victim.name(), steps.len());
        died += usize::from(outcome.has_died);
        waited += usize::from(outcome.has_happened && victim.is_restarted());
    }
    // A step may be beyond the end of its run.
    assert!(died >= 5, "{died} died");
    assert!(waited > 0, "nothing has waited for a server");
    transaction.query_during_crashes(&datanode, Then::ComesBack, DATANODE, 1);
    transaction.query_during_crashes(&datanode, Then::StaysAway, DATANODE, 1);
    transaction.query_during_crashes(&namenode, Then::ComesBack, NAMENODE, 1);
}

/// Catalog in PostgreSQL, local files.
struct InPostgres {
    server: &'static Postgres,
    database: String,
}

impl InPostgres {
    fn saved_database(&self) -> String {
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

    fn save_external_state(&mut self) {
        self.settle();
        self.run(&format!("CREATE DATABASE {} TEMPLATE {}", self.saved_database(), self.database));
    }

    fn restore(&self) {
        self.run(&format!("DROP DATABASE {} WITH (FORCE)", self.database));
        self.run(&format!("CREATE DATABASE {} TEMPLATE {}", self.database, self.saved_database()));
    }

    /// PostgreSQL may execute a received COMMIT though its client has ended.
    fn settle(&self) {
        let sql = format!(
            "SELECT count(*) FROM pg_stat_activity WHERE datname = '{}' AND backend_type = 'client backend'",
            self.database
        );
        let deadline = Instant::now() + TIMEOUT;
        while self.run(&sql) != "0" {
            assert!(Instant::now() < deadline, "somebody uses the catalog still");
        }
    }
}

#[test]
fn crash_at_every_step_of_a_transaction_with_a_catalog_in_postgres() {
    let Some(server) = Postgres::start_dedicated() else { return };
    let server: &'static Postgres = Box::leak(Box::new(server));
    let _turn = gang_slot();
    let transaction = Transaction::new(InPostgres { server, database: server.new_database() });
    crash_every_process(&transaction);
    let victim = Victim::Server { server, then: Then::ComesBack, rank: None };
    transaction.crash_at_steps(victim, interval_for(OF_CATALOG)).expect("it needs no launcher");
    let sequences = Sequences::new(InPostgres { server, database: server.new_database() });
    sequences.crash_at_steps(Victim::Process, OF_PROCESS).expect("it needs no launcher");
    sequences.crash_at_steps(victim, OF_CATALOG).expect("it needs no launcher");
}

impl Server for Postgres {
    fn name(&self) -> &'static str {
        "the catalog's server"
    }

    fn pid(&self) -> Option<u32> {
        Self::pid(self)
    }

    fn is_up(&self) -> bool {
        self.listens()
    }

    fn is_responding(&self) -> bool {
        self.answers()
    }

    fn restart(&self) {
        Self::restart(self);
    }

    /// 40003: unknown outcome.
    fn is_expected_error(&self, stderr: &str, has_happened: bool) -> bool {
        !has_happened || stderr.contains("ERROR 40003")
    }
}
