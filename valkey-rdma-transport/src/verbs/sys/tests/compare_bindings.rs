//! Compares the bindings with those that rdma-sys makes from the headers of the machine that builds: sizes, alignments,
//! offsets, constants and signatures.
//!
//! Not compared: types of which only pointers are used, and the `RDMA_OPTION_*` constants, which rdma-sys lacks.

use std::mem::{MaybeUninit, align_of, offset_of, size_of};

use crate::verbs::sys::bindings as ours;

/// What is compared of one type: its size and alignment in bytes, and of each field the name, offset and size.
#[derive(Debug, PartialEq, Eq)]
struct Layout {
    size: usize,
    alignment: usize,
    fields: Vec<(&'static str, usize, usize)>,
}

macro_rules! layout {
    ($type:ty, $($field:ident)*) => {
        Layout {
            size: size_of::<$type>(),
            alignment: align_of::<$type>(),
            fields: vec![$({
                let value = MaybeUninit::<$type>::uninit();
                let value = value.as_ptr();
                // SAFETY: a place inside of the value, of which only the address is taken.
                let field = unsafe { &raw const (*value).$field };
                (stringify!($field), offset_of!($type, $field), pointee_size(field))
            }),*],
        }
    };
}

fn pointee_size<T>(_: *const T) -> usize {
    size_of::<T>()
}

/// The type of rdma-sys for one of ours.
macro_rules! theirs {
    (ibv_gid_global) => {
        rdma_sys::ibv_gid_global_t
    };
    (ibv_async_event_element) => {
        rdma_sys::ibv_async_event_element_t
    };
    (ibv_wc_imm) => {
        rdma_sys::imm_data_invalidated_rkey_union_t
    };
    (ibv_send_wr_imm) => {
        rdma_sys::imm_data_invalidated_rkey_union_t
    };
    (ibv_send_wr_rdma) => {
        rdma_sys::rdma_t
    };
    (ibv_send_wr_atomic) => {
        rdma_sys::atomic_t
    };
    (ibv_send_wr_ud) => {
        rdma_sys::ud_t
    };
    (ibv_send_wr_remote) => {
        rdma_sys::wr_t
    };
    (ibv_send_wr_xrc) => {
        rdma_sys::xrc_t
    };
    (ibv_send_wr_qp_type) => {
        rdma_sys::qp_type_t
    };
    (ibv_send_wr_bind_mw) => {
        rdma_sys::bind_mw_t
    };
    (ibv_send_wr_tso) => {
        rdma_sys::tso_t
    };
    (ibv_send_wr_extra) => {
        rdma_sys::bind_mw_tso_union_t
    };
    (rdma_addr_src) => {
        rdma_sys::src_addr_union_t
    };
    (rdma_addr_dst) => {
        rdma_sys::dst_addr_union_t
    };
    (rdma_addr_addr) => {
        rdma_sys::addr_union_t
    };
    (rdma_cm_event_param) => {
        rdma_sys::param_t
    };
    ($type:ident) => {
        rdma_sys::$type
    };
}

/// The constant of rdma-sys, which has them in several shapes.
macro_rules! their_constant {
    (ibv_fork_status, $name:ident) => {
        rdma_sys::$name.number()
    };
    ($enum:ident, $name:ident) => {
        rdma_sys::$enum::$name.number()
    };
}

trait Number {
    fn number(self) -> i64;
}

macro_rules! number {
    ($($type:ty, $value:ident => $number:expr;)*) => {
        $(impl Number for $type {
            fn number(self) -> i64 {
                let $value = self;
                i64::from($number)
            }
        })*
    };
}

number! {
    u32, value => value;
    i32, value => value;
    rdma_sys::ibv_access_flags, value => value.0;
    rdma_sys::ibv_send_flags, value => value.0;
    rdma_sys::ibv_wc_flags, value => value.0;
    rdma_sys::ibv_qp_attr_mask, value => value.0;
    rdma_sys::ibv_event_type, value => value as u32;
}

macro_rules! items {
    ($(type $type:ident: $($field:ident)*;)* $(enum $enum:ident: $($name:ident)*;)*) => {
        /// The name of each type, its layout here and in rdma-sys.
        fn layouts() -> Vec<(&'static str, Layout, Layout)> {
            vec![$((
                stringify!($type),
                layout!(ours::$type, $($field)*),
                layout!(theirs!($type), $($field)*),
            )),*]
        }

        /// The name of each constant, its value here and in rdma-sys.
        fn constants() -> Vec<(&'static str, i64, i64)> {
            vec![$($((
                stringify!($name),
                ours::$enum::$name.number(),
                their_constant!($enum, $name),
            ),)*)*]
        }
    };
}

include!("compare_bindings/items.rs");

/// A signature without the modules that its types live in. C's one enumeration that rdma-sys makes a Rust one is a number.
fn plain(signature: &str) -> String {
    let is_name = |letter: char| letter.is_alphanumeric() || letter == '_' || letter == ':';
    let mut plain = String::new();
    let mut name = String::new();
    for letter in signature.chars().chain(['\n']) {
        if is_name(letter) {
            name.push(letter);
            continue;
        }
        plain.push_str(match name.rsplit("::").next().unwrap_or_default() {
            "ibv_event_type" => "u32",
            last => last,
        });
        name.clear();
        plain.push(letter);
    }
    plain
}

#[test]
fn every_type_has_the_layout_that_rdma_sys_gives_it() {
    let layouts = layouts();
    assert!(layouts.len() > 40, "{} types", layouts.len());
    for (name, ours, theirs) in layouts {
        assert_eq!(ours, theirs, "{name}");
    }
}

#[test]
fn every_constant_has_the_value_that_rdma_sys_gives_it() {
    let constants = constants();
    assert!(constants.len() > 150, "{} constants", constants.len());
    for (name, ours, theirs) in constants {
        assert_eq!(ours, theirs, "{name}");
    }
}

#[test]
fn every_function_has_the_signature_that_rdma_sys_gives_it() {
    let signatures = ours::Functions::signatures();
    assert!(signatures.len() > 40, "{} functions", signatures.len());
    for [name, ours, theirs] in signatures {
        assert_eq!(plain(ours), plain(theirs), "{name}");
    }
}

#[test]
fn a_signature_that_differs_is_noticed() {
    let number = plain("unsafe extern \"C\" fn(*mut a::b::T, i32) -> *mut c::U");
    assert_eq!(number, plain("unsafe extern \"C\" fn(*mut T, i32) -> *mut d::U"));
    assert_ne!(number, plain("unsafe extern \"C\" fn(*mut T, u32) -> *mut d::U"));
}
