//! Loading libibverbs and librdmacm.
//!
//! Nothing of rdma-core is needed to build: the libraries are opened when the first `rdma://` address is used. With the
//! cargo feature `rdma-sys` they are linked instead, and the same table of functions is filled with the linked ones.

use std::process;
use std::sync::OnceLock;

use super::bindings::{Functions, LOADED};
use super::device::fork_init;
use crate::error::TransportError;

/// Makes sure that the libraries are there. Called before anything else in this module: every path to verbs begins in
/// `open` or `listen`, which call it.
///
/// A failure is not remembered: after the packages have been installed, the next attempt succeeds.
///
/// # Errors
/// [`TransportError::Library`] or [`TransportError::LibrarySymbol`] if a library or one of its functions is missing,
/// [`TransportError::Forked`] in a child of the process that loaded them.
pub(in crate::verbs) fn load() -> Result<(), TransportError> {
    if LOADED.get().is_none() {
        let functions = open()?;
        LOADED.get_or_init(|| functions);
    }
    check_process(*LOADED_BY.get_or_init(process::id), process::id())?;
    fork_init();
    Ok(())
}

/// The process that loaded the libraries.
static LOADED_BY: OnceLock<u32> = OnceLock::new();

/// librdmacm opens each device once and never again, and the kernel refuses work from a child of the process that opened it.
fn check_process(loaded_by: u32, this: u32) -> Result<(), TransportError> {
    if loaded_by == this { Ok(()) } else { Err(TransportError::Forked { parent: loaded_by }) }
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
        opened.map_err(|error| TransportError::Library { library, source: io::Error::other(error).into() })
    };
    let [verbs, cm] = [(verbs, open(verbs)?), (cm, open(cm)?)];
    let find = |name: &'static str| {
        let (library, opened) = if name.starts_with("rdma_") { &cm } else { &verbs };
        // SAFETY: the address of a function, which has the size of a pointer, is copied and not followed.
        let symbol = unsafe { opened.get::<*const ()>(name.as_bytes()) };
        match symbol {
            Ok(symbol) => Ok(*symbol),
            Err(error) => {
                let source = io::Error::other(error).into();
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
    fn a_forked_child_learns_why_it_cannot_use_rdma() {
        assert!(check_process(7, 7).is_ok());
        let error = check_process(7, 8).expect_err("a child").to_string();
        assert!(error.contains("process 7") && error.contains("forked"), "{error}");
    }

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
