//! S3, upon a real server, and with everything going wrong between it and the client.

use std::sync::Arc;
use std::time::{Duration, Instant};

use futures::{StreamExt, TryStreamExt};
use harrier_servers::{ACCESS_KEY, Fault, Proxy, REGION, Rule, S3, SECRET_KEY};
use harrier_storage::{Options, open_unfinished, open_with};
use object_store::buffered::BufWriter;
use object_store::path::Path;
use object_store::{Error, MultipartUpload, ObjectStore, ObjectStoreExt, PutMode, PutPayload, Result};
use tokio::io::AsyncWriteExt;
use url::Url;

/// Part of an upload: the least that S3 allows but for the last.
const PART_BYTES: usize = 5 << 20;

/// A bucket on the server, by way of a proxy.
struct Bucket {
    server: &'static S3,
    proxy: Proxy,
    name: String,
    store: Arc<dyn ObjectStore>,
}

/// `None` where the server cannot be installed, which is said.
fn bucket() -> Option<Bucket> {
    let server = S3::shared()?;
    let proxy = Proxy::start(server.address());
    let name = server.new_bucket();
    let store = open(&name, options(&proxy.endpoint()));
    Some(Bucket { server, proxy, name, store })
}

fn options(endpoint: &str) -> Options {
    Options::default()
        .with("access_key_id", ACCESS_KEY)
        .with("secret_access_key", SECRET_KEY)
        .with("region", REGION)
        .with("endpoint", endpoint)
        .with("allow_http", "true")
}

fn open(bucket: &str, options: Options) -> Arc<dyn ObjectStore> {
    open_with(&Url::parse(&format!("s3://{bucket}")).unwrap(), &options).unwrap().unwrap()
}

fn run<T>(future: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    runtime
        .block_on(async { tokio::time::timeout(Duration::from_secs(120), future).await.expect("it hangs") })
}

/// What an error says, to a person and to a developer; never a secret.
fn said(error: &Error) -> String {
    let said = format!("{error} {error:?}");
    assert!(!said.contains(SECRET_KEY), "{said}");
    said
}

fn text(text: &str) -> PutPayload {
    PutPayload::from(text.as_bytes().to_vec())
}

async fn read(store: &dyn ObjectStore, path: &Path) -> Result<String> {
    let bytes = store.get(path).await?.bytes().await?;
    Ok(String::from_utf8(bytes.to_vec()).unwrap())
}

/// Bytes that repeat nowhere soon.
fn noise(bytes: usize) -> Vec<u8> {
    let mut seed = 0x9e37_79b9_7f4a_7c15_u64;
    (0..bytes)
        .map(|_| {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (seed >> 56) as u8
        })
        .collect()
}

#[test]
fn objects_are_put_read_listed_copied_and_deleted() {
    let Some(bucket) = bucket() else { return };
    run(async {
        let store = &bucket.store;
        let path = Path::parse("k=a%20b/x y.parquet").unwrap();
        store.put(&path, text("hello")).await.unwrap();
        assert_eq!(read(store, &path).await.unwrap(), "hello");
        assert_eq!(&store.get_range(&path, 1..3).await.unwrap()[..], b"el");
        let ranges = store.get_ranges(&path, &[0..1, 4..5]).await.unwrap();
        assert_eq!(ranges.concat(), b"ho");
        assert_eq!(store.head(&path).await.unwrap().size, 5);
        store.put(&path, text("again")).await.unwrap();
        assert_eq!(read(store, &path).await.unwrap(), "again");

        store.put(&Path::from("other/y"), text("")).await.unwrap();
        let mut names: Vec<String> =
            store.list(None).map_ok(|found| found.location.to_string()).try_collect().await.unwrap();
        names.sort();
        assert_eq!(names, ["k=a%20b/x y.parquet", "other/y"]);
        let below: Vec<_> = store.list(Some(&Path::from("other"))).try_collect().await.unwrap();
        assert_eq!(below.len(), 1);
        let folders = store.list_with_delimiter(None).await.unwrap().common_prefixes;
        assert_eq!(folders.len(), 2);

        store.copy(&path, &Path::from("copy")).await.unwrap();
        assert_eq!(read(store, &Path::from("copy")).await.unwrap(), "again");
        store.delete(&path).await.unwrap();
        assert!(matches!(store.get(&path).await, Err(Error::NotFound { .. })));
        // Deleted once more: it is gone either way.
        store.delete(&path).await.unwrap();
        assert_eq!(bucket.server.objects(&bucket.name), ["copy", "other/y"]);
    });
}

