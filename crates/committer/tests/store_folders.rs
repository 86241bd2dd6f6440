//! Folders on real servers of S3 and HDFS are seen whole: by who lists them all the time, by the next one
//! after a crash at any step, beside other statements, and whatever goes wrong between a statement and its
//! store.

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

/// How long the locks of the tests are another's: long enough for a busy machine.
const LEASE_SECONDS: u64 = 4;
/// HDFS takes a third of a second to write a small file, and a holder has to write three in half a lease.
const HDFS_LEASE_SECONDS: u64 = 8;

/// What is shown: the files' contents, folder by folder.
type State = BTreeMap<String, Vec<String>>;

/// A store, as a process gets to it.
#[derive(Clone)]
struct Place {
    url: Url,
    options: Vec<(String, String)>,
}

impl Place {
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
        // What may come late comes within five leases.
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

    /// As somebody else has it.
    fn store(&self) -> Arc<dyn ObjectStore> {
        harrier_storage::open_with(&self.url, &self.options()).unwrap().unwrap()
    }
}

/// The places that are there to be tested on.
fn places() -> Vec<Place> {
    let s3 = S3::shared().map(|server| Place::s3(&server.endpoint(), &server.new_bucket()));
    let hdfs = Hdfs::shared().map(Place::hdfs);
    s3.into_iter().chain(hdfs).collect()
}

fn run<T>(future: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    runtime
        .block_on(async { tokio::time::timeout(Duration::from_secs(300), future).await.expect("it hangs") })
}

/// Stages and shows files, each with its content.
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

async fn written(root: &Root, id: &str, overwrite: bool, files: &[(&str, &str)]) -> Published {
    write(root, id, overwrite, files, &|_| {}).await.unwrap_or_else(|error| panic!("{error} of {id}"))
}

