//! What a service exports of its calls: through `tracing-opentelemetry` and OTLP, as a collector decodes it.

use std::collections::BTreeMap;
use std::future::{Future, ready};
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};

use opentelemetry::trace::TracerProvider;
use opentelemetry_http::{Bytes, HttpClient, HttpError, Request, Response};
use opentelemetry_otlp::{Protocol, SpanExporter, WithExportConfig, WithHttpConfig};
use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use opentelemetry_proto::tonic::common::v1::any_value::Value as Attribute;
use opentelemetry_proto::tonic::common::v1::{AnyValue, KeyValue};
use opentelemetry_proto::tonic::trace::v1::span::SpanKind;
use opentelemetry_proto::tonic::trace::v1::{Span, status::StatusCode};
use opentelemetry_sdk::trace::SdkTracerProvider;
use prost::Message;
use tracing::subscriber::DefaultGuard;
use tracing::{Instrument, Level, info_span};
use tracing_subscriber::filter::Targets;
use tracing_subscriber::prelude::*;
use valkey_rdma_client::cluster::Route;
use valkey_rdma_client::pubsub::Subscription;
use valkey_rdma_client::{AbortedTransaction, Client, Command, DirectMemory, Error, Way, cmd};
use valkey_rdma_mock::{Mock, MockCluster, MockServer};
use valkey_rdma_testkit::ReservedPort;

/// The bodies of the requests that an exporter sends to its collector.
#[derive(Clone, Debug, Default)]
struct Collector(Arc<Mutex<Vec<Bytes>>>);

impl HttpClient for Collector {
    fn send_bytes<'a, 'b>(
        &'a self,
        request: Request<Bytes>,
    ) -> Pin<Box<dyn Future<Output = Result<Response<Bytes>, HttpError>> + Send + 'b>>
    where
        'a: 'b,
        Self: 'b,
    {
        assert_eq!(request.uri().path(), "/v1/traces");
        assert_eq!(request.headers()["content-type"], "application/x-protobuf");
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push(request.into_body());
        Box::pin(ready(Ok(Response::new(Bytes::new()))))
    }
}

/// A service that exports its own spans and those of the client. Nothing else on this thread does.
struct Service {
    collector: Collector,
    provider: SdkTracerProvider,
    _guard: DefaultGuard,
}

impl Service {
    fn start() -> Self {
        Self::of(Targets::new().with_default(Level::INFO).with_target(TARGET, Level::DEBUG))
    }

    fn of(filter: Targets) -> Self {
        let collector = Collector::default();
        let exporter = SpanExporter::builder()
            .with_http()
            .with_http_client(collector.clone())
            .with_protocol(Protocol::HttpBinary)
            .with_endpoint("http://collector.example/v1/traces")
            .build()
            .expect("an exporter");
        let provider = SdkTracerProvider::builder().with_batch_exporter(exporter).build();
        let layer = tracing_opentelemetry::layer()
            .with_tracer(provider.tracer("service"))
            .with_location(false)
            .with_threads(false)
            .with_tracked_inactivity(false)
            .with_target(false)
            .with_filter(filter);
        let _guard = tracing_subscriber::registry().with(layer).set_default();
        Self { collector, provider, _guard }
    }

    /// The spans that have ended, in that order.
    fn spans(&self) -> Vec<Exported> {
        self.provider.force_flush().expect("exported");
        let bodies = self.collector.0.lock().unwrap_or_else(PoisonError::into_inner);
        let requests =
            bodies.iter().map(|body| ExportTraceServiceRequest::decode(&body[..]).expect("protobuf"));
        let resources = requests.flat_map(|request| request.resource_spans);
        let scopes = resources.flat_map(|resource| resource.scope_spans);
        scopes.flat_map(|scope| scope.spans).map(Exported::from).collect()
    }

    /// Those of this name.
    fn named(&self, name: &str) -> Vec<Exported> {
        self.spans().into_iter().filter(|span| span.name == name).collect()
    }

    /// The only one of this name.
    fn only(&self, name: &str) -> Exported {
        let mut found = self.named(name);
        assert_eq!(found.len(), 1, "{name} in {:#?}", self.spans());
        found.remove(0)
    }

