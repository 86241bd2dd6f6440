//! Atomic publication of table folders on real S3 and HDFS servers: for concurrent readers, after a crash at
//! any step, beside other statements, and with faults of the store.

use std::collections::{BTreeMap, BTreeSet};
use std::env;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use bytes::Bytes;
use futures::TryStreamExt;
use harrier_committer::object_store::{
    Error, MergedFile, Options, Published, ReplacedFiles, Root, StagedFile, StagedPlacement, Work,
};
use harrier_servers::{ACCESS_KEY, Fault, Hdfs, Proxy, REGION, Rule, S3, SECRET_KEY};
use object_store::path::Path;
use object_store::{ObjectStore, ObjectStoreExt};
use url::Url;

/// Seconds of a lock's lease: long enough for a busy machine.
const LEASE_SECONDS: u64 = 4;
/// HDFS takes a third of a second for a small file, and a holder writes three within half a lease.
const HDFS_LEASE_SECONDS: u64 = 8;

/// Visible files: contents by folder.
type State = BTreeMap<String, Vec<String>>;

/// A store with the options of one process.
#[derive(Clone)]
struct TestStore {
    url: Url,
    options: Vec<(String, String)>,
}

impl TestStore {
    fn s3(endpoint: &str, bucket: &str) -> Self {
        let options = [
            ("access_key_id", ACCESS_KEY),
            ("secret_access_key", SECRET_KEY),
            ("region", REGION),
            ("endpoint", endpoint),
            ("allow_http", "true"),
            ("request_seconds", "5"),
            ("lease_seconds", &LEASE_SECONDS.to_string()),
        ];
        Self::new(&format!("s3://{bucket}"), &options)
    }

    fn hdfs(server: &Hdfs) -> Self {
        // Late requests arrive within five leases.
        let options = [
            ("lease_seconds", &*HDFS_LEASE_SECONDS.to_string()),
            ("request_seconds", "7"),
            ("retry_seconds", "16"),
        ];
        Self::new(&server.url(), &options)
    }

    fn new(url: &str, options: &[(&str, &str)]) -> Self {
        let options = options.iter().map(|(key, value)| (key.to_string(), value.to_string())).collect();
        Self { url: Url::parse(url).unwrap(), options }
    }

    fn lease(&self) -> Duration {
        let seconds = self.options.iter().find(|(name, _)| name == "lease_seconds");
        Duration::from_secs(seconds.unwrap().1.parse().unwrap())
    }

    fn options(&self) -> Options {
        self.options.iter().map(|(key, value)| (key.as_str(), value.clone())).collect()
    }

    fn root(&self, table: &str) -> Root {
        Root::open(&self.url, &Path::from(table), &self.options()).unwrap().unwrap()
    }

    /// The store with the options of another process.
    fn store(&self) -> Arc<dyn ObjectStore> {
        harrier_storage::open_with(&self.url, &self.options()).unwrap().unwrap()
    }
}

/// The stores that this machine has.
fn test_stores() -> Vec<TestStore> {
    let s3 = S3::shared_instance().map(|server| TestStore::s3(&server.endpoint(), &server.new_bucket()));
    let hdfs = Hdfs::shared_instance().map(TestStore::hdfs);
    s3.into_iter().chain(hdfs).collect()
}

fn run<T>(future: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    runtime
        .block_on(async { tokio::time::timeout(Duration::from_secs(300), future).await.expect("it hangs") })
}

