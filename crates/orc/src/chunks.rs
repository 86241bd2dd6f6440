//! Byte streams and their compression in chunks that can be read one by one.

use std::io;

use flate2::{Compress, Compression, FlushCompress, Status};

/// Uncompressed bytes of a chunk, as in other writers. The header of a chunk has 23 bits for its length.
pub(crate) const CHUNK_BYTES: usize = 256 << 10;

/// The compression codec of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Codec {
    None,
    Zlib,
    Snappy,
    Lz4,
    #[default]
    Zstd,
}

impl Codec {
    /// Its number in the postscript.
    pub(crate) fn number(self) -> i32 {
        match self {
            Self::None => 0,
            Self::Zlib => 1,
            Self::Snappy => 2,
            Self::Lz4 => 4,
            Self::Zstd => 5,
        }
    }
}

/// A growing byte buffer, in pieces of one chunk each.
#[derive(Debug, Default)]
pub(crate) struct Stream {
    full: Vec<Vec<u8>>,
    last: Vec<u8>,
}

impl Stream {
    pub fn len(&self) -> usize {
        self.full.len() * CHUNK_BYTES + self.last.len()
    }

    pub fn push(&mut self, byte: u8) {
        self.last.push(byte);
        self.seal_chunk();
    }

    pub fn extend(&mut self, mut bytes: &[u8]) {
        while !bytes.is_empty() {
            let fits = bytes.len().min(CHUNK_BYTES - self.last.len());
            self.last.extend_from_slice(&bytes[..fits]);
            bytes = &bytes[fits..];
            self.seal_chunk();
        }
    }

    fn seal_chunk(&mut self) {
        if self.last.len() == CHUNK_BYTES {
            self.full.push(std::mem::take(&mut self.last));
        }
    }

    /// Appends a varint: seven bits a byte, lowest first.
    pub fn varint(&mut self, mut value: u128) {
        while value >= 0x80 {
            self.push(value as u8 | 0x80);
            value >>= 7;
        }
        self.push(value as u8);
    }

    /// The position of the next value.
    pub fn mark(&self) -> Mark {
        Mark { offset: self.len(), skip: None, bit: None }
    }
}

/// The position of a value in a stream that is not compressed yet.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Mark {
    pub offset: usize,
    /// Values to skip after `offset`, in a run length encoded stream.
    pub skip: Option<usize>,
    /// Bits to skip after those, in a bit stream.
    pub bit: Option<u8>,
}

/// A stream as it is stored in the file.
pub(crate) struct PackedStream {
    pub pieces: Vec<Vec<u8>>,
    pub len: u64,
    /// Offsets of its chunks; empty if uncompressed.
    starts: Vec<u64>,
}

impl PackedStream {
    /// Appends the row index entry of a position in the stream.
    pub fn position(&self, mark: Mark, positions: &mut Vec<u64>) {
        if self.starts.is_empty() {
            positions.push(mark.offset as u64);
        } else {
            positions.push(self.starts[mark.offset / CHUNK_BYTES]);
            positions.push((mark.offset % CHUNK_BYTES) as u64);
        }
        positions.extend(mark.skip.map(|skip| skip as u64));
        positions.extend(mark.bit.map(u64::from));
    }
}

/// A chunk compressor.
pub(crate) struct Packer {
    codec: Codec,
    zstd: Option<zstd::bulk::Compressor<'static>>,
    zlib: Compress,
    snappy: snap::raw::Encoder,
}

impl Packer {
    pub fn new(codec: Codec) -> io::Result<Self> {
        let zstd = match codec {
            Codec::Zstd => Some(zstd::bulk::Compressor::new(zstd::DEFAULT_COMPRESSION_LEVEL)?),
            _ => None,
        };
        // Raw deflate: without zlib's header and checksum.
        let zlib = Compress::new(Compression::default(), false);
        Ok(Self { codec, zstd, zlib, snappy: snap::raw::Encoder::new() })
    }

    pub fn pack(&mut self, stream: Stream) -> io::Result<PackedStream> {
        let mut chunks = stream.full;
        let ends_whole = stream.last.is_empty();
        chunks.push(stream.last);
        if self.codec == Codec::None {
            let len = chunks.iter().map(|chunk| chunk.len() as u64).sum();
            return Ok(PackedStream { pieces: chunks, len, starts: Vec::new() });
        }
        let mut packed = PackedStream { pieces: Vec::new(), len: 0, starts: Vec::new() };
        let last = chunks.len() - 1;
        for (at, chunk) in chunks.into_iter().enumerate() {
            packed.starts.push(packed.len);
            // A mark may be at the end of the stream, where no chunk starts.
            if at == last && ends_whole {
                break;
            }
            let (bytes, is_original) = match self.compress(&chunk)? {
                Some(smaller) => (smaller, false),
                None => (chunk, true),
            };
            let header = ((bytes.len() as u32) << 1 | u32::from(is_original)).to_le_bytes();
            packed.pieces.push(header[..3].to_vec());
            packed.len += 3 + bytes.len() as u64;
            packed.pieces.push(bytes);
        }
        Ok(packed)
    }

    /// `None` if compression does not make it smaller.
    fn compress(&mut self, chunk: &[u8]) -> io::Result<Option<Vec<u8>>> {
        let mut output = match self.codec {
            Codec::None => return Ok(None),
            Codec::Zlib => {
                self.zlib.reset();
                let mut output = Vec::with_capacity(chunk.len());
                let status = self.zlib.compress_vec(chunk, &mut output, FlushCompress::Finish)?;
                if status != Status::StreamEnd {
                    return Ok(None);
                }
                output
            }
            Codec::Snappy => self.snappy.compress_vec(chunk)?,
            Codec::Lz4 => lz4_flex::block::compress(chunk),
            Codec::Zstd => match &mut self.zstd {
                Some(zstd) => zstd.compress(chunk)?,
                None => return Ok(None),
            },
        };
        output.shrink_to_fit();
        Ok((output.len() < chunk.len()).then_some(output))
    }
}