    /// True if these bytes are anywhere in what was exported.
    fn has_exported(&self, secret: &str) -> bool {
        self.provider.force_flush().expect("exported");
        let bodies = self.collector.0.lock().unwrap_or_else(PoisonError::into_inner);
        bodies.iter().any(|body| body.windows(secret.len()).any(|bytes| bytes == secret.as_bytes()))
    }
}

const TARGET: &str = "valkey_rdma_client::spans";

#[derive(Debug)]
struct Exported {
    name: String,
    id: Vec<u8>,
    parent: Vec<u8>,
    is_client: bool,
    has_failed: bool,
    attributes: BTreeMap<String, String>,
    events: Vec<String>,
}

impl From<Span> for Exported {
    fn from(span: Span) -> Self {
        let mut attributes = BTreeMap::new();
        for attribute in &span.attributes {
            let before = attributes.insert(attribute.key.clone(), text(attribute));
            assert_eq!(before, None, "{} stands twice in {span:?}", attribute.key);
        }
        Self {
            is_client: span.kind() == SpanKind::Client,
            has_failed: span.status.is_some_and(|status| status.code() == StatusCode::Error),
            name: span.name,
            id: span.span_id,
            parent: span.parent_span_id,
            attributes,
            events: span.events.into_iter().map(|event| event.name).collect(),
        }
    }
}

impl Exported {
    fn get(&self, key: &str) -> Option<&str> {
        self.attributes.get(key).map(String::as_str)
    }

    /// The kind of the error, and its code if a server has sent it.
    fn error(&self) -> (Option<&str>, Option<&str>) {
        assert_eq!(self.has_failed, self.get("error.type").is_some(), "{self:?}");
        (self.get("error.type"), self.get("db.response.status_code"))
    }
}

/// Numbers without quotes, text with them.
fn text(attribute: &KeyValue) -> String {
    match &attribute.value {
        Some(AnyValue { value: Some(Attribute::StringValue(text)) }) => text.clone(),
        Some(AnyValue { value: Some(Attribute::IntValue(number)) }) => format!("int {number}"),
        other => panic!("{}: {other:?}", attribute.key),
    }
}

fn port_of(url: &str) -> String {
    format!("int {}", url.rsplit(':').next().expect("a port"))
}

async fn connected(mock: &MockServer) -> Client {
    Client::connect(mock.url()).await.expect("connected")
}

#[tokio::test]
async fn a_command_is_a_span_with_the_names_of_the_conventions() {
    let service = Service::start();
    let mock = MockServer::start().await;
    let client = connected(&mock).await;
    let request = info_span!("request");
    let get = async {
        client.command(cmd!["SET", "k", 1]).await.expect("stored");
        client.query::<i64>(["get", "k"]).await.expect("read")
    };
    assert_eq!(get.instrument(request).await, 1);

    let span = service.only("get");
    assert!(span.is_client && !span.has_failed && span.events.is_empty(), "{span:?}");
    assert_eq!(span.parent, service.only("request").id);
    assert_eq!(service.only("SET").parent, span.parent);
    let port = port_of(mock.url());
    let expected = [
        ("db.system.name", "valkey"),
        // As the program has written it.
        ("db.operation.name", "get"),
        ("db.namespace", "0"),
        ("server.address", "127.0.0.1"),
        ("server.port", &port),
        ("network.transport", "emulated"),
        ("network.peer.address", "127.0.0.1"),
        ("network.peer.port", &port),
    ];
    let expected: BTreeMap<_, _> =
        expected.into_iter().map(|(key, value)| (key.to_owned(), value.to_owned())).collect();
    assert_eq!(span.attributes, expected);
}

