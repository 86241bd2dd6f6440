//! `harrier bench serve` end to end at minimum size: every load on a server without a gang, compared with
//! another server, and with one that does not start.

use std::fs;
use std::process::Command;

use serde_json::Value;

use crate::command::{BINARY, Folder, Run};

/// A peer as defined by `bench/peers/server.py`: Harrier again, over the files.
const PEER: &str = r#"
folder=$HARRIER_BENCH_FOLDER
mkdir "$folder/tmp"
TMPDIR=$folder/tmp "$HARRIER_BENCH_BINARY" serve --listen 127.0.0.1:0 --http off --launcher none --warehouse "$folder/warehouse" \
    >"$folder/out" </dev/null &
server=$!
trap 'kill $server; wait $server' EXIT
until port=$(sed -n 's/^ready: psql -h 127.0.0.1 -p \([0-9]*\) .*/\1/p' "$folder/out") && [ -n "$port" ]; do sleep 0.05; done
for table in customer lineitem nation orders part partsupp region supplier; do
    echo "CREATE VIEW $table AS SELECT * FROM '$HARRIER_BENCH_DATA/$table/';"
done >"$folder/views.sql"
"$HARRIER_BENCH_BINARY" sql --warehouse "$folder/warehouse" -f "$folder/views.sql" >&2 || exit 1
echo "{\"engine\": \"another\", \"protocol\": \"postgresql\", \"port\": $port, \"user\": \"$(id -un)\", \"database\": \"warehouse\"}"
while read -r _; do :; done
"#;

#[test]
fn servers_are_compared() {
    let folder = Folder::new();
    folder.write("peer.sh", PEER);
    let run: Run = Command::new(BINARY)
        .args(["bench", "serve", "--scale", "0.01", "--ranks", "1", "--clients", "1,3", "--seconds", "0.3"])
        .args([
            "--rounds",
            "1",
            "--queries",
            "1,6",
            "--idle",
            "5",
            "--streams",
            "1",
            "--kills",
            "0",
            "--seed",
            "7",
        ])
        .args(["--peer", "another=sh peer.sh", "--peer", "absent=sh -c 'exit 3'"])
        .args(["--json", "out/a.json", "--chart", "out/a.svg"])
        .current_dir(folder.path())
        .output()
        .unwrap()
        .into();
    assert_eq!(run.status, Some(0), "{run:?}");
    let result: Value =
        serde_json::from_str(&fs::read_to_string(folder.path().join("out/a.json")).unwrap()).unwrap();
    let all = |value: &Value, key: &str| value[key].as_array().unwrap().clone();
    let names: Vec<Value> = all(&result, "systems").iter().map(|system| system["name"].clone()).collect();
    assert_eq!(names, ["harrier", "another"]);
    let problems = all(&result, "problems");
    assert!(problems.len() == 1 && problems[0]["of"] == "absent", "{problems:?}");
    assert_eq!(all(&result, "queries"), ["q01", "q06"]);
    let cells = all(&result, "cells");
    assert_eq!(cells.len(), 12, "{cells:?}");
    for system in cells.iter().flat_map(|cell| all(cell, "systems")) {
        assert!(system["throughput"].as_f64().is_some(), "{cells:#?}");
        assert_eq!(system["problem"], Value::Null);
    }
    // Acknowledged rows were counted after each window.
    let inserts = cells.iter().filter(|cell| cell["load"] == "insert").flat_map(|cell| all(cell, "systems"));
    let acknowledged_counts: Vec<u64> =
        inserts.map(|system| system["rounds"][0]["acknowledged"].as_u64().unwrap()).collect();
    assert!(acknowledged_counts.len() == 4 && acknowledged_counts.iter().all(|rows| *rows > 0), "{cells:#?}");
    for streamed in all(&result, "streaming") {
        assert!(streamed["problem"] != Value::Null || streamed["rows"] == 60_175, "{streamed}");
    }
    assert_eq!(result["idle"]["connections"], 5);
    assert!(fs::read_to_string(folder.path().join("out/a.svg")).unwrap().contains("<polyline"));
    assert!(run.stdout.contains("a point lookup, median: "), "{run:?}");
}

#[test]
fn invalid_benchmark_options_are_refused() {
    let folder = Folder::new();
    for arguments in
        [&["--loads", "nosuch"][..], &["--clients", "0"], &["--seconds", "0"], &["--scale", "-1"]]
    {
        let run = folder.run(&[&["bench", "serve"], arguments].concat());
        assert_eq!(run.status, Some(2), "{arguments:?}: {run:?}");
    }
}
