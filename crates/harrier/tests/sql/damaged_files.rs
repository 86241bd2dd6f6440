//! Fuzzing of damaged files in every format: each statement returns rows or an error, without a panic, an
//! internal error, a hang, or more memory than a valid file needs.
//!
//! Small files, written here or taken from the SQL tests, are mutated at random: changed bytes, huge lengths,
//! missing or repeated parts. `HARRIER_SEED=17` starts with the mutation of seed 17, `HARRIER_MUTATIONS` sets
//! the mutations per file.

use std::fs;
use std::path::{Path, PathBuf};

use harrier_testkit::peak;
use harrier_testkit::session::{Configuration, LOST, RestartingSession};

/// Mutations per file without `HARRIER_MUTATIONS`.
const MUTATIONS: u64 = 8;

/// Memory limit of the process: its configured limit, code, and caches of libraries.
const BYTES_MAX: u64 = 1 << 30;

/// Columns of many types with NULLs.
const ROWS: &str = "SELECT v::int AS id, (v * 7919 % 1000)::bigint AS b, (v % 13)::smallint AS m, \
     CASE WHEN v % 5 > 0 THEN 'text ' || v % 17 END AS t, v::double precision / 3 AS d, \
     (v % 100)::decimal(9, 2) AS n, v % 3 = 0 AS f, DATE '2024-01-01' + (v % 400)::int AS day, \
     TIMESTAMP '2024-01-01' + v * INTERVAL '1 hour' AS at, CASE WHEN v % 4 > 0 THEN [v, NULL, v + 1] END AS l \
     FROM generate_series(1, 200) AS g(v)";

/// The same without lists, which some formats lack.
const FLAT_ROWS: &str = "SELECT v::int AS id, CASE WHEN v % 5 > 0 THEN 'a ''quoted''\n\"text\" ' || v % 17 END AS t, \
     v::double precision / 3 AS d, DATE '2024-01-01' + (v % 400)::int AS day FROM generate_series(1, 200) AS g(v)";

fn number(variable: &str) -> Option<u64> {
    let text = std::env::var(variable).ok()?;
    Some(text.parse().unwrap_or_else(|_| panic!("{variable}={text} is no number")))
}