#[tokio::test]
async fn a_failed_command_says_of_what_kind_the_error_is() {
    let service = Service::start();
    let mock = MockServer::start().await;
    let client = connected(&mock).await;
    client.command(["SET", "text", "a"]).await.expect("stored");
    client.command(["LPUSH", "text", "b"]).await.expect_err("another type");
    let none = Command::new("GET").arg("text").timeout(std::time::Duration::ZERO);
    client.command(none).await.expect_err("no time");
    client.command(["SELECT", "1"]).await.expect_err("refused");
    assert_eq!(service.only("LPUSH").error(), (Some("WRONGTYPE"), Some("WRONGTYPE")));
    assert_eq!(service.only("GET").error(), (Some("timeout"), None));
    assert_eq!(service.only("SELECT").error(), (Some("refused_by_client"), None));
    client.close().await;
    client.command(["PING"]).await.expect_err("closed");
    assert_eq!(service.only("PING").error(), (Some("connection_lost"), None));
}

#[tokio::test]
async fn commands_that_go_together_are_one_span_with_their_number() {
    let service = Service::start();
    let mock = MockServer::start().await;
    let client = connected(&mock).await;
    let pipeline = |commands: &[&[&str]]| {
        let mut pipeline = client.pipeline();
        for command in commands {
            pipeline.push(command.iter());
        }
        pipeline
    };
    pipeline(&[&["SET", "k", "a"], &["INCR", "k"], &["LPUSH", "k", "b"]]).send().await.expect("sent");
    pipeline(&[&["GET", "k"], &["GET", "l"]]).send_each(|_, _| ()).await.expect("sent");
    pipeline(&[&["TTL", "k"]]).send().await.expect("sent");
    client.transaction().command(["SET", "k", "1"]).command(["INCR", "k"]).execute().await.expect("executed");
    client.transaction().command(["DEL", "k"]).execute().await.expect("executed");

    let size = |name: &str| service.only(name).get("db.operation.batch.size").map(str::to_owned);
    assert_eq!(size("PIPELINE").as_deref(), Some("int 3"));
    // The first of its errors.
    assert_eq!(service.only("PIPELINE").error(), (Some("ERR"), Some("ERR")));
    assert_eq!(size("PIPELINE GET").as_deref(), Some("int 2"));
    assert_eq!(service.only("PIPELINE GET").error(), (None, None));
    assert_eq!((size("TTL"), size("MULTI").as_deref()), (None, Some("int 2")));
    assert_eq!(size("MULTI DEL"), None);
    assert_eq!(service.only("PIPELINE").get("db.operation.name"), Some("PIPELINE"));
    let calls = service.spans().into_iter().filter(|span| span.name != "connect").count();
    assert_eq!(calls, 5, "{:#?}", service.spans());
}

#[tokio::test]
async fn calls_on_other_connections_are_spans_and_their_connects_are_parts_of_them() {
    let service = Service::start();
    let mock = MockServer::start().await;
    let client = connected(&mock).await;
    client.command(["RPUSH", "jobs", "wash"]).await.expect("pushed");
    let _: (String, String) = client.blocking_query(["BLPOP", "jobs", "0"]).await.expect("popped");
    let connects = service.named("connect");
    let purposes: Vec<_> = connects.iter().map(|span| span.get("valkey.connection.purpose")).collect();
    assert_eq!(purposes, [Some("shared"), Some("call")]);
    assert_eq!(connects[1].parent, service.only("BLPOP").id);
    assert_eq!(service.only("BLPOP").get("network.peer.port"), Some(&*port_of(mock.url())));

    let mut connection = client.dedicated().await.expect("connected");
    connection.command(["CLIENT", "ID"]).await.expect("a number");
    let both = ["GET", "SET"].map(|name| Command::new(name).arg("k"));
    connection.execute_all(&both, None).await.expect("answered");
    assert_eq!(service.only("CLIENT").error(), (None, None));
    assert_eq!(service.only("PIPELINE").error(), (Some("ERR"), Some("ERR")));

    let watch = client.watch(["k"]).await.expect("watched");
    client.command(["SET", "k", "1"]).await.expect("changed");
    let aborted = watch.transaction().command(["DEL", "k"]).execute().await;
    assert!(matches!(aborted, Err(Error::Aborted(AbortedTransaction::Watched))), "{aborted:?}");
    assert_eq!(service.only("WATCH").error(), (None, None));
    assert_eq!(service.only("MULTI DEL").error(), (Some("watched_key_changed"), None));

    let _subscriber = client.subscriber().await.expect("connected");
    let last = service.named("connect").pop().expect("a connect");
    assert_eq!(last.get("valkey.connection.purpose"), Some("subscriber"));
}

