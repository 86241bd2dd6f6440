//! HDFS object store against a real NameNode and DataNode: atomic writes, replacement, uploads, and outages
//! of either node.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures::{StreamExt, TryStreamExt};
use harrier_servers::Hdfs;
use harrier_storage::{Options, open_with};
use object_store::buffered::BufWriter;
use object_store::path::Path;
use object_store::{Error, MultipartUpload, ObjectStore, ObjectStoreExt, PutMode, PutPayload, Result};
use tokio::io::AsyncWriteExt;
use url::Url;

fn open(url: &str, options: Options) -> Arc<dyn ObjectStore> {
    open_with(&Url::parse(url).unwrap(), &options).unwrap().unwrap()
}

fn run<T>(future: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    runtime
        .block_on(async { tokio::time::timeout(Duration::from_secs(900), future).await.expect("it hangs") })
}

fn text(text: &str) -> PutPayload {
    PutPayload::from(text.as_bytes().to_vec())
}

async fn read_text(store: &dyn ObjectStore, path: &Path) -> Result<String> {
    let bytes = store.get(path).await?.bytes().await?;
    Ok(String::from_utf8(bytes.to_vec()).unwrap())
}

async fn names(store: &dyn ObjectStore, folder: &Path) -> Vec<String> {
    let mut names: Vec<String> =
        store.list(Some(folder)).map_ok(|size| size.location.to_string()).try_collect().await.unwrap();
    names.sort();
    names
}

fn random_bytes(bytes: usize) -> Vec<u8> {
    let mut seed = 0x9e37_79b9_7f4a_7c15_u64;
    (0..bytes)
        .map(|_| {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (seed >> 56) as u8
        })
        .collect()
}

/// NameNode calls of one kind between two counts.
fn calls_between(before: &BTreeMap<String, u64>, after: &BTreeMap<String, u64>, call: &str) -> u64 {
    let count = |calls: &BTreeMap<String, u64>| calls.get(call).copied().unwrap_or(0);
    count(after) - count(before)
}

/// One test, because the start of a file system takes long; the NameNode stops last.
#[test]
fn files_are_written_atomically() {
    let Some(server) = Hdfs::start_dedicated() else { return };
    run(async {
        let store = open(&server.url(), Options::default());
        put_read_list_and_delete(&store).await;
        new_files_are_written_without_rename(&server, &store).await;
        existing_files_are_replaced_atomically(&server, &store).await;
        multipart_upload(&server, &store).await;
        incomplete_uploads_are_removed(&store).await;
        datanode_outage_and_restart(&server).await;
        namenode_outage_and_restart(&server).await;
    });
}

async fn put_read_list_and_delete(store: &Arc<dyn ObjectStore>) {
    let path = Path::parse("t/k=a%20b/x y.parquet").unwrap();
    store.put(&path, text("hello")).await.unwrap();
    assert_eq!(read_text(store, &path).await.unwrap(), "hello");
    assert_eq!(&store.get_range(&path, 1..3).await.unwrap()[..], b"el");
    assert_eq!(store.get_ranges(&path, &[0..1, 4..5]).await.unwrap().concat(), b"ho");
    assert_eq!(store.head(&path).await.unwrap().size, 5);
    store.put(&Path::from("t/empty"), text("")).await.unwrap();
    assert_eq!(read_text(store, &Path::from("t/empty")).await.unwrap(), "");
    assert_eq!(names(store, &Path::from("t")).await, ["t/empty", "t/k=a%20b/x y.parquet"]);
    assert!(names(store, &Path::from("nothing")).await.is_empty());
    let folders = store.list_with_delimiter(Some(&Path::from("t"))).await.unwrap();
    assert_eq!((folders.common_prefixes.len(), folders.objects.len()), (1, 1));
    let error = store.get(&Path::from("t/none")).await.unwrap_err();
    assert!(matches!(error, Error::NotFound { .. }), "{error}");
    store.delete(&path).await.unwrap();
    assert!(matches!(store.head(&path).await, Err(Error::NotFound { .. })));
    // Deleting it again: it is gone either way.
    store.delete(&path).await.unwrap();
    store.delete(&Path::from("t/empty")).await.unwrap();
}