/// More names than one answer has room for.
#[test]
fn long_lists_are_whole() {
    let Some(bucket) = bucket() else { return };
    run(async {
        let names: Vec<Path> = (0..1100).map(|n| Path::from(format!("many/{n:04}"))).collect();
        let puts = futures::stream::iter(names.clone())
            .map(|name| {
                let store = Arc::clone(&bucket.store);
                async move { store.put(&name, text("x")).await }
            })
            .buffer_unordered(16);
        puts.try_collect::<Vec<_>>().await.unwrap();
        bucket.proxy.reset();
        let found: Vec<_> = bucket.store.list(Some(&Path::from("many"))).try_collect().await.unwrap();
        assert_eq!(found.len(), 1100);
        assert_eq!(bucket.proxy.counts().into_iter().collect::<Vec<_>>(), [("LIST".to_string(), 2)]);
        // Deleted a thousand at a time.
        bucket.proxy.reset();
        let all = futures::stream::iter(names.into_iter().map(Ok)).boxed();
        let deleted: Vec<Path> = bucket.store.delete_stream(all).try_collect().await.unwrap();
        assert_eq!(deleted.len(), 1100);
        assert_eq!(bucket.proxy.counts().into_iter().collect::<Vec<_>>(), [("DELETE-MANY".to_string(), 2)]);
        assert!(bucket.server.objects(&bucket.name).is_empty());
    });
}

#[test]
fn a_large_file_goes_in_parts() {
    let Some(bucket) = bucket() else { return };
    run(async {
        let path = Path::from("large");
        let bytes = noise(2 * PART_BYTES + 12_345);
        let mut writer = BufWriter::with_capacity(Arc::clone(&bucket.store), path.clone(), PART_BYTES)
            .with_max_concurrency(3);
        writer.write_all(&bytes).await.unwrap();
        // Nobody sees it before it is complete.
        assert!(matches!(bucket.store.head(&path).await, Err(Error::NotFound { .. })));
        writer.shutdown().await.unwrap();
        assert_eq!(bucket.store.get(&path).await.unwrap().bytes().await.unwrap(), bytes);
        let middle = PART_BYTES as u64 - 7..PART_BYTES as u64 + 7;
        let range = bucket.store.get_range(&path, middle.clone()).await.unwrap();
        assert_eq!(&range[..], &bytes[middle.start as usize..middle.end as usize]);
    });
}

/// What is put only if there is nothing yet, and what only if it is still what it was.
#[test]
fn puts_may_have_conditions() {
    let Some(bucket) = bucket() else { return };
    run(async {
        let (store, path) = (&bucket.store, Path::from("one"));
        let first = store.put_opts(&path, text("1"), PutMode::Create.into()).await.unwrap();
        let second = store.put_opts(&path, text("2"), PutMode::Create.into()).await;
        assert!(matches!(second, Err(Error::AlreadyExists { .. })), "{second:?}");
        let old = object_store::UpdateVersion::from(first.clone());
        store.put_opts(&path, text("3"), PutMode::Update(old.clone()).into()).await.unwrap();
        let late = store.put_opts(&path, text("4"), PutMode::Update(old).into()).await;
        assert!(matches!(late, Err(Error::Precondition { .. })), "{late:?}");
        assert_eq!(read(store, &path).await.unwrap(), "3");

        let racing: Vec<_> = (0..8)
            .map(|n| {
                let store = Arc::clone(store);
                let put = async move {
                    store.put_opts(&Path::from("race"), text(&n.to_string()), PutMode::Create.into()).await
                };
                tokio::spawn(put)
            })
            .collect();
        let mut won = 0;
        for put in racing {
            won += usize::from(put.await.unwrap().is_ok());
        }
        assert_eq!(won, 1);
    });
}