#[tokio::test]
async fn large_values_are_spans_from_the_call_until_the_command_has_run() {
    let service = Service::start();
    let mock = MockServer::start().await;
    let client = connected(&mock).await;
    let mut writer = client.stream_argument(Command::new("SET").arg("k"), 4).await.expect("begun");
    writer.write(b"abcd").await.expect("written");
    assert!(service.named("SET").is_empty());
    writer.finish().await.expect("stored");
    assert_eq!(service.only("SET").error(), (None, None));
    let mut buffer = [0; 4];
    assert_eq!(client.get_into("k", &mut buffer).await.expect("read"), Some(4));
    assert_eq!(service.only("GET").error(), (None, None));

    let memory = DirectMemory::allocate(1 << 16).expect("memory");
    let placed = client.get_direct("k", [memory.take(0..4).expect("free")]).await.expect("placed");
    assert!(matches!(placed.way, Way::Direct), "{placed:?}");
    let spans = service.named("GET");
    assert_eq!((spans.len(), spans[1].get("valkey.transfer")), (2, Some("direct")));
    assert_eq!(spans[1].get("network.peer.port"), Some(&*port_of(mock.url())));
}

#[tokio::test]
async fn an_attempt_to_connect_is_a_span_and_says_why_it_failed() {
    let service = Service::start();
    let mock = MockServer::start_with(Mock::new().requirepass("Zq7Xw4Kv")).await.expect("free ports");
    let url = |password: &str, rest: &str| mock.tcp_url().replace("://", &format!("://:{password}@")) + rest;
    let request = info_span!("request");
    let connect = Client::connect(url("Zq7Xw4Kv", "/2")).instrument(request);
    let _client = connect.await.expect("connected");
    let span = service.only("connect");
    let port = port_of(mock.tcp_url());
    let expected = [
        ("db.system.name", "valkey"),
        ("db.namespace", "2"),
        ("server.address", "127.0.0.1"),
        ("server.port", &port),
        ("network.transport", "tcp"),
        ("network.peer.address", "127.0.0.1"),
        ("network.peer.port", &port),
        ("valkey.connection.purpose", "shared"),
    ];
    let expected: BTreeMap<_, _> =
        expected.into_iter().map(|(key, value)| (key.to_owned(), value.to_owned())).collect();
    assert!(span.is_client && span.attributes == expected, "{span:?}");
    assert_eq!(span.parent, service.only("request").id);

    Client::connect(url("Jy8Hd5Gb", "")).await.expect_err("a wrong password");
    let free = ReservedPort::new();
    Client::connect(format!("valkey://{}", free.addr())).await.expect_err("nothing listens");
    Client::connect(format!("emulated://{}", free.addr())).await.expect_err("nothing listens");
    let spans = service.named("connect");
    let errors: Vec<_> = spans.iter().map(Exported::error).collect();
    let refused = (Some("connection_refused"), None);
    assert_eq!(errors, [(None, None), (Some("WRONGPASS"), Some("WRONGPASS")), refused, refused]);
    assert_eq!(spans[2].get("server.port"), Some(&*format!("int {}", free.addr().port())));
    assert!(!service.has_exported("Zq7Xw4Kv") && !service.has_exported("Jy8Hd5Gb"));
}