/// Stages and publishes files, each with its content.
async fn write(
    root: &Root,
    id: &str,
    overwrite: bool,
    files: &[(&str, &str)],
    step: &(dyn Fn(&'static str) + Send + Sync),
) -> Result<Published, Error> {
    let statement = root.begin(id).await?;
    step("begun");
    let replaced_files = if overwrite { ReplacedFiles::Any } else { ReplacedFiles::None };
    let staged_placement = StagedPlacement::of(root.clone(), id, replaced_files);
    let mut work = Work { overwrite, ..Work::default() };
    for (at, (folder, content)) in files.iter().enumerate() {
        let name = format!("{id}-{at}.txt");
        let mut writer = staged_placement.begin(folder, &name).await?;
        step("begun a file");
        writer.write(Bytes::from(content.to_string())).await.unwrap();
        let staged = writer.finish().await.map_err(|error| Error::Store {
            doing: "stage",
            path: name.clone(),
            error,
        })?;
        step("staged");
        work.files.push(StagedFile { staged, folder: folder.to_string(), name });
    }
    statement.publish_in_steps(&work, step).await
}

async fn publish(root: &Root, id: &str, overwrite: bool, files: &[(&str, &str)]) -> Published {
    write(root, id, overwrite, files, &|_| {}).await.unwrap_or_else(|error| panic!("{error} of {id}"))
}

/// Reads the table as any program lists it. `None`: a listed file was gone before it was read.
async fn read_table(store: &dyn ObjectStore, table: &str) -> Option<State> {
    let table = Path::from(table);
    let mut state = State::new();
    let mut listed: Vec<_> = store.list(Some(&table)).try_collect().await.unwrap();
    listed.sort_by(|a: &object_store::ObjectMeta, b| a.location.cmp(&b.location));
    for file in listed {
        let parts: Vec<String> =
            file.location.prefix_match(&table)?.map(|part| part.as_ref().to_string()).collect();
        if parts.is_empty() || parts.iter().any(|part| part.starts_with(['.', '_'])) {
            continue;
        }
        let folder: String = parts[..parts.len() - 1].iter().map(|part| format!("{part}/")).collect();
        let content = store.get(&file.location).await.ok()?.bytes().await.ok()?;
        state.entry(folder).or_default().push(String::from_utf8(content.to_vec()).unwrap());
    }
    state.values_mut().for_each(|files| files.sort());
    Some(state)
}

fn state(files: &[(&str, &str)]) -> State {
    let mut state = State::new();
    for (folder, content) in files {
        state.entry(folder.to_string()).or_default().push(content.to_string());
    }
    state.values_mut().for_each(|files| files.sort());
    state
}

/// Files beside a table, without locks and empty journals, which fence off late requests. Empty when all is
/// done.
async fn staged_and_journaled(store: &dyn ObjectStore, table: &str) -> Vec<String> {
    let control = Path::from(format!(".harrier-{table}"));
    let listed: Vec<_> = store.list(Some(&control)).try_collect().await.unwrap();
    let is_left = |file: &&object_store::ObjectMeta| {
        let name = file.location.as_ref();
        let is_empty_journal = name.contains("/journal-") && file.size == 0;
        !name.contains("/lock-") && !is_empty_journal
    };
    listed.iter().filter(is_left).map(|file| file.location.to_string()).collect()
}

struct Scenario {
    before: &'static [(&'static str, &'static str)],
    overwrite: bool,
    files: &'static [(&'static str, &'static str)],
    after: &'static [(&'static str, &'static str)],
}

const SCENARIOS: [Scenario; 5] = [
    Scenario {
        before: &[("", "a"), ("", "b")],
        overwrite: false,
        files: &[("", "c")],
        after: &[("", "a"), ("", "b"), ("", "c")],
    },
    Scenario { before: &[("", "a")], overwrite: true, files: &[("", "c")], after: &[("", "c")] },
    Scenario {
        before: &[("", "a"), ("", "b"), ("", "d")],
        overwrite: true,
        files: &[("", "c")],
        after: &[("", "c")],
    },
    Scenario {
        before: &[("k=1/", "a"), ("k=2/", "b"), ("k=3/", "c"), ("k=3/", "d")],
        overwrite: true,
        files: &[("k=1/", "e"), ("k=3/", "f"), ("k=4/", "h")],
        after: &[("k=1/", "e"), ("k=2/", "b"), ("k=3/", "f"), ("k=4/", "h")],
    },
    Scenario {
        before: &[("k=1/m=1/", "a"), ("k=1/m=2/", "b")],
        overwrite: false,
        files: &[("k=1/m=1/", "c"), ("k=2/m=1/", "f")],
        after: &[("k=1/m=1/", "a"), ("k=1/m=1/", "c"), ("k=1/m=2/", "b"), ("k=2/m=1/", "f")],
    },
];

/// A table with the initial files of a scenario, written by another program.
async fn create_initial_table(store: &dyn ObjectStore, table: &str, scenario: &Scenario) {
    for (folder, content) in scenario.before {
        let path = Path::from(format!("{table}/{folder}old-{content}.txt"));
        store.put(&path, content.to_string().into()).await.unwrap();
    }
    // Files that readers ignore stay.
    store.put(&Path::from(format!("{table}/_SUCCESS")), "".to_string().into()).await.unwrap();
}

/// Asserts that each folder is in the old or the new state; where it had several files, some of the old ones
/// may be gone.
fn assert_old_or_new(contents: &State, scenario: &Scenario) {
    let (old, new) = (state(scenario.before), state(scenario.after));
    let folders: BTreeSet<&String> = contents.keys().chain(old.keys()).chain(new.keys()).collect();
    for folder in folders {
        let nothing = vec![];
        let is = |state: &State| state.get(folder).cloned().unwrap_or_default();
        let (contents, old, new) = (contents.get(folder).unwrap_or(&nothing), is(&old), is(&new));
        let is_part =
            scenario.overwrite && !contents.is_empty() && contents.iter().all(|file| old.contains(file));
        assert!(
            *contents == old || *contents == new || is_part,
            "{folder:?} is {contents:?}, not {old:?} nor {new:?}"
        );
    }
}

#[test]
fn statements_publish_and_clean_up() {
    for place in test_stores() {
        run(async {
            let store = place.store();
            for (number, scenario) in SCENARIOS.iter().enumerate() {
                let table = format!("plain{number}");
                create_initial_table(&*store, &table, scenario).await;
                let root = place.root(&table);
                let published = publish(&root, "one", scenario.overwrite, scenario.files).await;
                assert_eq!(read_table(&*store, &table).await.unwrap(), state(scenario.after), "{table}");
                let in_parts = scenario.overwrite
                    && scenario.files.iter().any(|(folder, _)| {
                        scenario.before.iter().filter(|(other, _)| other == folder).count() > 1
                    });
                assert_eq!(!published.non_atomic_folders.is_empty(), in_parts, "{published:?}");
                assert_eq!(staged_and_journaled(&*store, &table).await, [""; 0], "{table}");
                assert!(store.head(&Path::from(format!("{table}/_SUCCESS"))).await.is_ok());
            }
        });
    }
}

#[test]
fn overwrite_empties_folders() {
    for place in test_stores() {
        run(async {
            let (store, root) = (place.store(), place.root("emptied"));
            publish(&root, "one", false, &[("k=1/", "a"), ("k=2/", "b")]).await;
            let statement = root.begin("two").await.unwrap();
            let work = Work { overwrite: true, emptied: vec!["k=1/".to_string()], ..Work::default() };
            statement.publish(&work).await.unwrap();
            assert_eq!(read_table(&*store, "emptied").await.unwrap(), state(&[("k=2/", "b")]));
            publish(&root, "three", true, &[("k=1/", "c")]).await;
            assert_eq!(read_table(&*store, "emptied").await.unwrap(), state(&[("k=1/", "c"), ("k=2/", "b")]));
        });
    }
}

#[test]
fn aborted_statements_leave_nothing() {
    for place in test_stores() {
        run(async {
            let (store, root) = (place.store(), place.root("given-up"));
            let statement = root.begin("one").await.unwrap();
            let staged_placement = StagedPlacement::of(root.clone(), "one", ReplacedFiles::None);
            let mut upload = staged_placement.begin("k=1/", "one-0.txt").await.unwrap();
            upload.write(Bytes::from_static(b"a")).await.unwrap();
            upload.finish().await.unwrap();
            let mut half = staged_placement.begin("k=2/", "one-1.txt").await.unwrap();
            half.write(Bytes::from_static(b"b")).await.unwrap();
            drop(half);
            statement.abort().await;
            assert_eq!(read_table(&*store, "given-up").await.unwrap(), State::new());
            assert_eq!(staged_and_journaled(&*store, "given-up").await, [""; 0]);
        });
    }
}

/// Files larger than one part, and than the memory of a part.
#[test]
fn multipart_files_are_published() {
    for place in test_stores() {
        run(async {
            let (store, root) = (place.store(), place.root("large"));
            let statement = root.begin("one").await.unwrap();
            let mut writer = StagedPlacement::of(root.clone(), "one", ReplacedFiles::None)
                .begin("", "one-0.txt")
                .await
                .unwrap();
            let piece: Vec<u8> = (0..1_000_003_u32).map(|at| (at % 251) as u8).collect();
            for _ in 0..20 {
                writer.write(Bytes::from(piece.clone())).await.unwrap();
            }
            let staged = writer.finish().await.unwrap();
            assert_eq!(staged.bytes, 20 * piece.len() as u64);
            assert_eq!(read_table(&*store, "large").await.unwrap(), State::new());
            let files = vec![StagedFile { staged, folder: String::new(), name: "one-0.txt".to_string() }];
            statement.publish(&Work { files, ..Work::default() }).await.unwrap();
            let read = store.get(&Path::from("large/one-0.txt")).await.unwrap().bytes().await.unwrap();
            assert!(read == piece.repeat(20));
        });
    }
}

/// Not a test by itself: the process that is to crash.
#[test]
fn dies_at_a_step() {
    let (Ok(url), Ok(options), Ok(table), Ok(scenario), Ok(at)) = (
        env::var("FOLDERS_URL"),
        env::var("FOLDERS_OPTIONS"),
        env::var("FOLDERS_TABLE"),
        env::var("FOLDERS_SCENARIO"),
        env::var("FOLDERS_STEP"),
    ) else {
        return;
    };
    let options: Vec<(&str, &str)> = options.lines().filter_map(|line| line.split_once('\t')).collect();
    let place = TestStore::new(&url, &options);
    let scenario = &SCENARIOS[scenario.parse::<usize>().unwrap()];
    let at: usize = at.parse().unwrap();
    let steps = AtomicUsize::new(0);
    let step = move |_: &'static str| {
        if steps.fetch_add(1, Ordering::Relaxed) == at {
            let own = std::process::id().to_string();
            drop(Command::new("kill").args(["-KILL", &own]).status());
            std::thread::sleep(Duration::from_secs(60));
        }
    };
    run(async {
        let root = place.root(&table);
        write(&root, "dying", scenario.overwrite, scenario.files, &step).await.unwrap();
    });
}

/// Returns true if the process crashed, false if it completed.
fn crash_at_step(place: &TestStore, table: &str, scenario: usize, at: usize) -> bool {
    let options: Vec<String> = place.options.iter().map(|(key, value)| format!("{key}\t{value}")).collect();
    let child = Command::new(env::current_exe().unwrap())
        .args(["--exact", "dies_at_a_step", "--test-threads", "1"])
        .env("FOLDERS_URL", place.url.as_str())
        .env("FOLDERS_OPTIONS", options.join("\n"))
        .env("FOLDERS_TABLE", table)
        .env("FOLDERS_SCENARIO", scenario.to_string())
        .env("FOLDERS_STEP", at.to_string())
        .output()
        .unwrap();
    if child.status.success() {
        return false;
    }
    use std::os::unix::process::ExitStatusExt;
    let output = String::from_utf8_lossy(&child.stdout);
    assert_eq!(child.status.signal(), Some(9), "{output} {}", String::from_utf8_lossy(&child.stderr));
    true
}

/// After a crash at any step every reader sees folders in one state, Harrier's next reader the old or the new
/// table, and the next writer cleans up.
#[test]
fn crash_at_any_step_leaves_old_or_new_state() {
    for place in test_stores() {
        std::thread::scope(|scope| {
            for number in 0..SCENARIOS.len() {
                let place = &place;
                scope.spawn(move || check_crashes(place, number));
            }
        });
    }
}

/// Reads the table after late requests of a dead process have arrived: one of them may remove a file during
/// the read.
async fn read_settled(store: &dyn ObjectStore, table: &str) -> State {
    for _ in 0..50 {
        if let Some(state) = read_table(store, table).await {
            return state;
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    panic!("names go away all the time in {table}");
}

fn check_crashes(place: &TestStore, number: usize) {
    let scenario = &SCENARIOS[number];
    let (old, new) = (state(scenario.before), state(scenario.after));
    let mut tables = Vec::new();
    let mut news = 0;
    for at in 0.. {
        let table = format!("crash{number}-{at}");
        run(async { create_initial_table(&*place.store(), &table, scenario).await });
        let died = crash_at_step(place, &table, number, at);
        run(async {
            let store = place.store();
            assert_old_or_new(&read_settled(&*store, &table).await, scenario);
            // A reader completes a decided commit.
            place.root(&table).wait_until_settled().await.unwrap();
            let now = read_settled(&*store, &table).await;
            assert!(now == old || now == new, "{table}: {now:?} is not {old:?} nor {new:?}");
            news += usize::from(now == new);
            assert!(died || now == new, "{table}");
        });
        tables.push(table);
        if !died {
            break;
        }
    }
    assert!(tables.len() > 6 && news > 3, "{} steps, {news} of them after the commit", tables.len());
    // When its lease has surely expired, the next statement removes its staged files.
    std::thread::sleep(5 * place.lease() + Duration::from_secs(1));
    run(async {
        let store = place.store();
        for table in tables {
            let root = place.root(&table);
            publish(&root, "next", false, &[("z=1/", "next")]).await;
            assert_eq!(staged_and_journaled(&*store, &table).await, [""; 0], "{table}");
        }
    });
}

/// Every listing of a table under constant overwrites has each folder in one state; Harrier's reader sees all
/// folders of one statement.
#[test]
fn concurrent_readers_see_folders_atomically() {
    const STATEMENTS: usize = 25;
    for place in test_stores() {
        run(async {
            let (store, root) = (place.store(), place.root("listed"));
            let version = |number: usize| {
                let content = format!("{number:03}");
                move |root: Root| async move {
                    let files =
                        [("k=1/", content.as_str()), ("k=2/", content.as_str()), ("k=3/", content.as_str())];
                    publish(&root, &format!("v{content}"), true, &files).await;
                }
            };
            version(0)(root.clone()).await;
            let over = Arc::new(AtomicBool::new(false));
            let lister = {
                let (store, over) = (Arc::clone(&store), Arc::clone(&over));
                tokio::spawn(async move {
                    let mut looks = 0;
                    while !over.load(Ordering::Relaxed) {
                        let state = read_table(&*store, "listed").await.expect("a name went away");
                        assert_eq!(state.len(), 3, "{state:?}");
                        assert!(state.values().all(|files| files.len() == 1), "{state:?}");
                        looks += 1;
                    }
                    looks
                })
            };
            let reader = {
                let (store, root, over) = (Arc::clone(&store), root.clone(), Arc::clone(&over));
                tokio::spawn(async move {
                    let mut looks = 0;
                    while !over.load(Ordering::Relaxed) {
                        let settled = root.wait_until_settled().await.unwrap();
                        let state = read_table(&*store, "listed").await.unwrap();
                        if root.is_unchanged(settled).await.unwrap() {
                            let versions: BTreeSet<&Vec<String>> = state.values().collect();
                            assert_eq!(versions.len(), 1, "{state:?}");
                            looks += 1;
                        }
                    }
                    looks
                })
            };
            for number in 1..=STATEMENTS {
                version(number)(root.clone()).await;
            }
            over.store(true, Ordering::Relaxed);
            let (looks, reads) = (lister.await.unwrap(), reader.await.unwrap());
            assert!(looks > 3, "{looks} looks, {reads} reads");
        });
    }
}

/// Concurrent statements, with several roots as of several processes: all appends are there; of two
/// overwrites of a folder each is whole.
#[test]
fn concurrent_statements_are_not_lost() {
    for place in test_stores() {
        run(async {
            let store = place.store();
            let mut writers = Vec::new();
            for writer in 0..4 {
                let root = place.root("at-once");
                writers.push(tokio::spawn(async move {
                    for number in 0..3 {
                        let content = format!("{writer}-{number}");
                        publish(&root, &format!("a{content}"), false, &[("k=1/", &content)]).await;
                        publish(&root, &format!("o{content}"), true, &[("k=2/", &content)]).await;
                    }
                }));
            }
            for writer in writers {
                writer.await.unwrap();
            }
            let state = read_table(&*store, "at-once").await.unwrap();
            assert_eq!(state["k=1/"].len(), 12, "{state:?}");
            assert_eq!(state["k=2/"].len(), 1, "{state:?}");
            assert_eq!(staged_and_journaled(&*store, "at-once").await, [""; 0]);
        });
    }
}

/// If the bound name is no longer in the folder, the file cannot replace it in one step: the later statement
/// fails, and can be retried.
#[test]
fn statements_without_atomic_rename_target_conflict() {
    let Some(server) = S3::shared_instance() else { return };
    let place = TestStore::s3(&server.endpoint(), &server.new_bucket());
    run(async {
        let (store, root) = (place.store(), place.root("conflict"));
        let statement = root.begin("late").await.unwrap();
        let mut writer = StagedPlacement::of(root.clone(), "late", ReplacedFiles::Any)
            .begin("k=1/", "late-0.txt")
            .await
            .unwrap();
        writer.write(Bytes::from_static(b"late")).await.unwrap();
        let staged = writer.finish().await.unwrap();
        publish(&root, "early", false, &[("k=1/", "early")]).await;
        let files = vec![StagedFile { staged, folder: "k=1/".to_string(), name: "late-0.txt".to_string() }];
        let failed = statement.publish(&Work { files, overwrite: true, ..Work::default() }).await;
        assert!(matches!(failed, Err(Error::Conflict { .. })), "{failed:?}");
        assert_eq!(read_table(&*store, "conflict").await.unwrap(), state(&[("k=1/", "early")]));
        assert_eq!(staged_and_journaled(&*store, "conflict").await, [""; 0]);
        publish(&root, "again", true, &[("k=1/", "late")]).await;
        assert_eq!(read_table(&*store, "conflict").await.unwrap(), state(&[("k=1/", "late")]));
    });
}

/// Small files are merged into one, and only those that were read.
#[test]
fn merge_replaces_files_only_if_unchanged() {
    for place in test_stores() {
        run(async {
            let (store, root) = (place.store(), place.root("merged"));
            for content in ["a", "b", "c"] {
                publish(&root, content, false, &[("k=1/", content)]).await;
            }
            let merge = async |id: &str, files: Vec<object_store::ObjectMeta>, content: &'static str| {
                let statement = root.begin(id).await.unwrap();
                let first = files[0].location.to_string();
                let replaced_files = ReplacedFiles::Named([("k=1/".to_string(), first)].into());
                let name = format!("{id}-0.txt");
                let mut writer =
                    StagedPlacement::of(root.clone(), id, replaced_files).begin("k=1/", &name).await.unwrap();
                writer.write(Bytes::from_static(content.as_bytes())).await.unwrap();
                let staged = writer.finish().await.unwrap();
                let merged =
                    files.into_iter().map(|file| MergedFile { folder: "k=1/".to_string(), file }).collect();
                let files = vec![StagedFile { staged, folder: "k=1/".to_string(), name }];
                statement.publish(&Work { files, merged, ..Work::default() }).await
            };
            let files = root.list_table().await.unwrap();
            merge("one", files[..2].to_vec(), "ab").await.unwrap();
            assert_eq!(read_table(&*store, "merged").await.unwrap(), state(&[("k=1/", "ab"), ("k=1/", "c")]));
            // The files that were read are gone.
            let late = merge("two", files, "abc").await;
            assert!(matches!(late, Err(Error::Conflict { .. })), "{late:?}");
            assert_eq!(read_table(&*store, "merged").await.unwrap(), state(&[("k=1/", "ab"), ("k=1/", "c")]));
        });
    }
}

/// Every request of a statement in turn is refused once, or cut off after its execution, or answered with an
/// error after its execution.
#[test]
fn request_faults_are_retried() {
    let Some(server) = S3::shared_instance() else { return };
    for fault in [Fault::Status(503), Fault::CutAfterwards, Fault::StatusAfterwards(500)] {
        let proxy = Proxy::start(server.address());
        let bucket = server.new_bucket();
        let place = TestStore::s3(&proxy.endpoint(), &bucket);
        let direct = TestStore::s3(&server.endpoint(), &bucket);
        run(async {
            let store = direct.store();
            for at in 0.. {
                let table = format!("fault{at}");
                let scenario = &SCENARIOS[3];
                create_initial_table(&*store, &table, scenario).await;
                proxy.clear();
                proxy.reset();
                proxy.add(Rule::new(fault).after(at).times(1));
                let root = place.root(&table);
                publish(&root, "one", scenario.overwrite, scenario.files).await;
                let requests = proxy.total();
                assert_eq!(
                    read_table(&*store, &table).await.unwrap(),
                    state(scenario.after),
                    "{fault:?} at {at}"
                );
                if at as u64 >= requests {
                    assert!(at > 10, "{requests} requests");
                    break;
                }
            }
        });
    }
}

/// A store that becomes unreachable fails the statement, in bounded time; afterwards it has committed or it
/// has not.
#[test]
fn store_outage_leaves_old_or_new_state() {
    let Some(server) = S3::shared_instance() else { return };
    let proxy = Proxy::start(server.address());
    let bucket = server.new_bucket();
    let mut place = TestStore::s3(&proxy.endpoint(), &bucket);
    place.options.push(("retries".to_string(), "1".to_string()));
    place.options.push(("retry_seconds".to_string(), "1".to_string()));
    let direct = TestStore::s3(&server.endpoint(), &bucket);
    run(async {
        let store = direct.store();
        let scenario = &SCENARIOS[3];
        let (old, new) = (state(scenario.before), state(scenario.after));
        for at in 0.. {
            let table = format!("away{at}");
            create_initial_table(&*store, &table, scenario).await;
            proxy.clear();
            proxy.reset();
            proxy.add(Rule::new(Fault::Status(503)).after(at));
            let start = Instant::now();
            let outcome =
                write(&place.root(&table), "one", scenario.overwrite, scenario.files, &|_| {}).await;
            assert!(start.elapsed() < Duration::from_secs(60), "{:?}", start.elapsed());
            let first = read_table(&*store, &table).await.unwrap();
            assert_old_or_new(&first, scenario);
            direct.root(&table).wait_until_settled().await.unwrap();
            let now = read_table(&*store, &table).await.unwrap();
            match &outcome {
                Ok(_) => assert_eq!(now, new, "{table}"),
                Err(error) if error.is_undone() => assert_eq!(now, old, "{table}: {error}"),
                Err(Error::Unfinished { .. }) => assert_eq!(now, new, "{table}"),
                Err(_) => assert!(now == old || now == new, "{table}: {now:?}"),
            }
            if outcome.is_ok() && (at as u64) >= proxy.total() {
                break;
            }
        }
    });
}

/// A lock holder that is stopped for longer than its lease does nothing more when it resumes.
#[test]
fn expired_lock_holders_are_fenced() {
    for place in test_stores() {
        run(async {
            let (store, root) = (place.store(), place.root("stopped"));
            publish(&root, "first", true, &[("k=1/", "first")]).await;
            let (other, lease) = (place.root("stopped"), place.lease());
            let (reached, waits) = std::sync::mpsc::channel::<()>();
            let slow = tokio::task::spawn_blocking(move || {
                // A runtime of its own, all of which is stopped.
                let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
                let step = move |step: &'static str| {
                    if step == "planned" {
                        reached.send(()).unwrap();
                        std::thread::sleep(3 * lease);
                    }
                };
                runtime.block_on(async { write(&other, "slow", true, &[("k=1/", "slow")], &step).await })
            });
            tokio::task::spawn_blocking(move || waits.recv().unwrap()).await.unwrap();
            publish(&root, "fast", true, &[("k=1/", "fast")]).await;
            assert_eq!(read_table(&*store, "stopped").await.unwrap(), state(&[("k=1/", "fast")]));
            let outcome = slow.await.unwrap();
            assert!(matches!(outcome, Err(Error::LeaseExpired { .. })), "{outcome:?}");
            assert_eq!(read_table(&*store, "stopped").await.unwrap(), state(&[("k=1/", "fast")]));
        });
    }
}

/// The journal of a holder that has lost its lock arrives after another holder has decided: it is fenced off.
#[test]
fn late_journals_are_fenced() {
    let Some(server) = S3::shared_instance() else { return };
    let proxy = Proxy::start(server.address());
    let bucket = server.new_bucket();
    let (mut slow, direct) =
        (TestStore::s3(&proxy.endpoint(), &bucket), TestStore::s3(&server.endpoint(), &bucket));
    // Its journal may be under way as long as others need, however slow they are.
    slow.options.push(("request_seconds".to_string(), "60".to_string()));
    run(async {
        let store = direct.store();
        let (root, other) = (direct.root("late"), slow.root("late"));
        publish(&root, "first", true, &[("k=1/", "first"), ("k=2/", "first")]).await;
        // It gets the lock, and cannot renew it.
        proxy.add(Rule::new(Fault::Status(503)).of("PUT").on("/lock-").after(1));
        proxy.add(Rule::new(Fault::Late(10 * direct.lease())).of("PUT").on("/journal-").times(1));
        let late = tokio::spawn(async move {
            let files = [("k=1/", "late"), ("k=2/", "late")];
            write(&other, "late", true, &files, &|_| {}).await
        });
        while proxy.requests().iter().all(|request| !request.path.contains("/journal-")) {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        publish(&root, "second", true, &[("k=1/", "second"), ("k=2/", "second")]).await;
        let second = state(&[("k=1/", "second"), ("k=2/", "second")]);
        assert_eq!(read_table(&*store, "late").await.unwrap(), second);
        let outcome = late.await.unwrap();
        assert!(matches!(outcome, Err(Error::LeaseExpired { .. })), "{outcome:?}");
        root.wait_until_settled().await.unwrap();
        assert_eq!(read_table(&*store, "late").await.unwrap(), second);
    });
}

/// A statement that is canceled while it waits for the lock commits nothing when it gets the lock.
#[test]
fn canceled_lock_waits_commit_nothing() {
    for place in test_stores() {
        run(async {
            let (store, root) = (place.store(), place.root("unwanted"));
            let statement = root.begin("one").await.unwrap();
            let staged_placement = StagedPlacement::of(root.clone(), "one", ReplacedFiles::None);
            let mut writer = staged_placement.begin("k=1/", "one-0.txt").await.unwrap();
            writer.write(Bytes::from_static(b"a")).await.unwrap();
            let staged = writer.finish().await.unwrap();
            let files =
                vec![StagedFile { staged, folder: "k=1/".to_string(), name: "one-0.txt".to_string() }];
            statement.cancel_flag().set();
            let outcome = statement.publish(&Work { files, ..Work::default() }).await;
            assert!(matches!(outcome, Err(Error::Canceled { .. })), "{outcome:?}");
            assert_eq!(read_table(&*store, "unwanted").await.unwrap(), State::new());
            assert_eq!(staged_and_journaled(&*store, "unwanted").await, [""; 0]);
        });
    }
}

/// Files in nested folders do not belong to the table: they are neither overwritten nor do they bind names.
#[test]
fn nested_folders_are_left_alone() {
    for place in test_stores() {
        run(async {
            let (store, root) = (place.store(), place.root("deep"));
            store.put(&Path::from("deep/archive/old.txt"), "old".into()).await.unwrap();
            publish(&root, "one", true, &[("", "new")]).await;
            let names: Vec<_> = store.list(Some(&Path::from("deep"))).try_collect().await.unwrap();
            let names: Vec<String> = names
                .iter()
                .map(|file: &object_store::ObjectMeta| file.location.to_string())
                .filter(|name| name.matches('/').count() == 1)
                .collect();
            assert_eq!(names.len(), 1, "{names:?}");
            let old = store.get(&Path::from("deep/archive/old.txt")).await.unwrap().bytes().await.unwrap();
            assert_eq!(&old[..], b"old");
        });
    }
}
