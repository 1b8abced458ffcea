//! [`Door`]: a gateway whose listeners are encrypted, and its issuer.

use std::net::SocketAddr;

use tokio::net::TcpStream;
use valkey_rdma_gateway::{Activation, Config, Gateway, Limits, Listen, RouteConfig, RouteTls, Share};
use valkey_rdma_testkit::{Authority, Pair};
use valkey_rdma_transport::tls::{ClientTls, TlsConnector, TlsError};
use valkey_rdma_transport::{AnyStream, Config as TransportConfig, DeviceKind, FeatureSet, Stream};

use crate::support::{Client, socket_path};

/// A gateway that listens on a Unix socket, and with TLS over TCP and the emulated device.
pub(crate) struct Door {
    pub(crate) gateway: Gateway,
    pub(crate) config: Config,
    pub(crate) issuer: Authority,
    pub(crate) pair: Pair,
    pub(crate) tcp: SocketAddr,
    pub(crate) device: SocketAddr,
    unix: std::path::PathBuf,
}

impl Door {
    pub(crate) async fn start(server: &str, share: Share) -> Self {
        Self::start_with(server, share, |_, _| {}).await
    }

    /// With other settings.
    pub(crate) async fn start_with(
        server: &str,
        share: Share,
        change: impl FnOnce(&mut Config, &Authority),
    ) -> Self {
        let issuer = Authority::new("Issuer of the gateway");
        let pair = issuer.issue(&["127.0.0.1", "localhost"]);
        let unix = format!("unix:{}", socket_path().display());
        let listen = [unix.as_str(), "tls:127.0.0.1:0", "emulateds:127.0.0.1:0"];
        let (cert, key) = (pair.cert.clone(), pair.key.clone());
        let tls = Some(RouteTls { cert, key, client_ca: None, client_auth: None });
        let listen = listen.map(|text| text.parse().unwrap()).into();
        let mut config = Config::new(RouteConfig { share, tls, ..RouteConfig::new(listen, server) });
        config.limits = Limits::default();
        change(&mut config, &issuer);
        let gateway = Gateway::start(&config, &Activation::default()).await.expect("starts");
        let listening = gateway.listening();
        let [Listen::Unix(unix), Listen::Tls(tcp), Listen::Emulateds(device)] = &listening[..] else {
            panic!("{listening:?}")
        };
        let (unix, tcp, device) = (unix.clone(), *tcp, *device);
        Self { gateway, config, issuer, pair, tcp, device, unix }
    }

    /// The URLs of its encrypted listeners.
    pub(crate) fn urls(&self) -> [String; 2] {
        let ca = self.issuer.ca();
        let ca = ca.display();
        [format!("valkeys://{}?ca={ca}", self.tcp), format!("emulateds://{}?ca={ca}", self.device)]
    }

    /// A client without TLS, of the Unix socket.
    pub(crate) async fn owner(&self) -> Client {
        Client::new(tokio::net::UnixStream::connect(&self.unix).await.unwrap())
    }

    /// The settings of a client that trusts the gateway.
    pub(crate) fn trusting(&self) -> ClientTls {
        ClientTls::default().with_ca(self.issuer.ca())
    }

    /// A TLS connection over TCP.
    pub(crate) async fn stream(&self, tls: ClientTls) -> Result<AnyStream, TlsError> {
        let stream = TcpStream::connect(self.tcp).await.unwrap();
        TlsConnector::new(tls).connect("127.0.0.1", AnyStream::Tcp(stream)).await
    }

    /// A TLS connection over the emulated device.
    pub(crate) async fn device_stream(&self) -> AnyStream {
        let config = TransportConfig::default().requires(FeatureSet::TLS);
        let stream = Stream::connect(DeviceKind::Emulated, self.device, &config).await.unwrap();
        TlsConnector::new(self.trusting()).connect("127.0.0.1", AnyStream::Device(stream)).await.unwrap()
    }

    /// A client over TLS and TCP.
    pub(crate) async fn client(&self) -> Client {
        Client::new(self.stream(self.trusting()).await.unwrap())
    }

    /// A number from INFO gateway.
    pub(crate) async fn info(&self, name: &str) -> u64 {
        self.owner().await.info(name).await
    }

    /// Waits until a number of INFO gateway has this value.
    pub(crate) async fn until(&self, name: &str, expected: u64) {
        while self.info(name).await != expected {
            tokio::task::yield_now().await;
        }
    }

    /// Takes over what the configuration has become.
    pub(crate) async fn reload(&mut self) -> Result<(), String> {
        let reloaded = self.gateway.reload(&self.config, &Activation::default()).await;
        reloaded.map_err(|error| error.to_string())
    }
}
