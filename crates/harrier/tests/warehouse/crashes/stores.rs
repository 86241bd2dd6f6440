//! The same upon real servers: files on S3 or HDFS, or a catalog in PostgreSQL, whose server is killed too.
//!
//! Of the steps of each that dies so many are tried as the constants say, about half a minute for a store;
//! from which on, the seed says, so that runs come to all of them.

use std::collections::BTreeSet;
use std::path::Path;
use std::time::Instant;

use harrier_launch::{absent, gang_slot};
use harrier_servers::{ACCESS_KEY, Hdfs, Postgres, REGION, S3, SECRET_KEY};

use super::crash_fixture::{PATIENCE, Place};
use crate::support::MARKER;

use super::sequences::Sequences;
use super::transaction::{Dying, Moments, Server, Then, Transaction};

/// How many steps are tried of one process, of each rank that dies, of the catalog's server, and of one of
/// S3, which comes back, stays away, or stays away from ranks.
const OF_PROCESS: usize = 8;
const OF_RANK: usize = 3;
const OF_CATALOG: usize = 8;
const OF_S3: usize = 5;
const OF_S3_AWAY: usize = 4;
const OF_S3_RANKS: usize = 2;
/// And of a question.
const OF_QUESTION: usize = 2;

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
    let _turn = gang_slot();
    every_process_dies(&Transaction::new(OnS3 { server, bucket: server.new_bucket() }));
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

    fn works(&self) -> bool {
        self.answers()
    }

    fn restart(&self) {
        Self::restart(self);
    }

    /// The catalog is somewhere else: what has committed has not failed.
    fn explains(&self, stderr: &str, has_happened: bool) -> bool {
        !has_happened && stderr.contains("ERROR 58030") && stderr.contains(&self.endpoint())
    }
}

#[test]
fn s3_dies_at_every_step_of_a_transaction() {
    let Some(server) = S3::dedicated() else { return };
    // It ends with the process, as every server of the tests does.
    let server: &'static S3 = Box::leak(Box::new(server));
    let _turn = gang_slot();
    let transaction = Transaction::new(OnS3 { server, bucket: server.new_bucket() });
    let dying = |then, rank| Dying::Server { server, then, rank };
    transaction.dies(dying(Then::ComesBack, None), leaving(OF_S3)).expect("it needs no launcher");
    transaction.dies(dying(Then::StaysAway, None), leaving(OF_S3_AWAY)).expect("it needs no launcher");
    for then in [Then::ComesBack, Then::StaysAway] {
        transaction.answers(server, then, 0, OF_QUESTION);
    }
    // A rank that writes, and does not know the catalog.
    if let Err(reason) = transaction.dies(dying(Then::StaysAway, Some(1)), leaving(OF_S3_RANKS)) {
        absent(&reason);
    }
}

struct OnHdfs {
    server: &'static Hdfs,
    /// Of one test.
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
fn somebody_dies_at_every_step_of_a_transaction_on_hdfs() {
    let Some(server) = Hdfs::shared() else { return };
    let _turn = gang_slot();
    every_process_dies(&Transaction::new(OnHdfs { server, folder: "/crashes" }));
}

/// What of HDFS knows the names of files.
struct NameNode(&'static Hdfs);

/// What has their bytes.
struct DataNode(&'static Hdfs);

/// Their places among the ports.
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

    fn works(&self) -> bool {
        self.0.works()
    }

    fn restart(&self) {
        self.0.start_namenode();
    }

    fn explains(&self, stderr: &str, has_happened: bool) -> bool {
        !has_happened && is_of_hdfs(self.0, stderr)
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

    fn works(&self) -> bool {
        self.0.works()
    }

    fn restart(&self) {
        self.0.start_datanode();
    }

    fn explains(&self, stderr: &str, has_happened: bool) -> bool {
        !has_happened && is_of_hdfs(self.0, stderr)
    }
}

fn is_of_hdfs(server: &Hdfs, stderr: &str) -> bool {
    stderr.contains("ERROR 58030") && stderr.contains(&server.url())
}

/// A NameNode takes many seconds to start: a few moments stand for all steps. What is written has to wait for
/// one that is gone before the first file and when all of them are there, whoever dies in the middle of a
/// file costs that file, and who is not there after the commit leaves one.
#[test]
fn hdfs_dies_at_chosen_steps_of_a_transaction() {
    let Some(server) = Hdfs::dedicated() else { return };
    let server: &'static Hdfs = Box::leak(Box::new(server));
    let _turn = gang_slot();
    let transaction = Transaction::new(OnHdfs { server, folder: "/deaths" });
    let (namenode, datanode) = (NameNode(server), DataNode(server));
    let of = |server, then| Dying::Server { server, then, rank: None };
    let of_namenode = |then| of(&namenode as &dyn Server, then);
    let of_datanode = |then| of(&datanode as &dyn Server, then);
    let steps = transaction.steps(of_namenode(Then::ComesBack)).expect("it needs no launcher");
    let (names, bytes) = (Moments::of(&steps, NAMENODE), Moments::of(&steps, DATANODE));
    let (mut died, mut waited) = (0, 0);
    for (dying, step) in [
        (of_datanode(Then::ComesBack), bytes.middle),
        (of_datanode(Then::StaysAway), bytes.first),
        (of_datanode(Then::StaysAway), bytes.middle),
        (of_namenode(Then::ComesBack), names.first),
        (of_namenode(Then::StaysAway), names.middle),
        (of_namenode(Then::ComesBack), names.committing),
        (of_namenode(Then::StaysAway), names.removing),
    ] {
        let outcome = transaction.dies_at(dying, step, steps.len()).expect("it needs no launcher");
        println!("{}, step {step} of {}: {outcome:?}", dying.name(), steps.len());
        died += usize::from(outcome.has_died);
        waited += usize::from(outcome.has_happened && dying.comes_back());
    }
    // A step may be beyond the last one of its run.
    assert!(died >= 5, "{died} died");
    assert!(waited > 0, "nothing has waited for a server");
    transaction.answers(&datanode, Then::ComesBack, DATANODE, 1);
    transaction.answers(&datanode, Then::StaysAway, DATANODE, 1);
    transaction.answers(&namenode, Then::ComesBack, NAMENODE, 1);
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
    let Some(server) = Postgres::dedicated() else { return };
    let server: &'static Postgres = Box::leak(Box::new(server));
    let _turn = gang_slot();
    let transaction = Transaction::new(InPostgres { server, database: server.new_database() });
    every_process_dies(&transaction);
    let dying = Dying::Server { server, then: Then::ComesBack, rank: None };
    transaction.dies(dying, leaving(OF_CATALOG)).expect("it needs no launcher");
    let sequences = Sequences::new(InPostgres { server, database: server.new_database() });
    sequences.die(Dying::Process, OF_PROCESS).expect("it needs no launcher");
    sequences.die(dying, OF_CATALOG).expect("it needs no launcher");
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

    fn works(&self) -> bool {
        self.answers()
    }

    fn restart(&self) {
        Self::restart(self);
    }

    /// 40003 says that nobody knows.
    fn explains(&self, stderr: &str, has_happened: bool) -> bool {
        !has_happened || stderr.contains("ERROR 40003")
    }
}