async fn new_files_are_written_without_rename(server: &Hdfs, store: &Arc<dyn ObjectStore>) {
    let before = server.calls("/");
    for n in 0..10 {
        store.put(&Path::from(format!("new/k={n}/x.parquet")), text("rows")).await.unwrap();
    }
    let after = server.calls("/");
    assert_eq!(calls_between(&before, &after, "create"), 10);
    for call in ["rename", "getfileinfo", "listStatus", "mkdirs", "delete"] {
        assert_eq!(calls_between(&before, &after, call), 0, "{call}: {after:?}");
    }
    let again = store.put_opts(&Path::from("new/k=0/x.parquet"), text("2"), PutMode::Create.into()).await;
    assert!(matches!(again, Err(Error::AlreadyExists { .. })), "{again:?}");
    assert_eq!(read_text(store, &Path::from("new/k=0/x.parquet")).await.unwrap(), "rows");
    let racing: Vec<_> = (0..8)
        .map(|n| {
            let store = Arc::clone(store);
            tokio::spawn(async move {
                store
                    .put_opts(&Path::from("race"), text(&n.to_string()), PutMode::Create.into())
                    .await
                    .is_ok()
            })
        })
        .collect();
    let mut won = 0;
    for put in racing {
        won += usize::from(put.await.unwrap());
    }
    assert_eq!(won, 1);
}

async fn existing_files_are_replaced_atomically(server: &Hdfs, store: &Arc<dyn ObjectStore>) {
    let path = Path::from("replaced/x");
    store.put(&path, text("old")).await.unwrap();
    let before = server.calls("/");
    store.put(&path, text("new")).await.unwrap();
    assert_eq!(calls_between(&before, &server.calls("/"), "rename"), 1);
    assert_eq!(read_text(store, &path).await.unwrap(), "new");
    assert_eq!(names(store, &Path::from("replaced")).await, ["replaced/x"]);
    // A reader during repeated replacement always gets a complete file.
    let writer = {
        let (store, path) = (Arc::clone(store), path.clone());
        tokio::spawn(async move {
            for n in 0..20 {
                store.put(&path, text(&format!("new {n}"))).await.unwrap();
            }
        })
    };
    while !writer.is_finished() {
        let size = store.get(&path).await.unwrap().meta.size;
        assert!((3..=6).contains(&size), "{size} bytes");
    }
    writer.await.unwrap();
    store.rename(&path, &Path::from("elsewhere/deep/y")).await.unwrap();
    assert_eq!(read_text(store, &Path::from("elsewhere/deep/y")).await.unwrap(), "new 19");
    store.copy(&Path::from("elsewhere/deep/y"), &path).await.unwrap();
    assert_eq!(read_text(store, &path).await.unwrap(), "new 19");
}

async fn multipart_upload(server: &Hdfs, store: &Arc<dyn ObjectStore>) {
    let path = Path::from("large/x");
    let bytes = random_bytes(7 << 20);
    let before = server.calls("/");
    let mut writer =
        BufWriter::with_capacity(Arc::clone(store), path.clone(), 1 << 20).with_max_concurrency(4);
    for piece in bytes.chunks(700_001) {
        writer.write_all(piece).await.unwrap();
    }
    writer.shutdown().await.unwrap();
    let after = server.calls("/");
    assert_eq!(calls_between(&before, &after, "rename"), 0);
    assert_eq!(calls_between(&before, &after, "create"), 1);
    assert_eq!(store.get(&path).await.unwrap().bytes().await.unwrap(), bytes);
    let range = store.get_range(&path, 1_048_570..1_048_590).await.unwrap();
    assert_eq!(&range[..], &bytes[1_048_570..1_048_590]);
    // Another file replaces it when the upload is complete.
    let mut upload = store.put_multipart(&path).await.unwrap();
    upload.put_part(text("short")).await.unwrap();
    assert_eq!(store.head(&path).await.unwrap().size, bytes.len() as u64);
    upload.complete().await.unwrap();
    assert_eq!(read_text(store, &path).await.unwrap(), "short");
}