/// SplitMix64.
fn next(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mut state_bits = *state;
    state_bits = (state_bits ^ (state_bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    state_bits = (state_bits ^ (state_bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    state_bits ^ (state_bits >> 31)
}

/// A number below `end`, which is not 0.
fn below(state: &mut u64, end: usize) -> usize {
    (next(state) % end as u64) as usize
}

/// Mutates a file by the seed; returns a description.
fn mutate(bytes: &mut Vec<u8>, seed: u64) -> String {
    let mut state = seed;
    if bytes.is_empty() {
        bytes.push(next(&mut state) as u8);
        return "a byte in an empty file".to_owned();
    }
    // Metadata is at the end or the beginning of a file.
    let length = bytes.len();
    let place = match below(&mut state, 4) {
        0 => below(&mut state, length.min(64)),
        1 => length - 1 - below(&mut state, length.min(512)),
        _ => below(&mut state, length),
    };
    match below(&mut state, 8) {
        0 => {
            bytes.truncate(place);
            format!("cut behind byte {place}")
        }
        1 => {
            let end = (place + 1 + below(&mut state, 16)).min(length);
            bytes.drain(place..end);
            format!("without bytes {place} to {end}")
        }
        2 => {
            let part = bytes[place..(place + 1 + below(&mut state, 64)).min(length)].to_vec();
            bytes.splice(place..place, part.iter().copied());
            format!("{} bytes twice at {place}", part.len())
        }
        3 | 4 => {
            let width = [1, 2, 4, 8][below(&mut state, 4)].min(length - place);
            let kind = below(&mut state, 4);
            for (at, byte) in bytes[place..place + width].iter_mut().enumerate() {
                *byte = match kind {
                    0 => 0xff,
                    1 => 0,
                    2 if at + 1 == width => 0x7f,
                    2 => 0xff,
                    _ if at + 1 == width => 0x80,
                    _ => 0,
                };
            }
            format!("an extreme number of {width} bytes at {place}")
        }
        _ => {
            let count = 1 + below(&mut state, 3);
            for at in 0..count {
                let place = if at == 0 { place } else { below(&mut state, length) };
                bytes[place] ^= 1 + below(&mut state, 255) as u8;
            }
            format!("{count} other bytes, the first at {place}")
        }
    }
}

/// SQLSTATEs for damaged files, or for missing columns of a query.
fn is_allowed(sqlstate: &str) -> bool {
    sqlstate.starts_with("22")
        || sqlstate.starts_with("54")
        || ["XX001", "0A000", "53200", "42701", "42703", "42804", "42883"].contains(&sqlstate)
}

/// Writes a file in every format and several variants, and adds those of the SQL tests.
fn files(session: &mut RestartingSession, folder: &Path) -> Vec<PathBuf> {
    let mut files = Vec::new();
    for (rows, name, options) in [
        (ROWS, "plain.parquet", "('format.compression' 'uncompressed')"),
        (ROWS, "zstd.parquet", "('format.compression' 'zstd(3)')"),
        (ROWS, "old.parquet", "('format.compression' 'gzip(6)', 'format.dictionary_enabled' 'false')"),
        (ROWS, "none.orc", "('format.compression' 'none')"),
        (ROWS, "zlib.orc", "('format.compression' 'zlib')"),
        (ROWS, "lz4.orc", "('format.compression' 'lz4')"),
        (ROWS, "null.avro", "('format.compression' 'null')"),
        (ROWS, "deflate.avro", "('format.compression' 'deflate')"),
        (ROWS, "snappy.avro", "('format.compression' 'snappy')"),
        (ROWS, "batches.arrow", "()"),
        (ROWS, "lines.json", "()"),
        (FLAT_ROWS, "rows.csv", "('format.has_header' 'true')"),
        (FLAT_ROWS, "gzip.csv.gz", "('format.compression' 'gzip', 'format.has_header' 'true')"),
        (FLAT_ROWS, "bzip2.csv.bz2", "('format.compression' 'bzip2', 'format.has_header' 'true')"),
        (FLAT_ROWS, "xz.csv.xz", "('format.compression' 'xz', 'format.has_header' 'true')"),
        (FLAT_ROWS, "zstd.json.zst", "('format.compression' 'zstd')"),
    ] {
        let file = folder.join(name);
        let options = if options == "()" { String::new() } else { format!(" OPTIONS {options}") };
        let format = name.split('.').nth(1).unwrap();
        let copy = format!("COPY ({rows}) TO '{}' STORED AS {format}{options}", file.display());
        session.run(&copy).unwrap_or_else(|error| panic!("{error} of {copy}"));
        files.push(file);
    }
    let data = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/slt/data");
    for kind in ["arrow", "avro", "parquet"] {
        let mut own: Vec<PathBuf> = fs::read_dir(data.join(kind))
            .unwrap()
            .map(|entry| entry.unwrap().path())
            .filter(|path| path.is_file() && path.metadata().unwrap().len() < 100_000)
            .collect();
        own.sort();
        files.extend(own);
    }
    files
}

struct Oracle {
    session: RestartingSession,
    found: Vec<String>,
}

impl Oracle {
    /// Reads a file in several ways, and records violations.
    fn check(&mut self, file: &Path, what: &str) {
        let name = file.display();
        for sql in [
            format!("SELECT * FROM '{name}' LIMIT 1000"),
            format!("SELECT count(*) FROM '{name}'"),
            format!("SELECT id, t FROM '{name}' WHERE id > 50 AND t < 'text 3' LIMIT 1000"),
        ] {
            let before = self.session.stderr().len();
            if let Err(error) = self.session.run(&sql)
                && !is_allowed(&error.sqlstate)
            {
                self.found.push(format!("{what}: {error} of {sql}"));
                if error.sqlstate == LOST {
                    continue;
                }
            }
            let log_text = self.session.stderr();
            if log_text[before.min(log_text.len())..].contains("panic") {
                self.found.push(format!("{what}: {} of {sql}", log_text[before..].trim()));
            }
            if let Some(bytes) = self.session.id().and_then(peak::bytes)
                && bytes > BYTES_MAX
            {
                self.found.push(format!("{what}: {bytes} bytes of memory of {sql}"));
            }
        }
    }

    fn finish(self) {
        assert!(self.found.is_empty(), "{} of them:\n{}", self.found.len(), self.found.join("\n"));
    }
}

fn oracle() -> Oracle {
    let configuration = Configuration::embedded().with_memory("256MiB");
    Oracle { session: RestartingSession::new(configuration, vec![]), found: Vec::new() }
}

#[test]
fn mutated_files_give_rows_or_an_error() {
    let folder = tempfile::tempdir().unwrap();
    let mut oracle = oracle();
    let files = files(&mut oracle.session, folder.path());
    let first = number("HARRIER_SEED").unwrap_or(1);
    let count = number("HARRIER_MUTATIONS").unwrap_or(MUTATIONS);
    println!("HARRIER_SEED={first} HARRIER_MUTATIONS={count}");
    for file in &files {
        let good = fs::read(file).unwrap();
        let name = file.file_name().unwrap().to_str().unwrap();
        for seed in first..first + count {
            let mut bytes = good.clone();
            // Different files are damaged in different places.
            let of_name = name.bytes().fold(seed, |hash, byte| hash.wrapping_mul(31) + u64::from(byte));
            let how = mutate(&mut bytes, of_name);
            // Caches identify files by name, size and time.
            let changed = folder.path().join(format!("{seed}_{name}"));
            fs::write(&changed, &bytes).unwrap();
            let before = oracle.found.len();
            oracle.check(&changed, &format!("HARRIER_SEED={seed}, {how}"));
            if oracle.found.len() == before || std::env::var_os("HARRIER_KEEP").is_none() {
                fs::remove_file(&changed).unwrap();
            } else {
                let saved_file =
                    Path::new(&std::env::var_os("HARRIER_KEEP").unwrap()).join(format!("{seed}_{name}"));
                fs::rename(&changed, saved_file).unwrap();
            }
        }
    }
    oracle.finish();
}

/// Empty files, and files of another format than their extension.
#[test]
fn files_of_other_formats_give_an_error() {
    let folder = tempfile::tempdir().unwrap();
    let mut oracle = oracle();
    let files = files(&mut oracle.session, folder.path());
    let ends = ["parquet", "orc", "avro", "arrow", "json", "csv", "csv.gz", "json.zst", "csv.bz2", "csv.xz"];
    for (number, end) in ends.into_iter().enumerate() {
        let empty = folder.path().join(format!("empty.{end}"));
        fs::write(&empty, b"").unwrap();
        oracle.check(&empty, "nothing");
        for (other, file) in files.iter().enumerate().filter(|(other, _)| other % 3 == number % 3) {
            let wrong = folder.path().join(format!("wrong{other}.{end}"));
            fs::copy(file, &wrong).unwrap();
            oracle.check(&wrong, &format!("{} as {end}", file.display()));
        }
    }
    oracle.finish();
}
