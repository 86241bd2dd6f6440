//! Function table and constants of an MPI library, generic over the handle type.
//!
//! The three binary interfaces differ in the type of a handle, in the origin of predefined handles and
//! constants, and in the layout of `MPI_Status`; the functions that Harrier calls have the same C signature
//! in all of them. The numbers are those of Open MPI 4.1 and 5.0 `mpi.h`, of MPICH 4 `mpi.h` (fixed by the
//! MPICH ABI Compatibility Initiative), and of MPI 5.0 appendix A (`mpi_abi.h`).
#![allow(unsafe_code)]

use std::ffi::{c_char, c_int, c_void};
use std::path::Path;

use libloading::os::unix::Library;

use crate::{Abi, MpiError};

/// An `MPI_Comm`, `MPI_Datatype`, `MPI_Request`, `MPI_Message` or `MPI_Errhandler`: all have the same type
/// within one binary interface.
pub(crate) trait Handle: Copy + Eq + std::fmt::Debug + 'static {}

/// Open MPI and the standard interface: pointers, stored as addresses since Harrier never dereferences them.
impl Handle for usize {}

/// MPICH.
impl Handle for c_int {}

/// The table of a loaded library.
pub(crate) enum AnyTable {
    /// Open MPI, and the standard interface.
    Pointers(Table<usize>),
    /// MPICH.
    Integers(Table<c_int>),
}

/// `MPI_Status`, or an array of them, by offsets in bytes.
#[derive(Clone, Copy)]
pub(crate) struct StatusLayout {
    /// The size of one, which is also the stride of an array.
    pub(crate) size: usize,
    source: usize,
    tag: usize,
    error: usize,
}

/// Memory for an array of `MPI_Status`, large and aligned enough for every interface.
pub(crate) struct Statuses {
    layout: StatusLayout,
    words: Vec<u64>,
}

impl Statuses {
    pub(crate) fn new(layout: StatusLayout) -> Statuses {
        let mut statuses = Statuses { layout, words: Vec::new() };
        statuses.reserve(1);
        statuses
    }

    /// Makes room for `count` statuses.
    pub(crate) fn reserve(&mut self, count: usize) {
        let words = (count * self.layout.size).div_ceil(size_of::<u64>());
        if words > self.words.len() {
            self.words.resize(words.next_power_of_two(), 0);
        }
    }

    pub(crate) fn as_mut_ptr(&mut self) -> *mut c_void {
        self.words.as_mut_ptr().cast()
    }

    pub(crate) fn source(&self, index: usize) -> c_int {
        self.field(index, self.layout.source)
    }

    pub(crate) fn tag(&self, index: usize) -> c_int {
        self.field(index, self.layout.tag)
    }

    pub(crate) fn error(&self, index: usize) -> c_int {
        self.field(index, self.layout.error)
    }

    fn field(&self, index: usize, offset: usize) -> c_int {
        let start = index * self.layout.size + offset;
        assert!(start + size_of::<c_int>() <= size_of_val(self.words.as_slice()));
        // SAFETY: the field lies within `words`, which this object owns and which is initialised; MPI wrote
        // it, if at all, in a call that has returned, on this thread.
        unsafe { self.words.as_ptr().cast::<u8>().add(start).cast::<c_int>().read_unaligned() }
    }
}

