//! Check at start-up that the processor supports the instruction set of this build: otherwise its first AVX2
//! instruction would end the process with SIGILL and no message.
//!
//! It is in this crate because it needs `unsafe`, and in `.init_array`, whose functions run before `main`; it
//! uses only instructions of the first 64-bit processors.
//!
//! Source: the psABI of x86-64 (levels of the architecture); Intel's manual, CPUID, leaves 1 and 7 and
//! 0x80000001.

#![allow(unsafe_code)]

/// Call it from `main`, so that the linker keeps the code that runs before it.
pub fn check() {
    #[cfg(all(target_arch = "x86_64", target_feature = "avx2"))]
    x86_64::check();
}

#[cfg(all(target_arch = "x86_64", target_feature = "avx2"))]
mod x86_64 {
    use std::arch::x86_64::{__cpuid, __cpuid_count};

    const MESSAGE: &[u8] = b"ERROR 55000: this processor has no AVX2, which this build is for (x86-64-v3)\n\
        HINT: build one for it: RUSTFLAGS=\"-C target-cpu=x86-64\" cargo build --release\n";

    /// Exit status of `harrier` when it cannot work here.
    const STATUS: i32 = 3;

    // SAFETY: the section is a list of functions of this type; the first of them is called before those of
    // libraries.
    #[used]
    #[unsafe(link_section = ".init_array.00001")]
    static BEFORE_MAIN: extern "C" fn() = check;

    pub(super) extern "C" fn check() {
        if !has_all() {
            // SAFETY: the bytes are there as long as the process.
            unsafe {
                libc::write(libc::STDERR_FILENO, MESSAGE.as_ptr().cast(), MESSAGE.len());
                libc::_exit(STATUS);
            }
        }
    }

    /// Whether all features of x86-64-v3 that compilers use are present: FMA, MOVBE, OSXSAVE, AVX, F16C;
    /// BMI1, AVX2, BMI2; LZCNT.
    fn has_all() -> bool {
        const LEAF_1: u32 = 1 << 12 | 1 << 22 | 1 << 27 | 1 << 28 | 1 << 29;
        const LEAF_7: u32 = 1 << 3 | 1 << 5 | 1 << 8;
        const LEAF_EXTENDED: u32 = 1 << 5;
        let has = |register: u32, bits: u32| register & bits == bits;
        __cpuid(0).eax >= 7
            && has(__cpuid(1).ecx, LEAF_1)
            && has(__cpuid_count(7, 0).ebx, LEAF_7)
            && has(__cpuid(0x8000_0001).ecx, LEAF_EXTENDED)
    }
}
