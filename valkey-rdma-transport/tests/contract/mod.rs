//! The device contract, as one suite for every device and every link. See `device_peer` for how one is chosen.

mod connecting;
mod ending;
mod events;
mod lending;
mod local_bugs;
mod messages;
mod rally;
mod reads;
mod threads;
mod writes;

use valkey_rdma_proto::work::SendOp;

use super::device_peer::Peer;

fn write_to(peer: &Peer, offset: u64) -> SendOp {
    SendOp::Write { addr: peer.window.addr + offset, rkey: peer.window.rkey }
}

fn announce_to(peer: &Peer, offset: u64, imm: u32) -> SendOp {
    SendOp::WriteWithImm { addr: peer.window.addr + offset, rkey: peer.window.rkey, imm }
}

fn pattern(seed: u8, len: u32) -> Vec<u8> {
    (0..len).map(|n| (n as u8).wrapping_mul(31).wrapping_add(seed)).collect()
}
