//! HDFS NameNode failover: between statements and during one, in an orderly way and after a kill. A statement
//! continues with the other NameNode, or fails without effect.

use std::thread;

use harrier_servers::HdfsPair;
use harrier_testkit::session::{Configuration, Session};

use crate::warehouses::{on_ranks, one, run};

/// Rows of one statement, in several files.
const ROWS: u64 = 2000;

/// One process, then two ranks; two failovers each.
#[test]
fn namenode_failover() {
    let Some(pair) = HdfsPair::start() else { return };
    let folder = tempfile::tempdir().unwrap();
    let mut alone = Configuration::embedded()
        .with_warehouse(folder.path().join("warehouse"))
        .with_arguments(["--data".to_string(), format!("{}/lake/", pair.url())]);
    let configuration = pair.configuration().display().to_string();
    alone.environment.push(("HADOOP_CONF_DIR".to_string(), configuration));
    let _turn = harrier_launch::gang_slot();
    let mut active = 0;
    for (name, configuration) in [("one", Some(alone.clone())), ("ranks", on_ranks(&alone))] {
        let Some(configuration) = configuration else { continue };
        let mut session = Session::start(&configuration).unwrap();
        run(&mut session, &format!("CREATE TABLE {name} (v BIGINT, k BIGINT) PARTITION BY (k)"));
        let external = format!(
            "CREATE EXTERNAL TABLE {name}_e (v BIGINT, k BIGINT) STORED AS PARQUET PARTITIONED BY (k) \
             LOCATION '{}/{name}/'",
            pair.url()
        );
        run(&mut session, &external);
        let mut expected = [0; 2];
        let tables = [name.to_string(), format!("{name}_e")];
        for is_killed in [true, false] {
            for (table, rows) in tables.iter().zip(&mut expected) {
                run(&mut session, &insert(table));
                *rows += ROWS;
            }
            // During or before the next insert of each table.
            let outcome = thread::scope(|scope| {
                let statement = scope.spawn(|| tables.each_ref().map(|table| session.run(&insert(table))));
                fail_over(&pair, &mut active, is_killed);
                statement.join().unwrap()
            });
            for ((table, rows), outcome) in tables.iter().zip(&mut expected).zip(outcome) {
                *rows += if outcome.is_ok() { ROWS } else { 0 };
                let count = one(&mut session, &format!("SELECT count(*) FROM {table} WHERE v > 0"));
                assert_eq!(count, rows.to_string(), "{table}, {outcome:?}");
            }
            run(&mut session, &insert(&tables[0]));
            expected[0] += ROWS;
        }
        for table in &tables {
            run(&mut session, &format!("DROP TABLE {table}"));
        }
    }
}

fn insert(table: &str) -> String {
    format!("INSERT INTO {table} SELECT v, v % 5 FROM generate_series(1, {ROWS}) AS g(v)")
}

/// Makes the standby NameNode active, and the other one standby.
fn fail_over(pair: &HdfsPair, active: &mut usize, is_killed: bool) {
    let former = *active;
    *active = 1 - former;
    match is_killed {
        true => pair.stop(former),
        false => pair.make_standby(former),
    }
    pair.make_active(*active);
    if is_killed {
        pair.restart(former);
    }
}
