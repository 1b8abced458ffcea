//! The table of C functions, which the libraries' functions are put into when they are loaded.

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
                        // signature is what bindgen read in the header and the test `compare_bindings` compares with rdma-sys.
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
                        // `compare_bindings` shows, the same layout.
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
                    std::any::type_name_of_val(&(rdma_sys::$name as unsafe extern "C" fn($(super::table::inferred!($type)),*) -> _)),
                ]),*]
            }
        }

        /// Filled by `library`.
        pub(super) static LOADED: std::sync::OnceLock<Functions> = std::sync::OnceLock::new();

        fn loaded() -> &'static Functions {
            LOADED.get().expect("the libraries are loaded before any object is made")
        }

        $(
            /// # Safety
            /// As its manual page has it. The libraries are loaded.
            pub(super) unsafe fn $name($($argument: $type),*) $(-> $result)? {
                // SAFETY: the same as ours.
                unsafe { (loaded().$name)($($argument),*) }
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
