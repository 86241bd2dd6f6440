//! Memory of an idle session: a server has a thousand of them.

use harrier_engine::{Engine, EngineOptions, Session};

#[test]
fn idle_sessions_use_little_memory() {
    let engine = Engine::try_new(EngineOptions::default()).unwrap();
    // The first session allocates what sessions share.
    drop(open_session(&engine));
    let mut sessions = Vec::with_capacity(10);
    let allocations = allocation_counter::measure(|| sessions.extend((0..10).map(|_| open_session(&engine))));
    let each = allocations.bytes_current / 10;
    println!("a session holds {each} bytes in {} pieces", allocations.count_current / 10);
    assert!(each < 96 << 10, "{each} bytes");
    let dropped = allocation_counter::measure(|| drop(sessions));
    let leaked_bytes = allocations.bytes_current + dropped.bytes_current;
    assert!(leaked_bytes < 10 << 10, "{leaked_bytes} bytes are left of ten sessions");
}

/// Opens a session as for a client, with the catalogs and functions of PostgreSQL.
fn open_session(engine: &Engine) -> Session {
    let session = engine.session();
    session.begin_local("somebody", &[]).unwrap();
    session
}