/// Whoever asks for a range was told how long the object is: if it ends before, it is another one.
#[test]
fn a_range_is_whole_or_an_error() {
    let Some(bucket) = bucket() else { return };
    run(async {
        let (store, path) = (&bucket.store, Path::from("short"));
        store.put(&path, text("0123456789")).await.unwrap();
        assert_eq!(&store.get_range(&path, 4..10).await.unwrap()[..], b"456789");
        let failed = store.get_range(&path, 4..11).await;
        assert!(matches!(failed, Err(Error::Precondition { .. })), "{failed:?}");
        let said = said(&failed.unwrap_err());
        assert!(said.contains("short has 10 bytes"), "{said}");
        let failed = store.get_ranges(&path, &[0..2, 4..11]).await;
        assert!(matches!(failed, Err(Error::Precondition { .. })), "{failed:?}");
        // Behind its end there is nothing at all.
        store.get_range(&path, 20..30).await.unwrap_err();
    });
}

#[test]
fn what_is_refused_for_the_moment_is_tried_again() {
    let Some(bucket) = bucket() else { return };
    run(async {
        for status in [500, 503, 429] {
            let path = Path::from(format!("s{status}"));
            bucket.proxy.add(Rule::new(Fault::Status(status)).times(2));
            let begun = Instant::now();
            bucket.store.put(&path, text("x")).await.unwrap();
            assert!(begun.elapsed() >= Duration::from_millis(100), "there was no pause");
            for kind in ["GET", "LIST", "HEAD", "DELETE-MANY"] {
                bucket.proxy.add(Rule::new(Fault::Status(status)).of(kind).times(2));
            }
            assert_eq!(read(&bucket.store, &path).await.unwrap(), "x");
            bucket.store.head(&path).await.unwrap();
            assert_eq!(bucket.store.list(None).count().await, 1);
            bucket.store.delete(&path).await.unwrap();
            assert!(bucket.server.objects(&bucket.name).is_empty());
            bucket.proxy.clear();
        }
    });
}

#[test]
fn trying_again_has_an_end() {
    let Some(bucket) = bucket() else { return };
    run(async {
        let store = open(&bucket.name, options(&bucket.proxy.endpoint()).with("retries", "3"));
        bucket.proxy.add(Rule::new(Fault::Status(503)));
        bucket.proxy.reset();
        let begun = Instant::now();
        let error = store.put(&Path::from("never"), text("x")).await.unwrap_err();
        assert!(begun.elapsed() < Duration::from_secs(15), "{:?}", begun.elapsed());
        assert!(said(&error).contains("SlowDown"), "{error}");
        assert_eq!(bucket.proxy.count("PUT"), 4);
        let error = store.delete(&Path::from("never")).await.unwrap_err();
        assert!(said(&error).contains("SlowDown"), "{error}");
    });
}

/// The server did what was asked, and nobody heard of it: cut off, or silent until the client gave up.
#[test]
fn lost_answers_are_found_out() {
    let Some(bucket) = bucket() else { return };
    run(async {
        let impatient = open(&bucket.name, options(&bucket.proxy.endpoint()).with("request_seconds", "1"));
        let store = &impatient;
        for fault in [Fault::CutAfterwards, Fault::SilentAfterwards, Fault::StatusAfterwards(500)] {
            let lost = |kind: &str| bucket.proxy.add(Rule::new(fault).of(kind).times(1));
            let path = Path::from("lost");
            lost("PUT");
            store.put(&path, text("1")).await.unwrap();
            lost("GET");
            assert_eq!(read(store, &path).await.unwrap(), "1", "{fault:?}");
            lost("COPY");
            store.copy(&path, &Path::from("copied")).await.unwrap();
            lost("DELETE-MANY");
            store.delete(&path).await.unwrap();
            assert_eq!(bucket.server.objects(&bucket.name), ["copied"], "{fault:?}");
            store.delete(&Path::from("copied")).await.unwrap();

            // Its condition is false when it is tried again, by its own doing.
            if fault != Fault::SilentAfterwards {
                lost("PUT");
                store.put_opts(&path, text("2"), PutMode::Create.into()).await.unwrap();
                lost("PUT");
                let theirs = store.put_opts(&path, text("2"), PutMode::Create.into()).await;
                assert!(matches!(theirs, Err(Error::AlreadyExists { .. })), "{fault:?}: {theirs:?}");
                bucket.proxy.clear();
                store.delete(&path).await.unwrap();
            }
            // The upload is gone when its completion is tried again.
            let mut upload = store.put_multipart(&path).await.unwrap();
            lost("PUT");
            upload.put_part(text("3")).await.unwrap();
            bucket.proxy.add(Rule::new(fault).of("POST").on("uploadId").times(1));
            upload.complete().await.unwrap_or_else(|error| panic!("{fault:?}: {error}"));
            assert_eq!(read(store, &path).await.unwrap(), "3");
            store.delete(&path).await.unwrap();
            bucket.proxy.clear();
        }
    });
}

