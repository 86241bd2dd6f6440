//! S3 object store against a real server, with faults of the connection by a proxy: retries, lost responses,
//! multipart uploads, and errors.

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

/// Size of an upload's parts: S3's minimum but for the last one.
const PART_BYTES: usize = 5 << 20;

/// A bucket on the server, by way of a proxy.
struct Bucket {
    server: &'static S3,
    proxy: Proxy,
    name: String,
    store: Arc<dyn ObjectStore>,
}

/// `None`, with a message, if the server cannot be installed.
fn bucket() -> Option<Bucket> {
    let server = S3::shared_instance()?;
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

/// Display and debug text of an error, after asserting that it has no secret.
fn error_text(error: &Error) -> String {
    let error_text = format!("{error} {error:?}");
    assert!(!error_text.contains(SECRET_KEY), "{error_text}");
    error_text
}

fn text(text: &str) -> PutPayload {
    PutPayload::from(text.as_bytes().to_vec())
}

async fn read_text(store: &dyn ObjectStore, path: &Path) -> Result<String> {
    let bytes = store.get(path).await?.bytes().await?;
    Ok(String::from_utf8(bytes.to_vec()).unwrap())
}

/// Bytes without repetition.
fn random_bytes(bytes: usize) -> Vec<u8> {
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
        assert_eq!(read_text(store, &path).await.unwrap(), "hello");
        assert_eq!(&store.get_range(&path, 1..3).await.unwrap()[..], b"el");
        let ranges = store.get_ranges(&path, &[0..1, 4..5]).await.unwrap();
        assert_eq!(ranges.concat(), b"ho");
        assert_eq!(store.head(&path).await.unwrap().size, 5);
        store.put(&path, text("again")).await.unwrap();
        assert_eq!(read_text(store, &path).await.unwrap(), "again");

        store.put(&Path::from("other/y"), text("")).await.unwrap();
        let mut names: Vec<String> =
            store.list(None).map_ok(|listed| listed.location.to_string()).try_collect().await.unwrap();
        names.sort();
        assert_eq!(names, ["k=a%20b/x y.parquet", "other/y"]);
        let below: Vec<_> = store.list(Some(&Path::from("other"))).try_collect().await.unwrap();
        assert_eq!(below.len(), 1);
        let folders = store.list_with_delimiter(None).await.unwrap().common_prefixes;
        assert_eq!(folders.len(), 2);

        store.copy(&path, &Path::from("copy")).await.unwrap();
        assert_eq!(read_text(store, &Path::from("copy")).await.unwrap(), "again");
        store.delete(&path).await.unwrap();
        assert!(matches!(store.get(&path).await, Err(Error::NotFound { .. })));
        // Deleting it again: it is gone either way.
        store.delete(&path).await.unwrap();
        assert_eq!(bucket.server.objects(&bucket.name), ["copy", "other/y"]);
    });
}

/// More names than one response holds.
#[test]
fn paged_listings_are_complete() {
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
        let listed: Vec<_> = bucket.store.list(Some(&Path::from("many"))).try_collect().await.unwrap();
        assert_eq!(listed.len(), 1100);
        assert_eq!(bucket.proxy.counts().into_iter().collect::<Vec<_>>(), [("LIST".to_string(), 2)]);
        // Deletes a thousand at a time.
        bucket.proxy.reset();
        let all = futures::stream::iter(names.into_iter().map(Ok)).boxed();
        let deleted: Vec<Path> = bucket.store.delete_stream(all).try_collect().await.unwrap();
        assert_eq!(deleted.len(), 1100);
        assert_eq!(bucket.proxy.counts().into_iter().collect::<Vec<_>>(), [("DELETE-MANY".to_string(), 2)]);
        assert!(bucket.server.objects(&bucket.name).is_empty());
    });
}

