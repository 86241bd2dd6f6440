//! Ranks over the real transports, MPI and QUIC.
//!
//! The tests of this folder are one program, which is linked once. Those of one file: `cargo test -p
//! harrier-interconnect --test transports quic::`.

mod exchange;
mod quic;
