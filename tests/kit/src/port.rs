//! A port for a server that a test starts later.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use socket2::{Domain, Socket, Type};

/// A TCP port that is bound but not listened on, until it is dropped. Connects to it are refused, and the system gives it to no other
/// program; a server that asks for this port by its number can listen on it. A port that was free a moment ago has neither.
#[derive(Debug)]
pub struct ReservedPort {
    _bound: Socket,
    addr: SocketAddr,
}

impl ReservedPort {
    /// One of 127.0.0.1.
    ///
    /// # Panics
    /// If no port is free.
    #[must_use]
    pub fn new() -> Self {
        Self::at(Ipv4Addr::LOCALHOST.into())
    }

    /// One of an address of this machine.
    ///
    /// # Panics
    /// If no port is free, or the address is another machine's.
    #[must_use]
    pub fn at(host: IpAddr) -> Self {
        let any = SocketAddr::new(host, 0);
        let bound = Socket::new(Domain::for_address(any), Type::STREAM, None).expect("a socket");
        // With it on both sockets, the server may bind the port too.
        bound.set_reuse_address(true).expect("a socket");
        bound.bind(&any.into()).expect("a free port");
        let addr = bound.local_addr().expect("bound").as_socket().expect("an address of IP");
        Self { _bound: bound, addr }
    }

    /// Where a server may listen.
    #[must_use]
    pub fn addr(&self) -> SocketAddr {
        self.addr
    }
}

impl Default for ReservedPort {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::{TcpListener, TcpStream};

    #[test]
    fn only_who_asks_for_it_by_number_gets_a_reserved_port() {
        let reserved = ReservedPort::new();
        assert!(TcpStream::connect(reserved.addr()).is_err());
        // As the system chooses ports for those that ask for any.
        let other = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
        other.bind(&reserved.addr().into()).unwrap_err();
        for _outage in 0..2 {
            let listener = TcpListener::bind(reserved.addr()).unwrap();
            TcpStream::connect(reserved.addr()).unwrap();
            drop(listener);
        }
    }
}