#[tokio::test]
async fn a_call_in_a_cluster_names_the_node_that_answered_and_its_redirections() {
    let service = Service::start();
    let mocks = MockCluster::builder(3).start().await.expect("free ports");
    let client = Client::connect([mocks.url(0)]).await.expect("connected");
    let key = mocks.key_of(0, 0);
    client.command(["SET", &key, "1"]).await.expect("stored");
    let slot = MockCluster::slot(&key);
    mocks.move_slots(slot..=slot, 1);
    client.command(["GET", &key]).await.expect("read");
    let (set, get) = (service.only("SET"), service.only("GET"));
    assert_eq!(set.get("network.peer.port"), Some(&*port_of(&mocks.url(0))));
    assert_eq!(get.get("network.peer.port"), Some(&*port_of(&mocks.url(1))));
    // What the program has configured.
    assert_eq!(get.get("server.port"), Some(&*port_of(&mocks.url(0))));
    assert_eq!((set.events.len(), &get.events[..]), (0, &["following MOVED".to_owned()][..]));

    mocks.begin_migration(slot..=slot, 2);
    assert_eq!(mocks.move_keys(slot, 10), 1);
    client.command(["INCR", &key]).await.expect("counted");
    let incr = service.only("INCR");
    assert_eq!(incr.get("network.peer.port"), Some(&*port_of(&mocks.url(2))));
    assert_eq!(incr.events, ["following ASK"]);

    client.command(["LPUSH", &key, "x"]).await.expect_err("another type");
    assert_eq!(service.only("LPUSH").error(), (Some("WRONGTYPE"), Some("WRONGTYPE")));
    client.command(["DBSIZE"]).await.expect("counted");
    client
        .pipeline()
        .command(["GET", &mocks.key_of(1, 0)])
        .command(["GET", &mocks.key_of(2, 0)])
        .send()
        .await
        .expect("sent");
    client.cluster().expect("a cluster").command_on(Route::Any, ["PING"]).await.expect("answered");
    for name in ["DBSIZE", "PIPELINE GET", "PING"] {
        let span = service.only(name);
        assert!(span.error() == (None, None) && span.get("network.peer.port").is_some(), "{span:?}");
    }
}

#[tokio::test]
async fn no_key_and_no_value_is_exported() {
    let service = Service::start();
    let mock = MockServer::start().await;
    let client = connected(&mock).await;
    let (key, value) = ("Zq7Xw4Kv", "Jy8Hd5Gb");
    client.command(["SET", key, value]).await.expect("stored");
    client.command(["LPUSH", key, value]).await.expect_err("another type");
    // The server's text repeats its arguments.
    let unknown = client.command(["NOSUCHCOMMAND", key, value]).await.expect_err("unknown").to_string();
    assert!(unknown.contains(key), "{unknown}");
    client.pipeline().command(["GET", key]).command(["APPEND", key, value]).send().await.expect("sent");
    client.transaction().command(["GETSET", key, value]).execute().await.expect("executed");
    client.scan_set(key).next_batch().await.expect_err("another type");
    client.scan().matching(key).next_batch().await.expect("keys");
    let mut subscriber = client.subscriber().await.expect("connected");
    subscriber.subscribe(Subscription::Channel, [key]).await.expect("subscribed");
    client.command(["PUBLISH", key, value]).await.expect("published");
    subscriber.next().await.expect("an event");
    assert!(service.has_exported("NOSUCHCOMMAND") && service.has_exported("SSCAN"));
    assert!(!service.has_exported(key) && !service.has_exported(value), "{:#?}", service.spans());
}

/// As of a program that logs at its default level.
#[tokio::test]
async fn up_to_info_there_are_no_spans() {
    let service = Service::of(Targets::new().with_default(Level::INFO));
    let mock = MockServer::start().await;
    let client = connected(&mock).await;
    let request = info_span!("request");
    client.command(["PING"]).instrument(request).await.expect("answered");
    let names: Vec<_> = service.spans().into_iter().map(|span| span.name).collect();
    assert_eq!(names, ["request"]);
}

/// A dropped call ends its span: nothing that drives the connection keeps it.
#[tokio::test]
async fn a_call_that_is_dropped_ends_its_span() {
    let service = Service::start();
    let mock = MockServer::start().await;
    let client = connected(&mock).await;
    {
        let mut get = std::pin::pin!(client.command(["GET", "k"]));
        let mut cx = std::task::Context::from_waker(std::task::Waker::noop());
        assert!(get.as_mut().poll(&mut cx).is_pending());
        assert!(service.named("GET").is_empty());
    }
    assert_eq!(service.only("GET").error(), (None, None));
    client.command(["PING"]).await.expect("answered");
}
