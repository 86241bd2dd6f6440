//! PostgreSQL's system catalogs as tables, and the functions that go with them, for clients that look there for what a session
//! can see. It never knows what a warehouse is.