async fn incomplete_uploads_are_removed(store: &Arc<dyn ObjectStore>) {
    for given_up in [false, true] {
        let path = Path::from(format!("half/{given_up}"));
        let mut upload = store.put_multipart(&path).await.unwrap();
        upload.put_part(text("part")).await.unwrap();
        if given_up {
            upload.abort().await.unwrap();
            assert!(upload.complete().await.is_err());
        }
        drop(upload);
        let start = Instant::now();
        while !names(store, &Path::from("half")).await.is_empty() {
            assert!(
                start.elapsed() < Duration::from_secs(20),
                "{:?}",
                names(store, &Path::from("half")).await
            );
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }
}

async fn datanode_outage_and_restart(server: &Hdfs) {
    // More than the client buffers.
    let (path, bytes) = (Path::from("datanode/x"), random_bytes(32 << 20));
    let short = open(&server.url(), Options::default().with("retry_seconds", "1").with("retries", "2"));
    let patient =
        open(&server.url(), Options::default().with("retries", "1000").with("retry_seconds", "600"));
    patient.put(&path, bytes.clone().into()).await.unwrap();
    let mut pieces = patient.get(&path).await.unwrap().into_stream();
    let first = pieces.next().await.unwrap().unwrap();

    server.stop_datanode();
    for error in [
        short.put(&Path::from("datanode/y"), text("x")).await.unwrap_err(),
        short.get(&path).await.unwrap().bytes().await.unwrap_err(),
    ] {
        let message = error.to_string();
        assert!(message.contains(&server.url()) && message.contains("cannot talk to"), "{message}");
        // Nothing of the client's state about DataNodes.
        assert!(message.len() < 300, "{message}");
    }
    assert_eq!(names(short.as_ref(), &Path::from("datanode")).await, ["datanode/x"]);

    // The client waits for a restarted DataNode: it resumes reading, and writes another file from its start.
    let reading = tokio::spawn(async move {
        let mut all = first.to_vec();
        while let Some(piece) = pieces.next().await {
            all.extend_from_slice(&piece?);
        }
        Ok::<_, Error>(all)
    });
    let writing = {
        let patient = Arc::clone(&patient);
        tokio::spawn(async move { patient.put(&Path::from("datanode/y"), text("y")).await })
    };
    tokio::time::sleep(Duration::from_millis(500)).await;
    assert!(!reading.is_finished() && !writing.is_finished());
    server.start_datanode();
    assert_eq!(reading.await.unwrap().unwrap(), bytes);
    writing.await.unwrap().unwrap();
    assert_eq!(read_text(patient.as_ref(), &Path::from("datanode/y")).await.unwrap(), "y");
}

async fn namenode_outage_and_restart(server: &Hdfs) {
    let path = Path::from("gone/x");
    let patient = open(&server.url(), Options::default());
    let short = open(&server.url(), Options::default().with("retry_seconds", "1").with("retries", "2"));
    patient.put(&path, text("before")).await.unwrap();
    short.head(&path).await.unwrap();
    let mut torn = patient.put_multipart(&Path::from("gone/torn")).await.unwrap();
    torn.put_part(text("part")).await.unwrap();

    server.stop_namenode();
    for error in [
        short.put(&Path::from("gone/y"), text("x")).await.unwrap_err(),
        short.get(&path).await.unwrap_err(),
        short.delete(&path).await.unwrap_err(),
        short.list(Some(&Path::from("gone"))).next().await.unwrap().unwrap_err(),
    ] {
        let message = error.to_string();
        assert!(message.contains(&server.url()), "{message}");
        assert!(message.contains("cannot talk to"), "{message}");
    }
    // A file that cannot be completed is an error.
    let completed = tokio::time::timeout(Duration::from_secs(60), torn.complete()).await.expect("it hangs");
    assert!(completed.is_err());

    // The client waits for a restarted NameNode.
    let waiting = {
        let (patient, path) = (Arc::clone(&patient), path.clone());
        let options = Options::default().with("retries", "1000").with("retry_seconds", "600");
        let patient_one = open(&server.url(), options);
        drop(patient);
        tokio::spawn(async move { read_text(&patient_one, &path).await })
    };
    tokio::time::sleep(Duration::from_millis(500)).await;
    assert!(!waiting.is_finished());
    server.start_namenode();
    assert_eq!(waiting.await.unwrap().unwrap(), "before");
    patient.put(&Path::from("gone/after"), text("after")).await.unwrap();
    assert_eq!(read_text(&patient, &Path::from("gone/after")).await.unwrap(), "after");
}

#[test]
fn unreachable_namenode_fails_in_bounded_time() {
    let nobody = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = nobody.local_addr().unwrap();
    drop(nobody);
    run(async {
        let options = Options::default().with("retries", "3");
        let store = open(&format!("hdfs://{address}"), options);
        let start = Instant::now();
        let error = store.get(&Path::from("x")).await.unwrap_err();
        assert!(start.elapsed() < Duration::from_secs(20), "{:?}", start.elapsed());
        assert!(error.to_string().contains(&address.to_string()), "{error}");
    });
}

/// A NameNode that accepts connections and never answers.
#[test]
fn silent_namenode_times_out() {
    let silent = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = silent.local_addr().unwrap();
    run(async {
        let options = Options::default().with("request_seconds", "1").with("retries", "1");
        let store = open(&format!("hdfs://{address}"), options);
        let start = Instant::now();
        let error = store.put(&Path::from("x"), text("x")).await.unwrap_err();
        assert!(start.elapsed() < Duration::from_secs(20), "{:?}", start.elapsed());
        assert!(error.to_string().contains("no answer within 1 s"), "{error}");
    });
}
