//! Loading libibverbs and librdmacm.
//!
//! Nothing of rdma-core is needed to build: the libraries are opened when the first `rdma://` address is used. With the
//! cargo feature `rdma-sys` they are linked instead, and the same table of functions is filled with the linked ones.

use std::sync::OnceLock;

use super::bindings::Functions;
use super::device::fork_init;
use crate::error::TransportError;

/// Declares the table of C functions, and for each of them a function of its name that calls it.
macro_rules! functions {
    ($(pub fn $name:ident($($argument:ident: $type:ty),* $(,)?) $(-> $result:ty)?;)*) => {
        /// The functions of libibverbs and librdmacm.
        pub(super) struct Functions {
            $($name: unsafe extern "C" fn($($type),*) $(-> $result)?,)*
        }

        impl Functions {
            /// Fills the table with what `find` returns for each name.
            ///
            /// # Safety
            /// `find` returns the address of the C function of that name, which stays where it is.
            #[cfg(not(feature = "rdma-sys"))]
            pub(super) unsafe fn find<E>(
                mut find: impl FnMut(&'static str) -> Result<*const (), E>,
            ) -> Result<Self, E> {
                Ok(Self {
                    $($name: {
                        let address = find(stringify!($name))?;
                        // SAFETY: the function of this name, by the contract. That its C declaration has this
                        // signature is what bindgen read in the header and the test `judge` compares with rdma-sys.
                        unsafe { std::mem::transmute::<*const (), unsafe extern "C" fn($($type),*) $(-> $result)?>(address) }
                    },)*
                })
            }

            /// The table of the functions that this program was linked with.
            #[cfg(feature = "rdma-sys")]
            pub(super) fn linked() -> Self {
                Self {
                    $($name: {
                        let address = rdma_sys::$name as *const ();
                        // SAFETY: rdma-sys declares the same C function. Its types have other names and, as the test
                        // `judge` shows, the same layout.
                        unsafe { std::mem::transmute::<*const (), unsafe extern "C" fn($($type),*) $(-> $result)?>(address) }
                    },)*
                }
            }

            /// The signature of each function: its name, ours, and that of rdma-sys.
            #[cfg(all(test, feature = "rdma-sys"))]
            pub(super) fn signatures() -> Vec<[&'static str; 3]> {
                vec![$([
                    stringify!($name),
                    std::any::type_name::<unsafe extern "C" fn($($type),*) $(-> $result)?>(),
                    super::judge::type_name_of(
                        rdma_sys::$name as unsafe extern "C" fn($(super::library::inferred!($type)),*) -> _
                    ),
                ]),*]
            }
        }

        $(
            /// # Safety
            /// As its manual page has it. The libraries are [loaded](super::library::load).
            pub(super) unsafe fn $name($($argument: $type),*) $(-> $result)? {
                // SAFETY: the same as ours.
                unsafe { (super::library::loaded().$name)($($argument),*) }
            }
        )*
    };
}
pub(super) use functions;

/// A type to be inferred, in the place of `type`.
#[cfg(all(test, feature = "rdma-sys"))]
macro_rules! inferred {
    ($type:ty) => {
        _
    };
}
#[cfg(all(test, feature = "rdma-sys"))]
pub(super) use inferred;

static LOADED: OnceLock<Functions> = OnceLock::new();

/// Makes sure that the libraries are there. Called before anything else in this module: every path to verbs begins in
/// `open` or `listen`, which call it.
///
/// A failure is not remembered: after the packages have been installed, the next attempt succeeds.
///
/// # Errors
/// [`TransportError::Library`] or [`TransportError::LibrarySymbol`] if a library or one of its functions is missing.
pub(in crate::verbs) fn load() -> Result<(), TransportError> {
    if LOADED.get().is_none() {
        let functions = open()?;
        LOADED.get_or_init(|| functions);
    }
    fork_init();
    Ok(())
}

/// The table of functions.
pub(super) fn loaded() -> &'static Functions {
    LOADED.get().expect("`load` was called before any object was made")
}

#[cfg(feature = "rdma-sys")]
fn open() -> Result<Functions, TransportError> {
    Ok(Functions::linked())
}

#[cfg(not(feature = "rdma-sys"))]
fn open() -> Result<Functions, TransportError> {
    open_named("libibverbs.so.1", "librdmacm.so.1")
}

/// Opens the libraries with these file names.
#[cfg(not(feature = "rdma-sys"))]
fn open_named(verbs: &'static str, cm: &'static str) -> Result<Functions, TransportError> {
    use std::io;
    use std::mem::ManuallyDrop;

    let open = |library| {
        // SAFETY: what the libraries do when they are opened does no harm to any program: it is what happens before
        // `main` in each program that is linked with them.
        let opened = unsafe { libloading::Library::new(library) };
        // Never closed: the functions in the table stay where they are.
        let opened = opened.map(ManuallyDrop::new);
        opened.map_err(|error| TransportError::Library { library, source: io::Error::other(error) })
    };
    let [verbs, cm] = [(verbs, open(verbs)?), (cm, open(cm)?)];
    let find = |name: &'static str| {
        let (library, opened) = if name.starts_with("rdma_") { &cm } else { &verbs };
        // SAFETY: the address of a function, which has the size of a pointer, is copied and not followed.
        let symbol = unsafe { opened.get::<*const ()>(name.as_bytes()) };
        match symbol {
            Ok(symbol) => Ok(*symbol),
            Err(error) => {
                let source = io::Error::other(error);
                Err(TransportError::LibrarySymbol { library, symbol: name, source })
            }
        }
    };
    // SAFETY: functions of these names are C functions with one meaning, which no version of the libraries has changed;
    // the libraries are never closed.
    unsafe { Functions::find(find) }
}

#[cfg(all(test, not(feature = "rdma-sys")))]
mod tests {
    use super::*;

    #[test]
    fn a_library_that_is_missing_is_named_with_the_packages_to_install() {
        for (verbs, cm, missing) in [
            ("libibverbs.so.none", "libc.so.6", "libibverbs.so.none"),
            ("libc.so.6", "librdmacm.so.none", "librdmacm.so.none"),
        ] {
            let error = open_named(verbs, cm).err().expect("no such library");
            assert!(matches!(error, TransportError::Library { .. }), "{error:?}");
            let text = error.to_string();
            for part in
                [missing, "libibverbs1 librdmacm1 ibverbs-providers", "dnf install libibverbs librdmacm"]
            {
                assert!(text.contains(part), "{text}");
            }
            let cause = std::error::Error::source(&error).expect("a cause").to_string();
            assert!(cause.contains("No such file"), "{cause}");
        }
    }

    #[test]
    fn a_library_without_a_function_is_named_with_the_function() {
        let error = open_named("libc.so.6", "libc.so.6").err().expect("no verbs in there");
        assert!(matches!(error, TransportError::LibrarySymbol { .. }), "{error:?}");
        let text = error.to_string();
        for part in ["libc.so.6", "ibv_", "rdma-core"] {
            assert!(text.contains(part), "{text}");
        }
    }
}
