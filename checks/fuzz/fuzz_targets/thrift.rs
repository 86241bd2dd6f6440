//! Looks for messages of Thrift that the decoder does not bear: `checks/fuzz/run.sh 60 thrift`. What it decodes
//! is encoded again, and decodes to the same.
#![no_main]

use harrier_thrift::{DecodeError, DecodeLimits, Message, Negotiation, frame_length};

const LIMITS: DecodeLimits = DecodeLimits { bytes: 4096, values: 1000 };

libfuzzer_sys::fuzz_target!(|input: &[u8]| {
    let _ = Negotiation::decode(input, 1000);
    let _ = frame_length(input, 1000);
    match Message::decode(input, LIMITS) {
        Ok((message, length)) => {
            assert!(length <= input.len());
            let mut out = bytes::BytesMut::new();
            message.encode(&mut out);
            let (again, _) = Message::decode(&out, DecodeLimits { bytes: usize::MAX, values: 2000 }).unwrap();
            // NaN is not equal to itself.
            assert_eq!(format!("{again:?}"), format!("{message:?}"));
        }
        Err(DecodeError::Incomplete(needed)) => assert!(needed > input.len()),
        Err(DecodeError::Invalid | DecodeError::TooLarge) => {}
    }
});
