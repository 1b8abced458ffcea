//! What converts from RESP2 converts from RESP3 too, to the same: programs that change the protocol go on.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Debug;

use bytes::{Buf, Bytes};
use proptest::collection::vec;
use proptest::prelude::*;
use valkey_rdma_resp::{Decoder, FromValue, Output, Protocol, Reply, Value, encode};

/// Replies that are not aggregates.
fn scalar() -> impl Strategy<Value = Reply> {
    prop_oneof![
        "[a-zA-Z ]{0,20}".prop_map(Reply::simple),
        Just(Reply::OK),
        any::<i64>().prop_map(Reply::Integer),
        (-2..3_i64).prop_map(Reply::Integer),
        "[01x]".prop_map(Reply::bulk),
        vec(any::<u8>(), 0..20).prop_map(Reply::bulk),
        Just(Reply::Null),
        any::<f64>().prop_map(Reply::Double),
        any::<i32>().prop_map(|number| Reply::Double(number.into())),
        (-2..3_i8).prop_map(|number| Reply::Double(number.into())),
        Just(Reply::Double(f64::NAN)),
        Just(Reply::Double(f64::INFINITY)),
        any::<bool>().prop_map(Reply::Bool),
        "-?[1-9][0-9]{0,40}".prop_map(|digits| Reply::BigNumber(digits.into())),
        "[a-z0-9]{0,20}".prop_map(|text| Reply::Verbatim { format: *b"txt", text: text.into() }),
    ]
}

fn decoded(reply: &Reply, protocol: Protocol) -> Value {
    let mut output = Output::default();
    encode(reply, protocol, &mut output);
    let mut decoder = Decoder::new(protocol);
    let len = output.remaining();
    decoder.room().extend_from_slice(&output.copy_to_bytes(len));
    decoder.next().expect("well-formed").expect("complete")
}

fn same<T: FromValue + Debug>(reply: &Reply) {
    let Ok(resp2) = decoded(reply, Protocol::Resp2).convert::<T>() else { return };
    match decoded(reply, Protocol::Resp3).convert::<T>() {
        // Not equality: NaN is not equal to itself.
        Ok(resp3) => assert_eq!(format!("{resp2:?}"), format!("{resp3:?}"), "{reply:?}"),
        Err(error) => panic!("{reply:?} is {resp2:?} from RESP2, and from RESP3: {error}"),
    }
}

fn same_for_scalars(reply: &Reply) {
    same::<bool>(reply);
    same::<i8>(reply);
    same::<u8>(reply);
    same::<i32>(reply);
    same::<u32>(reply);
    same::<i64>(reply);
    same::<u64>(reply);
    same::<i128>(reply);
    same::<u128>(reply);
    same::<usize>(reply);
    same::<f64>(reply);
    same::<char>(reply);
    same::<String>(reply);
    same::<Bytes>(reply);
    same::<Vec<u8>>(reply);
    same::<[u8; 1]>(reply);
    same::<()>(reply);
    same::<Option<i64>>(reply);
    same::<Option<String>>(reply);
}

proptest! {
    #[test]
    fn scalars(reply in scalar()) {
        same_for_scalars(&reply);
    }

    #[test]
    fn arrays_and_sets(items in vec(scalar(), 0..5), is_set in any::<bool>()) {
        let reply = if is_set { Reply::Set(items) } else { Reply::Array(items) };
        same::<Vec<String>>(&reply);
        same::<Vec<Option<i64>>>(&reply);
        same::<Vec<bool>>(&reply);
        same::<BTreeSet<Vec<u8>>>(&reply);
        same::<(String, i64)>(&reply);
        same::<(f64, bool, Option<String>)>(&reply);
        same::<[String; 2]>(&reply);
        same::<Option<(String, bool)>>(&reply);
    }

    #[test]
    fn maps(pairs in vec((scalar(), scalar()), 0..4)) {
        let reply = Reply::Map(pairs);
        same::<BTreeMap<String, String>>(&reply);
        same::<BTreeMap<Vec<u8>, bool>>(&reply);
        same::<Vec<(String, f64)>>(&reply);
        same::<(String, String)>(&reply);
        same::<(String, i64, String, bool)>(&reply);
        same::<Option<(String, String)>>(&reply);
    }
}
