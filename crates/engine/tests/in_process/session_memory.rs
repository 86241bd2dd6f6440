//! What a session holds before it has been asked anything: a server keeps a thousand of them.

use harrier_engine::{Engine, EngineOptions, Session};

#[test]
fn a_session_is_small() {
    let engine = Engine::try_new(EngineOptions::default()).unwrap();
    // What sessions share is made with the first.
    drop(begun(&engine));
    let mut sessions = Vec::with_capacity(10);
    let made = allocation_counter::measure(|| sessions.extend((0..10).map(|_| begun(&engine))));
    let each = made.bytes_current / 10;
    println!("a session holds {each} bytes in {} pieces", made.count_current / 10);
    assert!(each < 96 << 10, "{each} bytes");
    let dropped = allocation_counter::measure(|| drop(sessions));
    let left = made.bytes_current + dropped.bytes_current;
    assert!(left < 10 << 10, "{left} bytes are left of ten sessions");
}

/// A session that a client could use: with the catalogs and functions of PostgreSQL.
fn begun(engine: &Engine) -> Session {
    let session = engine.session();
    session.begin_local("somebody", &[]).unwrap();
    session
}