/// An answer that breaks off is read on from there.
#[test]
fn a_torn_answer_is_read_on() {
    let Some(bucket) = bucket() else { return };
    run(async {
        let (path, bytes) = (Path::from("torn"), noise(1 << 20));
        bucket.store.put(&path, bytes.clone().into()).await.unwrap();
        bucket.proxy.add(Rule::new(Fault::CutWithin(300_000)).of("GET").times(2));
        assert_eq!(bucket.store.get(&path).await.unwrap().bytes().await.unwrap(), bytes);
    });
}

/// The parts of an upload that nobody completes do not stay.
#[test]
fn an_upload_that_is_dropped_is_given_up() {
    let Some(bucket) = bucket() else { return };
    run(async {
        let path = Path::from("half");
        let mut upload = bucket.store.put_multipart(&path).await.unwrap();
        upload.put_part(text("part")).await.unwrap();
        bucket.proxy.reset();
        drop(upload);
        let begun = Instant::now();
        while bucket.proxy.count("DELETE") == 0 {
            assert!(begun.elapsed() < Duration::from_secs(20), "{:?}", bucket.proxy.counts());
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        assert!(bucket.server.objects(&bucket.name).is_empty());
    });
}

/// What a process has left that died in the middle: no listing of objects has it.
#[test]
fn unfinished_uploads_are_found_and_given_up() {
    let Some(bucket) = bucket() else { return };
    run(async {
        let url = Url::parse(&format!("s3://{}", bucket.name)).unwrap();
        let unfinished = open_unfinished(&url, &options(&bucket.proxy.endpoint())).unwrap().unwrap();
        let (folder, everywhere) = (Path::from("t"), Path::default());
        assert!(unfinished.below(&folder).await.unwrap().is_empty());
        let mut begun = Vec::new();
        for name in ["t/a b+c.parquet", "t/k=a&b/x", "tt/x"] {
            let mut upload = bucket.store.put_multipart(&Path::from(name)).await.unwrap();
            upload.put_part(text("part")).await.unwrap();
            begun.push(upload);
        }
        assert_eq!(bucket.store.list(None).count().await, 0);
        bucket.proxy.add(Rule::new(Fault::Status(503)).of("LIST").times(2));
        bucket.proxy.add(Rule::new(Fault::CutAfterwards).of("LIST").times(1));
        let found = unfinished.below(&folder).await.unwrap();
        let names: Vec<&str> = found.iter().map(|upload| upload.object.location.as_ref()).collect();
        assert_eq!(names, ["t/a b+c.parquet", "t/k=a&b/x"]);
        for upload in &found {
            unfinished.abort(upload).await.unwrap();
            // Somebody else was faster.
            unfinished.abort(upload).await.unwrap();
        }
        assert!(unfinished.below(&folder).await.unwrap().is_empty());
        assert_eq!(unfinished.below(&everywhere).await.unwrap().len(), 1);
        assert_eq!(bucket.server.uploads(&bucket.name), 1);
        let wrong = options(&bucket.proxy.endpoint()).with("secret_access_key", "wronghush");
        let error = open_unfinished(&url, &wrong).unwrap().unwrap().below(&everywhere).await.unwrap_err();
        assert!(matches!(error, Error::PermissionDenied { .. }), "{error}");
        assert!(!said(&error).contains("wronghush"), "{error}");
        let unsigned = options(&bucket.proxy.endpoint()).with("skip_signature", "true");
        assert!(open_unfinished(&url, &unsigned).unwrap().is_none());
    });
}

/// A server lists a thousand at a time.
#[test]
fn unfinished_uploads_are_found_on_every_page() {
    const UPLOADS: usize = 1003;
    let Some(bucket) = bucket() else { return };
    run(async {
        let names = (0..UPLOADS).map(|number| Path::from(format!("t/{number:04}")));
        let begun = futures::stream::iter(names)
            .map(|name| {
                let store = Arc::clone(&bucket.store);
                async move { store.put_multipart(&name).await.map(|upload| (name, upload)) }
            })
            .buffered(16)
            .try_collect::<Vec<_>>()
            .await
            .unwrap();
        let url = Url::parse(&format!("s3://{}", bucket.name)).unwrap();
        let unfinished = open_unfinished(&url, &options(&bucket.proxy.endpoint())).unwrap().unwrap();
        bucket.proxy.reset();
        let mut found: Vec<_> = unfinished
            .below(&Path::from("t"))
            .await
            .unwrap()
            .into_iter()
            .map(|one| one.object.location)
            .collect();
        assert!(bucket.proxy.total() > 1, "{:?}", bucket.proxy.counts());
        found.sort();
        assert_eq!(found, begun.iter().map(|(name, _)| name.clone()).collect::<Vec<_>>());
    });
}

#[test]
fn wrong_credentials_are_told_and_not_printed() {
    let Some(bucket) = bucket() else { return };
    run(async {
        let path = Path::from("x");
        for wrong in [
            options(&bucket.proxy.endpoint()).with("secret_access_key", "wronghush"),
            options(&bucket.proxy.endpoint()).with("access_key_id", "NOBODY"),
        ] {
            let store = open(&bucket.name, wrong);
            bucket.proxy.reset();
            for error in [
                store.put(&path, text("x")).await.unwrap_err(),
                store.get(&path).await.unwrap_err(),
                store.list(None).next().await.unwrap().unwrap_err(),
            ] {
                // This server says of an unknown user that there is none, where others say that he may not.
                let is_denied = matches!(error, Error::PermissionDenied { .. });
                let said = said(&error);
                assert!(
                    is_denied || said.contains("No user exists with the provided access key ID"),
                    "{said}"
                );
                assert!(!said.contains("wronghush"), "{said}");
            }
            // Asking again would not help.
            assert_eq!(bucket.proxy.total(), 3);
        }
        let unsigned = Options::default()
            .with("region", REGION)
            .with("endpoint", bucket.proxy.endpoint())
            .with("allow_http", "true")
            .with("skip_signature", "true");
        let error = open(&bucket.name, unsigned).put(&path, text("x")).await.unwrap_err();
        assert!(matches!(error, Error::PermissionDenied { .. } | Error::Unauthenticated { .. }), "{error}");
    });
}

#[test]
fn a_missing_bucket_is_told() {
    let Some(bucket) = bucket() else { return };
    run(async {
        let store = open("nosuchbucket", options(&bucket.proxy.endpoint()));
        for error in [
            store.put(&Path::from("x"), text("x")).await.unwrap_err(),
            store.get(&Path::from("x")).await.unwrap_err(),
            store.list(None).next().await.unwrap().unwrap_err(),
        ] {
            assert!(said(&error).contains("bucket \"nosuchbucket\" does not exist"), "{error}");
        }
    });
}

#[test]
fn no_server_is_told_in_time() {
    run(async {
        let nobody = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let address = nobody.local_addr().unwrap();
        drop(nobody);
        let store = open("bucket", options(&format!("http://{address}")).with("retry_seconds", "2"));
        let begun = Instant::now();
        let error = store.get(&Path::from("x")).await.unwrap_err();
        assert!(begun.elapsed() < Duration::from_secs(15), "{:?}", begun.elapsed());
        assert!(said(&error).contains(&address.to_string()), "{error}");
    });
}

/// One that listens and never answers.
#[test]
fn a_silent_server_is_told_in_time() {
    run(async {
        let silent = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let endpoint = format!("http://{}", silent.local_addr().unwrap());
        let store =
            open("bucket", options(&endpoint).with("request_seconds", "1").with("retry_seconds", "2"));
        let begun = Instant::now();
        let error = store.get(&Path::from("x")).await.unwrap_err();
        assert!(begun.elapsed() < Duration::from_secs(20), "{:?}", begun.elapsed());
        said(&error);
    });
}

/// A server that goes away and comes back is waited for.
#[test]
fn a_server_may_restart() {
    let Some(server) = S3::dedicated() else { return };
    let name = server.new_bucket();
    let store = open(&name, options(&server.endpoint()));
    run(async {
        store.put(&Path::from("x"), text("1")).await.unwrap();
        server.stop();
        let waiting = {
            let store = Arc::clone(&store);
            tokio::spawn(async move { store.put(&Path::from("x"), text("2")).await })
        };
        tokio::time::sleep(Duration::from_millis(500)).await;
        assert!(!waiting.is_finished());
        server.restart();
        waiting.await.unwrap().unwrap();
        assert_eq!(read(&store, &Path::from("x")).await.unwrap(), "2");
    });
}