macro_rules! table {
    ($(#[$attribute:meta])* $($field:ident = $symbol:literal ( $($argument:ty),* );)*) => {
        $(#[$attribute])*
        #[derive(Clone)]
        pub(crate) struct Table<H> {
            pub(crate) constants: Constants<H>,
            $(pub(crate) $field: unsafe extern "C" fn($($argument),*) -> c_int,)*
        }

        impl<H: Handle> Table<H> {
            fn resolve(library: &Library, path: &Path, constants: Constants<H>) -> Result<Table<H>, MpiError> {
                Ok(Table {
                    constants,
                    $($field: {
                        let symbol = address(library, path, $symbol)?;
                        // SAFETY: the symbol is the MPI function of that name, whose C signature, with the
                        // handles of the interface that `constants` were made for, is the type of this field.
                        // The library is never unloaded.
                        unsafe { std::mem::transmute::<*mut c_void, unsafe extern "C" fn($($argument),*) -> c_int>(symbol) }
                    },)*
                })
            }
        }
    };
}

table! {
    /// The functions of an MPI library with handles of the type `H`. Statuses and output handles are passed
    /// by pointer.
    init_thread = "MPI_Init_thread"(*mut c_int, *mut *mut *mut c_char, c_int, *mut c_int);
    initialized = "MPI_Initialized"(*mut c_int);
    finalize = "MPI_Finalize"();
    abort = "MPI_Abort"(H, c_int);
    comm_rank = "MPI_Comm_rank"(H, *mut c_int);
    comm_size = "MPI_Comm_size"(H, *mut c_int);
    comm_dup = "MPI_Comm_dup"(H, *mut H);
    comm_free = "MPI_Comm_free"(*mut H);
    comm_set_errhandler = "MPI_Comm_set_errhandler"(H, H);
    error_string = "MPI_Error_string"(c_int, *mut c_char, *mut c_int);
    error_class = "MPI_Error_class"(c_int, *mut c_int);
    allgather = "MPI_Allgather"(*const c_void, c_int, H, *mut c_void, c_int, H, H);
    allgatherv = "MPI_Allgatherv"(*const c_void, c_int, H, *mut c_void, *const c_int, *const c_int, H, H);
    isend = "MPI_Isend"(*const c_void, c_int, H, c_int, c_int, H, *mut H);
    improbe = "MPI_Improbe"(c_int, c_int, H, *mut c_int, *mut H, *mut c_void);
    imrecv = "MPI_Imrecv"(*mut c_void, c_int, H, *mut H, *mut H);
    get_count = "MPI_Get_count"(*const c_void, H, *mut c_int);
    testsome = "MPI_Testsome"(c_int, *mut H, *mut c_int, *mut c_int, *mut c_void);
}

/// The constants of an MPI library.
#[derive(Clone)]
pub(crate) struct Constants<H> {
    pub(crate) comm_world: H,
    pub(crate) comm_null: H,
    pub(crate) byte: H,
    pub(crate) errors_return: H,
    pub(crate) request_null: H,
    pub(crate) message_null: H,
    pub(crate) any_source: c_int,
    pub(crate) any_tag: c_int,
    pub(crate) undefined: c_int,
    pub(crate) thread_funneled: c_int,
    /// The class of errors reported in the statuses.
    pub(crate) error_in_status: c_int,
    /// Maximum length of `MPI_Error_string`, including the final zero.
    pub(crate) error_string_max: usize,
    pub(crate) status: StatusLayout,
}

/// Resolves the table of `library`, which has the binary interface `abi`.
pub(crate) fn table(library: &Library, path: &Path, abi: Abi) -> Result<AnyTable, MpiError> {
    Ok(match abi {
        Abi::OpenMpi => AnyTable::Pointers(Table::resolve(library, path, open_mpi(library, path)?)?),
        Abi::Mpich => AnyTable::Integers(Table::resolve(library, path, MPICH)?),
        Abi::Standard => AnyTable::Pointers(Table::resolve(library, path, STANDARD)?),
    })
}

/// Open MPI's predefined handles are the addresses of objects that it exports.
fn open_mpi(library: &Library, path: &Path) -> Result<Constants<usize>, MpiError> {
    let object = |symbol| address(library, path, symbol).map(|pointer| pointer as usize);
    Ok(Constants {
        comm_world: object("ompi_mpi_comm_world")?,
        comm_null: object("ompi_mpi_comm_null")?,
        byte: object("ompi_mpi_byte")?,
        errors_return: object("ompi_mpi_errors_return")?,
        request_null: object("ompi_request_null")?,
        message_null: object("ompi_message_null")?,
        any_source: -1,
        any_tag: -1,
        undefined: -32766,
        thread_funneled: 1,
        error_in_status: 18,
        error_string_max: 256,
        // MPI_SOURCE, MPI_TAG, MPI_ERROR, an int, a size_t.
        status: StatusLayout { size: 24, source: 0, tag: 4, error: 8 },
    })
}

const MPICH: Constants<c_int> = Constants {
    comm_world: 0x4400_0000,
    comm_null: 0x0400_0000,
    byte: 0x4c00_010d,
    errors_return: 0x5400_0001,
    request_null: 0x2c00_0000,
    message_null: 0x2c00_0000,
    any_source: -2,
    any_tag: -1,
    undefined: -32766,
    thread_funneled: 1,
    error_in_status: 17,
    error_string_max: 512,
    // Two ints, MPI_SOURCE, MPI_TAG, MPI_ERROR.
    status: StatusLayout { size: 20, source: 8, tag: 12, error: 16 },
};

const STANDARD: Constants<usize> = Constants {
    comm_world: 0x101,
    comm_null: 0x100,
    byte: 0x247,
    errors_return: 0x143,
    request_null: 0x180,
    message_null: 0x128,
    any_source: -1,
    any_tag: -2,
    undefined: -32766,
    thread_funneled: 1024,
    error_in_status: 19,
    error_string_max: 512,
    // MPI_SOURCE, MPI_TAG, MPI_ERROR, five ints.
    status: StatusLayout { size: 32, source: 0, tag: 4, error: 8 },
};

/// Maximum length of `MPI_Get_library_version` in any interface, including the final zero.
const LIBRARY_VERSION_MAX: usize = 8192;

/// Identifies the interface and version of `library`, by its symbols and its version text. `None` if unknown;
/// the text is empty if it is not MPI.
pub(crate) fn identify(library: &Library) -> (Option<Abi>, String) {
    let Some(version) = find(library, "MPI_Get_library_version") else {
        return (None, String::new());
    };
    let mut text = vec![0u8; LIBRARY_VERSION_MAX];
    let mut length: c_int = 0;
    // SAFETY: the C signature of MPI_Get_library_version, which may be called before MPI is initialised and
    // from any thread; it writes at most as much as `text` holds, and `text` and `length` outlive the call.
    let code = unsafe {
        let version: unsafe extern "C" fn(*mut c_char, *mut c_int) -> c_int = std::mem::transmute(version);
        version(text.as_mut_ptr().cast(), &mut length)
    };
    let text = if code == 0 { text_until_zero(&text) } else { String::new() };

    // A library with the standard interface returns its version; one of another interface returns -1.
    if let Some(function) = find(library, "MPI_Abi_get_version") {
        let (mut major, mut minor): (c_int, c_int) = (-1, -1);
        // SAFETY: the C signature of MPI_Abi_get_version, which may be called before MPI is initialised and
        // from any thread; the two places outlive the call.
        let code = unsafe {
            let function: unsafe extern "C" fn(*mut c_int, *mut c_int) -> c_int =
                std::mem::transmute(function);
            function(&mut major, &mut minor)
        };
        if code == 0 && major == 1 {
            return (Some(Abi::Standard), text);
        }
    }
    if find(library, "ompi_mpi_comm_world").is_some() {
        return (Some(Abi::OpenMpi), text);
    }
    let descends_from_mpich = ["MPICH", "MVAPICH", "Intel(R) MPI"].iter().any(|name| text.contains(name));
    (descends_from_mpich.then_some(Abi::Mpich), text)
}

/// The text up to its first zero byte.
pub(crate) fn text_until_zero(bytes: &[u8]) -> String {
    let end = bytes.iter().position(|&byte| byte == 0).unwrap_or(bytes.len());
    String::from_utf8_lossy(&bytes[..end]).trim().to_string()
}

fn address(library: &Library, path: &Path, symbol: &str) -> Result<*mut c_void, MpiError> {
    find(library, symbol)
        .ok_or_else(|| MpiError::SymbolMissing { library: path.to_owned(), symbol: symbol.to_string() })
}

/// The address of `symbol`, `None` if the library has no such symbol.
pub(crate) fn find(library: &Library, symbol: &str) -> Option<*mut c_void> {
    // SAFETY: the address is only taken here; the code that uses it justifies the type.
    let found = unsafe { library.get::<*mut c_void>(symbol) }.ok()?.as_raw_ptr();
    (!found.is_null()).then_some(found)
}