#[test]
fn multipart_upload() {
    let Some(bucket) = bucket() else { return };
    run(async {
        let path = Path::from("large");
        let bytes = random_bytes(2 * PART_BYTES + 12_345);
        let mut writer = BufWriter::with_capacity(Arc::clone(&bucket.store), path.clone(), PART_BYTES)
            .with_max_concurrency(3);
        writer.write_all(&bytes).await.unwrap();
        // It is invisible before it is complete.
        assert!(matches!(bucket.store.head(&path).await, Err(Error::NotFound { .. })));
        writer.shutdown().await.unwrap();
        assert_eq!(bucket.store.get(&path).await.unwrap().bytes().await.unwrap(), bytes);
        let middle = PART_BYTES as u64 - 7..PART_BYTES as u64 + 7;
        let range = bucket.store.get_range(&path, middle.clone()).await.unwrap();
        assert_eq!(&range[..], &bytes[middle.start as usize..middle.end as usize]);
    });
}

/// Puts with if-none-match and if-match.
#[test]
fn conditional_puts() {
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
        assert_eq!(read_text(store, &path).await.unwrap(), "3");

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

/// The reader of a range knows the object's length: if the response is shorter, it is another object.
#[test]
fn short_ranges_are_errors() {
    let Some(bucket) = bucket() else { return };
    run(async {
        let (store, path) = (&bucket.store, Path::from("short"));
        store.put(&path, text("0123456789")).await.unwrap();
        assert_eq!(&store.get_range(&path, 4..10).await.unwrap()[..], b"456789");
        let failed = store.get_range(&path, 4..11).await;
        assert!(matches!(failed, Err(Error::Precondition { .. })), "{failed:?}");
        let error_text = error_text(&failed.unwrap_err());
        assert!(error_text.contains("short has 10 bytes"), "{error_text}");
        let failed = store.get_ranges(&path, &[0..2, 4..11]).await;
        assert!(matches!(failed, Err(Error::Precondition { .. })), "{failed:?}");
        // Behind its end there is nothing at all.
        store.get_range(&path, 20..30).await.unwrap_err();
    });
}

#[test]
fn throttled_requests_are_retried() {
    let Some(bucket) = bucket() else { return };
    run(async {
        for status in [500, 503, 429] {
            let path = Path::from(format!("s{status}"));
            bucket.proxy.add(Rule::new(Fault::Status(status)).times(2));
            let start = Instant::now();
            bucket.store.put(&path, text("x")).await.unwrap();
            assert!(start.elapsed() >= Duration::from_millis(100), "there was no pause");
            for kind in ["GET", "LIST", "HEAD", "DELETE-MANY"] {
                bucket.proxy.add(Rule::new(Fault::Status(status)).of(kind).times(2));
            }
            assert_eq!(read_text(&bucket.store, &path).await.unwrap(), "x");
            bucket.store.head(&path).await.unwrap();
            assert_eq!(bucket.store.list(None).count().await, 1);
            bucket.store.delete(&path).await.unwrap();
            assert!(bucket.server.objects(&bucket.name).is_empty());
            bucket.proxy.clear();
        }
    });
}

#[test]
fn retries_are_bounded() {
    let Some(bucket) = bucket() else { return };
    run(async {
        let store = open(&bucket.name, options(&bucket.proxy.endpoint()).with("retries", "3"));
        bucket.proxy.add(Rule::new(Fault::Status(503)));
        bucket.proxy.reset();
        let start = Instant::now();
        let error = store.put(&Path::from("never"), text("x")).await.unwrap_err();
        assert!(start.elapsed() < Duration::from_secs(15), "{:?}", start.elapsed());
        assert!(error_text(&error).contains("SlowDown"), "{error}");
        assert_eq!(bucket.proxy.count("PUT"), 4);
        let error = store.delete(&Path::from("never")).await.unwrap_err();
        assert!(error_text(&error).contains("SlowDown"), "{error}");
    });
}

/// The server executed the request, and the response was lost: cut off, or silent until the client's timeout.
#[test]
fn lost_responses_are_resolved() {
    let Some(bucket) = bucket() else { return };
    run(async {
        let impatient = open(&bucket.name, options(&bucket.proxy.endpoint()).with("request_seconds", "1"));
        let store = &impatient;
        for fault in [Fault::CutAfterwards, Fault::SilentAfterwards, Fault::StatusAfterwards(500)] {
            let lose_response = |kind: &str| bucket.proxy.add(Rule::new(fault).of(kind).times(1));
            let path = Path::from("lost");
            lose_response("PUT");
            store.put(&path, text("1")).await.unwrap();
            lose_response("GET");
            assert_eq!(read_text(store, &path).await.unwrap(), "1", "{fault:?}");
            lose_response("COPY");
            store.copy(&path, &Path::from("copied")).await.unwrap();
            lose_response("DELETE-MANY");
            store.delete(&path).await.unwrap();
            assert_eq!(bucket.server.objects(&bucket.name), ["copied"], "{fault:?}");
            store.delete(&Path::from("copied")).await.unwrap();

            // The retry's condition is false because of the first attempt.
            if fault != Fault::SilentAfterwards {
                lose_response("PUT");
                store.put_opts(&path, text("2"), PutMode::Create.into()).await.unwrap();
                lose_response("PUT");
                let theirs = store.put_opts(&path, text("2"), PutMode::Create.into()).await;
                assert!(matches!(theirs, Err(Error::AlreadyExists { .. })), "{fault:?}: {theirs:?}");
                bucket.proxy.clear();
                store.delete(&path).await.unwrap();
            }
            // The upload is gone when its completion is retried.
            let mut upload = store.put_multipart(&path).await.unwrap();
            lose_response("PUT");
            upload.put_part(text("3")).await.unwrap();
            bucket.proxy.add(Rule::new(fault).of("POST").on("uploadId").times(1));
            upload.complete().await.unwrap_or_else(|error| panic!("{fault:?}: {error}"));
            assert_eq!(read_text(store, &path).await.unwrap(), "3");
            store.delete(&path).await.unwrap();
            bucket.proxy.clear();
        }
    });
}

/// An interrupted response is resumed from its position.
#[test]
fn torn_responses_are_resumed() {
    let Some(bucket) = bucket() else { return };
    run(async {
        let (path, bytes) = (Path::from("torn"), random_bytes(1 << 20));
        bucket.store.put(&path, bytes.clone().into()).await.unwrap();
        bucket.proxy.add(Rule::new(Fault::CutWithin(300_000)).of("GET").times(2));
        assert_eq!(bucket.store.get(&path).await.unwrap().bytes().await.unwrap(), bytes);
    });
}

/// Parts of an uncompleted upload are removed.
#[test]
fn dropped_uploads_are_aborted() {
    let Some(bucket) = bucket() else { return };
    run(async {
        let path = Path::from("half");
        let mut upload = bucket.store.put_multipart(&path).await.unwrap();
        upload.put_part(text("part")).await.unwrap();
        bucket.proxy.reset();
        drop(upload);
        let start = Instant::now();
        while bucket.proxy.count("DELETE") == 0 {
            assert!(start.elapsed() < Duration::from_secs(20), "{:?}", bucket.proxy.counts());
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        assert!(bucket.server.objects(&bucket.name).is_empty());
    });
}

/// Uploads of a process that crashed: no listing of objects has them.
#[test]
fn unfinished_uploads_are_listed_and_aborted() {
    let Some(bucket) = bucket() else { return };
    run(async {
        let url = Url::parse(&format!("s3://{}", bucket.name)).unwrap();
        let unfinished = open_unfinished(&url, &options(&bucket.proxy.endpoint())).unwrap().unwrap();
        let (folder, everywhere) = (Path::from("t"), Path::default());
        assert!(unfinished.below(&folder).await.unwrap().is_empty());
        let mut uploads = Vec::new();
        for name in ["t/a b+c.parquet", "t/k=a&b/x", "tt/x"] {
            let mut upload = bucket.store.put_multipart(&Path::from(name)).await.unwrap();
            upload.put_part(text("part")).await.unwrap();
            uploads.push(upload);
        }
        assert_eq!(bucket.store.list(None).count().await, 0);
        bucket.proxy.add(Rule::new(Fault::Status(503)).of("LIST").times(2));
        bucket.proxy.add(Rule::new(Fault::CutAfterwards).of("LIST").times(1));
        let listed = unfinished.below(&folder).await.unwrap();
        let names: Vec<&str> = listed.iter().map(|upload| upload.object.location.as_ref()).collect();
        assert_eq!(names, ["t/a b+c.parquet", "t/k=a&b/x"]);
        for upload in &listed {
            unfinished.abort(upload).await.unwrap();
            // Another process has aborted it already.
            unfinished.abort(upload).await.unwrap();
        }
        assert!(unfinished.below(&folder).await.unwrap().is_empty());
        assert_eq!(unfinished.below(&everywhere).await.unwrap().len(), 1);
        assert_eq!(bucket.server.uploads(&bucket.name), 1);
        let wrong = options(&bucket.proxy.endpoint()).with("secret_access_key", "wronghush");
        let error = open_unfinished(&url, &wrong).unwrap().unwrap().below(&everywhere).await.unwrap_err();
        assert!(matches!(error, Error::PermissionDenied { .. }), "{error}");
        assert!(!error_text(&error).contains("wronghush"), "{error}");
        let unsigned = options(&bucket.proxy.endpoint()).with("skip_signature", "true");
        assert!(open_unfinished(&url, &unsigned).unwrap().is_none());
    });
}

/// A server lists a thousand at a time.
#[test]
fn unfinished_uploads_are_listed_over_pages() {
    const UPLOADS: usize = 1003;
    let Some(bucket) = bucket() else { return };
    run(async {
        let names = (0..UPLOADS).map(|number| Path::from(format!("t/{number:04}")));
        let uploads = futures::stream::iter(names)
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
        let mut listed: Vec<_> = unfinished
            .below(&Path::from("t"))
            .await
            .unwrap()
            .into_iter()
            .map(|one| one.object.location)
            .collect();
        assert!(bucket.proxy.total() > 1, "{:?}", bucket.proxy.counts());
        listed.sort();
        assert_eq!(listed, uploads.iter().map(|(name, _)| name.clone()).collect::<Vec<_>>());
    });
}

#[test]
fn wrong_credentials_are_reported_without_secrets() {
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
                // This server reports an unknown user as missing, where others deny access.
                let is_denied = matches!(error, Error::PermissionDenied { .. });
                let error_text = error_text(&error);
                assert!(
                    is_denied || error_text.contains("No user exists with the provided access key ID"),
                    "{error_text}"
                );
                assert!(!error_text.contains("wronghush"), "{error_text}");
            }
            // A retry would not help.
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
fn missing_buckets_are_reported() {
    let Some(bucket) = bucket() else { return };
    run(async {
        let store = open("nosuchbucket", options(&bucket.proxy.endpoint()));
        for error in [
            store.put(&Path::from("x"), text("x")).await.unwrap_err(),
            store.get(&Path::from("x")).await.unwrap_err(),
            store.list(None).next().await.unwrap().unwrap_err(),
        ] {
            assert!(error_text(&error).contains("bucket \"nosuchbucket\" does not exist"), "{error}");
        }
    });
}

#[test]
fn unreachable_server_fails_in_bounded_time() {
    run(async {
        let nobody = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let address = nobody.local_addr().unwrap();
        drop(nobody);
        let store = open("bucket", options(&format!("http://{address}")).with("retry_seconds", "2"));
        let start = Instant::now();
        let error = store.get(&Path::from("x")).await.unwrap_err();
        assert!(start.elapsed() < Duration::from_secs(15), "{:?}", start.elapsed());
        assert!(error_text(&error).contains(&address.to_string()), "{error}");
    });
}

/// A server that accepts connections and never answers.
#[test]
fn silent_server_times_out() {
    run(async {
        let silent = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let endpoint = format!("http://{}", silent.local_addr().unwrap());
        let store =
            open("bucket", options(&endpoint).with("request_seconds", "1").with("retry_seconds", "2"));
        let start = Instant::now();
        let error = store.get(&Path::from("x")).await.unwrap_err();
        assert!(start.elapsed() < Duration::from_secs(20), "{:?}", start.elapsed());
        error_text(&error);
    });
}

/// Requests wait while the server restarts.
#[test]
fn requests_wait_for_a_server_restart() {
    let Some(server) = S3::start_dedicated() else { return };
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
        assert_eq!(read_text(&store, &Path::from("x")).await.unwrap(), "2");
    });
}