/// What somebody sees who lists the table and reads what is there. `None`: one of the files was gone before
/// it was read.
async fn seen(store: &dyn ObjectStore, table: &str) -> Option<State> {
    let table = Path::from(table);
    let mut state = State::new();
    let mut found: Vec<_> = store.list(Some(&table)).try_collect().await.unwrap();
    found.sort_by(|a: &object_store::ObjectMeta, b| a.location.cmp(&b.location));
    for file in found {
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

/// What lies beside a table: its locks apart, nothing when all is done.
/// What lies beside a table, but for locks and empty journals, which keep out what may still come.
async fn beside(store: &dyn ObjectStore, table: &str) -> Vec<String> {
    let control = Path::from(format!(".harrier-{table}"));
    let found: Vec<_> = store.list(Some(&control)).try_collect().await.unwrap();
    let is_left = |file: &&object_store::ObjectMeta| {
        let name = file.location.as_ref();
        let is_empty_journal = name.contains("/journal-") && file.size == 0;
        !name.contains("/lock-") && !is_empty_journal
    };
    found.iter().filter(is_left).map(|file| file.location.to_string()).collect()
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

/// A table with what a scenario begins with, written by others.
async fn before(store: &dyn ObjectStore, table: &str, scenario: &Scenario) {
    for (folder, content) in scenario.before {
        let path = Path::from(format!("{table}/{folder}old-{content}.txt"));
        store.put(&path, content.to_string().into()).await.unwrap();
    }
    // What no reader looks at stays.
    store.put(&Path::from(format!("{table}/_SUCCESS")), "".to_string().into()).await.unwrap();
}

/// Each folder is what it was or what it is to be, but that some of the old files may be gone where there
/// were several.
fn check_whole(seen: &State, scenario: &Scenario) {
    let (old, new) = (state(scenario.before), state(scenario.after));
    let folders: BTreeSet<&String> = seen.keys().chain(old.keys()).chain(new.keys()).collect();
    for folder in folders {
        let nothing = vec![];
        let is = |state: &State| state.get(folder).cloned().unwrap_or_default();
        let (seen, old, new) = (seen.get(folder).unwrap_or(&nothing), is(&old), is(&new));
        let is_part = scenario.overwrite && !seen.is_empty() && seen.iter().all(|file| old.contains(file));
        assert!(*seen == old || *seen == new || is_part, "{folder:?} is {seen:?}, not {old:?} nor {new:?}");
    }
}

#[test]
fn statements_are_shown_and_leave_nothing() {
    for place in places() {
        run(async {
            let store = place.store();
            for (number, scenario) in SCENARIOS.iter().enumerate() {
                let table = format!("plain{number}");
                before(&*store, &table, scenario).await;
                let root = place.root(&table);
                let published = written(&root, "one", scenario.overwrite, scenario.files).await;
                assert_eq!(seen(&*store, &table).await.unwrap(), state(scenario.after), "{table}");
                let in_parts = scenario.overwrite
                    && scenario.files.iter().any(|(folder, _)| {
                        scenario.before.iter().filter(|(other, _)| other == folder).count() > 1
                    });
                assert_eq!(!published.non_atomic_folders.is_empty(), in_parts, "{published:?}");
                assert_eq!(beside(&*store, &table).await, [""; 0], "{table}");
                assert!(store.head(&Path::from(format!("{table}/_SUCCESS"))).await.is_ok());
            }
        });
    }
}

#[test]
fn folders_are_emptied() {
    for place in places() {
        run(async {
            let (store, root) = (place.store(), place.root("emptied"));
            written(&root, "one", false, &[("k=1/", "a"), ("k=2/", "b")]).await;
            let statement = root.begin("two").await.unwrap();
            let work = Work { overwrite: true, emptied: vec!["k=1/".to_string()], ..Work::default() };
            statement.publish(&work).await.unwrap();
            assert_eq!(seen(&*store, "emptied").await.unwrap(), state(&[("k=2/", "b")]));
            written(&root, "three", true, &[("k=1/", "c")]).await;
            assert_eq!(seen(&*store, "emptied").await.unwrap(), state(&[("k=1/", "c"), ("k=2/", "b")]));
        });
    }
}

#[test]
fn a_statement_that_is_given_up_leaves_nothing() {
    for place in places() {
        run(async {
            let (store, root) = (place.store(), place.root("given-up"));
            let statement = root.begin("one").await.unwrap();
            let staged_placement = StagedPlacement::of(root.clone(), "one", ReplacedFiles::None);
            let mut whole = staged_placement.begin("k=1/", "one-0.txt").await.unwrap();
            whole.write(Bytes::from_static(b"a")).await.unwrap();
            whole.finish().await.unwrap();
            let mut half = staged_placement.begin("k=2/", "one-1.txt").await.unwrap();
            half.write(Bytes::from_static(b"b")).await.unwrap();
            drop(half);
            statement.abort().await;
            assert_eq!(seen(&*store, "given-up").await.unwrap(), State::new());
            assert_eq!(beside(&*store, "given-up").await, [""; 0]);
        });
    }
}

/// Files larger than a part, and the part's memory.
#[test]
fn large_files_are_whole() {
    for place in places() {
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
            assert_eq!(seen(&*store, "large").await.unwrap(), State::new());
            let files = vec![StagedFile { staged, folder: String::new(), name: "one-0.txt".to_string() }];
            statement.publish(&Work { files, ..Work::default() }).await.unwrap();
            let read = store.get(&Path::from("large/one-0.txt")).await.unwrap().bytes().await.unwrap();
            assert!(read == piece.repeat(20));
        });
    }
}

/// Not a test by itself: the process that is to die.
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
    let place = Place::new(&url, &options);
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

/// True if the process died, false if it came to its end.
fn die(place: &Place, table: &str, scenario: usize, at: usize) -> bool {
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
    let said = String::from_utf8_lossy(&child.stdout);
    assert_eq!(child.status.signal(), Some(9), "{said} {}", String::from_utf8_lossy(&child.stderr));
    true
}

/// After a crash at any step everybody sees folders whole, the next reader of ours the old or the new table,
/// and the next writer removes what is left.
#[test]
fn a_crash_leaves_the_old_or_the_new() {
    for place in places() {
        std::thread::scope(|scope| {
            for number in 0..SCENARIOS.len() {
                let place = &place;
                scope.spawn(move || crash_everywhere(place, number));
            }
        });
    }
}

/// The same when requests of a process that is dead have been heard: one of them may remove a file while it
/// is looked at.
async fn at_last(store: &dyn ObjectStore, table: &str) -> State {
    for _ in 0..50 {
        if let Some(state) = seen(store, table).await {
            return state;
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    panic!("names go away all the time in {table}");
}

fn crash_everywhere(place: &Place, number: usize) {
    let scenario = &SCENARIOS[number];
    let (old, new) = (state(scenario.before), state(scenario.after));
    let mut tables = Vec::new();
    let mut news = 0;
    for at in 0.. {
        let table = format!("crash{number}-{at}");
        run(async { before(&*place.store(), &table, scenario).await });
        let died = die(place, &table, number, at);
        run(async {
            let store = place.store();
            check_whole(&at_last(&*store, &table).await, scenario);
            // A reader completes what was decided.
            place.root(&table).wait_until_settled().await.unwrap();
            let now = at_last(&*store, &table).await;
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
    // When they are surely dead, the next statement removes what they have staged.
    std::thread::sleep(5 * place.lease() + Duration::from_secs(1));
    run(async {
        let store = place.store();
        for table in tables {
            let root = place.root(&table);
            written(&root, "next", false, &[("z=1/", "next")]).await;
            assert_eq!(beside(&*store, &table).await, [""; 0], "{table}");
        }
    });
}

/// Every look at a table that is overwritten all the time shows each folder whole; our reader sees all
/// folders of one statement.
#[test]
fn who_lists_all_the_time_sees_folders_whole() {
    const STATEMENTS: usize = 25;
    for place in places() {
        run(async {
            let (store, root) = (place.store(), place.root("listed"));
            let version = |number: usize| {
                let content = format!("{number:03}");
                move |root: Root| async move {
                    let files =
                        [("k=1/", content.as_str()), ("k=2/", content.as_str()), ("k=3/", content.as_str())];
                    written(&root, &format!("v{content}"), true, &files).await;
                }
            };
            version(0)(root.clone()).await;
            let over = Arc::new(AtomicBool::new(false));
            let lister = {
                let (store, over) = (Arc::clone(&store), Arc::clone(&over));
                tokio::spawn(async move {
                    let mut looks = 0;
                    while !over.load(Ordering::Relaxed) {
                        let state = seen(&*store, "listed").await.expect("a name went away");
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
                        let state = seen(&*store, "listed").await.unwrap();
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

/// Statements at once, of several roots as of several processes: what is appended is all there; of two that
/// overwrite a folder each is there whole.
#[test]
fn statements_at_once() {
    for place in places() {
        run(async {
            let store = place.store();
            let mut writers = Vec::new();
            for writer in 0..4 {
                let root = place.root("at-once");
                writers.push(tokio::spawn(async move {
                    for number in 0..3 {
                        let content = format!("{writer}-{number}");
                        written(&root, &format!("a{content}"), false, &[("k=1/", &content)]).await;
                        written(&root, &format!("o{content}"), true, &[("k=2/", &content)]).await;
                    }
                }));
            }
            for writer in writers {
                writer.await.unwrap();
            }
            let state = seen(&*store, "at-once").await.unwrap();
            assert_eq!(state["k=1/"].len(), 12, "{state:?}");
            assert_eq!(state["k=2/"].len(), 1, "{state:?}");
            assert_eq!(beside(&*store, "at-once").await, [""; 0]);
        });
    }
}

/// Where the name that a file is bound to is not in the folder any more, it cannot come in one step: the
/// later statement fails, and can be tried again.
#[test]
fn a_statement_whose_place_was_taken_fails() {
    let Some(server) = S3::shared() else { return };
    let place = Place::s3(&server.endpoint(), &server.new_bucket());
    run(async {
        let (store, root) = (place.store(), place.root("conflict"));
        let statement = root.begin("late").await.unwrap();
        let mut writer = StagedPlacement::of(root.clone(), "late", ReplacedFiles::Any)
            .begin("k=1/", "late-0.txt")
            .await
            .unwrap();
        writer.write(Bytes::from_static(b"late")).await.unwrap();
        let staged = writer.finish().await.unwrap();
        written(&root, "early", false, &[("k=1/", "early")]).await;
        let files = vec![StagedFile { staged, folder: "k=1/".to_string(), name: "late-0.txt".to_string() }];
        let failed = statement.publish(&Work { files, overwrite: true, ..Work::default() }).await;
        assert!(matches!(failed, Err(Error::Conflict { .. })), "{failed:?}");
        assert_eq!(seen(&*store, "conflict").await.unwrap(), state(&[("k=1/", "early")]));
        assert_eq!(beside(&*store, "conflict").await, [""; 0]);
        written(&root, "again", true, &[("k=1/", "late")]).await;
        assert_eq!(seen(&*store, "conflict").await.unwrap(), state(&[("k=1/", "late")]));
    });
}

/// Small files become one, and only those that were read.
#[test]
fn files_are_merged() {
    for place in places() {
        run(async {
            let (store, root) = (place.store(), place.root("merged"));
            for content in ["a", "b", "c"] {
                written(&root, content, false, &[("k=1/", content)]).await;
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
            assert_eq!(seen(&*store, "merged").await.unwrap(), state(&[("k=1/", "ab"), ("k=1/", "c")]));
            // What was read is not there any more.
            let late = merge("two", files, "abc").await;
            assert!(matches!(late, Err(Error::Conflict { .. })), "{late:?}");
            assert_eq!(seen(&*store, "merged").await.unwrap(), state(&[("k=1/", "ab"), ("k=1/", "c")]));
        });
    }
}

/// Every request of a statement is refused, or cut off after it was done, or answered with an error after it
/// was done, once.
#[test]
fn a_fault_at_every_request_is_borne() {
    let Some(server) = S3::shared() else { return };
    for fault in [Fault::Status(503), Fault::CutAfterwards, Fault::StatusAfterwards(500)] {
        let proxy = Proxy::start(server.address());
        let bucket = server.new_bucket();
        let place = Place::s3(&proxy.endpoint(), &bucket);
        let direct = Place::s3(&server.endpoint(), &bucket);
        run(async {
            let store = direct.store();
            for at in 0.. {
                let table = format!("fault{at}");
                let scenario = &SCENARIOS[3];
                before(&*store, &table, scenario).await;
                proxy.clear();
                proxy.reset();
                proxy.add(Rule::new(fault).after(at).times(1));
                let root = place.root(&table);
                written(&root, "one", scenario.overwrite, scenario.files).await;
                let requests = proxy.total();
                assert_eq!(seen(&*store, &table).await.unwrap(), state(scenario.after), "{fault:?} at {at}");
                if at as u64 >= requests {
                    assert!(at > 10, "{requests} requests");
                    break;
                }
            }
        });
    }
}

/// A store that goes away in the middle fails the statement, in bounded time; afterwards it has happened or
/// it has not.
#[test]
fn a_store_that_goes_away_leaves_the_old_or_the_new() {
    let Some(server) = S3::shared() else { return };
    let proxy = Proxy::start(server.address());
    let bucket = server.new_bucket();
    let mut place = Place::s3(&proxy.endpoint(), &bucket);
    place.options.push(("retries".to_string(), "1".to_string()));
    place.options.push(("retry_seconds".to_string(), "1".to_string()));
    let direct = Place::s3(&server.endpoint(), &bucket);
    run(async {
        let store = direct.store();
        let scenario = &SCENARIOS[3];
        let (old, new) = (state(scenario.before), state(scenario.after));
        for at in 0.. {
            let table = format!("away{at}");
            before(&*store, &table, scenario).await;
            proxy.clear();
            proxy.reset();
            proxy.add(Rule::new(Fault::Status(503)).after(at));
            let begun = Instant::now();
            let outcome =
                write(&place.root(&table), "one", scenario.overwrite, scenario.files, &|_| {}).await;
            assert!(begun.elapsed() < Duration::from_secs(60), "{:?}", begun.elapsed());
            let first = seen(&*store, &table).await.unwrap();
            check_whole(&first, scenario);
            direct.root(&table).wait_until_settled().await.unwrap();
            let now = seen(&*store, &table).await.unwrap();
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

/// A holder of the lock that is stopped for longer than its lease does nothing more when it goes on.
#[test]
fn who_was_stopped_does_nothing_more() {
    for place in places() {
        run(async {
            let (store, root) = (place.store(), place.root("stopped"));
            written(&root, "first", true, &[("k=1/", "first")]).await;
            let (other, lease) = (place.root("stopped"), place.lease());
            let (reached, waits) = std::sync::mpsc::channel::<()>();
            let slow = tokio::task::spawn_blocking(move || {
                // A runtime of its own, all of which stands still.
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
            written(&root, "fast", true, &[("k=1/", "fast")]).await;
            assert_eq!(seen(&*store, "stopped").await.unwrap(), state(&[("k=1/", "fast")]));
            let outcome = slow.await.unwrap();
            assert!(matches!(outcome, Err(Error::LeaseExpired { .. })), "{outcome:?}");
            assert_eq!(seen(&*store, "stopped").await.unwrap(), state(&[("k=1/", "fast")]));
        });
    }
}

/// The journal of a holder that has lost its lock comes when another one has decided: it is shut out.
#[test]
fn a_journal_that_comes_late_decides_nothing() {
    let Some(server) = S3::shared() else { return };
    let proxy = Proxy::start(server.address());
    let bucket = server.new_bucket();
    let (mut slow, direct) = (Place::s3(&proxy.endpoint(), &bucket), Place::s3(&server.endpoint(), &bucket));
    // Its journal is to be under way for as long as others may need, however slow they are.
    slow.options.push(("request_seconds".to_string(), "60".to_string()));
    run(async {
        let store = direct.store();
        let (root, other) = (direct.root("late"), slow.root("late"));
        written(&root, "first", true, &[("k=1/", "first"), ("k=2/", "first")]).await;
        // It gets the lock, and cannot hold it.
        proxy.add(Rule::new(Fault::Status(503)).of("PUT").on("/lock-").after(1));
        proxy.add(Rule::new(Fault::Late(10 * direct.lease())).of("PUT").on("/journal-").times(1));
        let late = tokio::spawn(async move {
            let files = [("k=1/", "late"), ("k=2/", "late")];
            write(&other, "late", true, &files, &|_| {}).await
        });
        while proxy.requests().iter().all(|request| !request.path.contains("/journal-")) {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        written(&root, "second", true, &[("k=1/", "second"), ("k=2/", "second")]).await;
        let second = state(&[("k=1/", "second"), ("k=2/", "second")]);
        assert_eq!(seen(&*store, "late").await.unwrap(), second);
        let outcome = late.await.unwrap();
        assert!(matches!(outcome, Err(Error::LeaseExpired { .. })), "{outcome:?}");
        root.wait_until_settled().await.unwrap();
        assert_eq!(seen(&*store, "late").await.unwrap(), second);
    });
}

/// A statement that is not wanted any more while it waits for the lock is not decided when it gets it.
#[test]
fn who_gives_up_waiting_decides_nothing() {
    for place in places() {
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
            assert_eq!(seen(&*store, "unwanted").await.unwrap(), State::new());
            assert_eq!(beside(&*store, "unwanted").await, [""; 0]);
        });
    }
}

/// What lies in folders below is nobody's: it is neither overwritten nor does it lend its name.
#[test]
fn folders_below_are_left_alone() {
    for place in places() {
        run(async {
            let (store, root) = (place.store(), place.root("deep"));
            store.put(&Path::from("deep/archive/old.txt"), "old".into()).await.unwrap();
            written(&root, "one", true, &[("", "new")]).await;
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
