//! A Kubernetes API for tests, with real TLS, that can fail in many ways.

use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use rustls::crypto::ring;
use rustls::server::WebPkiClientVerifier;
use rustls::version::{TLS12, TLS13};
use rustls::{RootCertStore, ServerConfig, ServerConnection, StreamOwned};
use serde_json::{Value, json};

use super::certificates::{Authority, Pair};
use crate::harness::request_head;

/// The valid token.
pub const TOKEN: &str = "eyJhbGciOi.good-token";

/// How the server answers a request for the node.
#[derive(Clone)]
pub enum Play {
    /// Answers like a real server: the node for a valid token or client certificate, else 401 or 404.
    Node(Vec<&'static str>),
    /// Answers every request with this.
    Answer(u16, Vec<u8>),
    /// Writes the beginning, then single bytes without end.
    Drips(&'static str),
}

/// How the server treats a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tls {
    /// Accepts any client, with or without a certificate.
    Usual,
    /// The same, with TLS 1.2.
    Old,
    /// Accepts only clients with a known certificate.
    Strict,
    /// Speaks plain HTTP.
    Plain,
    /// Never answers.
    Silent,
    /// Sends its first message byte by byte, slowly.
    Drips,
    /// Closes the connection.
    Closes,
}

/// The server.
pub struct Api {
    address: SocketAddr,
    tls: Tls,
    shared: Arc<Mutex<Shared>>,
}

/// What the threads of the server share.
struct Shared {
    play: Play,
    requests: Vec<String>,
    connections: usize,
    is_stopped: bool,
}

impl Api {
    /// Starts a server that accepts clients of `authority`.
    pub fn new(authority: &Authority, own: &Pair, tls: Tls) -> Api {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let shared = Arc::new(Mutex::new(Shared {
            play: Play::Node(vec!["10.244.3.0/24", "fd00:10:244:3::/64"]),
            requests: Vec::new(),
            connections: 0,
            is_stopped: false,
        }));
        let api = Api {
            address: listener.local_addr().unwrap(),
            tls,
            shared: shared.clone(),
        };
        let config = Arc::new(config(authority, own, tls));
        thread::spawn(move || {
            for stream in listener.incoming() {
                if shared.lock().unwrap().is_stopped {
                    return;
                }
                shared.lock().unwrap().connections += 1;
                let (config, shared) = (config.clone(), shared.clone());
                let stream = stream.unwrap();
                thread::spawn(move || match tls {
                    Tls::Usual | Tls::Old | Tls::Strict => secure(stream, config, &shared),
                    Tls::Plain if speaks_tls(&stream) => refuse(stream),
                    Tls::Plain => converse(stream, &shared, true),
                    Tls::Silent => thread::sleep(Duration::from_secs(30)),
                    Tls::Drips => drip(stream, &[22, 3, 3, 64, 0]),
                    Tls::Closes => drop(stream),
                });
            }
        });
        api
    }

    pub fn url(&self) -> String {
        let scheme = if self.tls == Tls::Plain {
            "http"
        } else {
            "https"
        };
        format!("{scheme}://{}", self.address)
    }

    pub fn port(&self) -> u16 {
        self.address.port()
    }

    pub fn set(&self, play: Play) {
        self.shared.lock().unwrap().play = play;
    }

    /// The headers of all requests so far.
    pub fn requests(&self) -> Vec<String> {
        self.shared.lock().unwrap().requests.clone()
    }

    /// The number of connections so far.
    pub fn connections(&self) -> usize {
        self.shared.lock().unwrap().connections
    }
}

impl Drop for Api {
    fn drop(&mut self) {
        self.shared.lock().unwrap().is_stopped = true;
        let _ = TcpStream::connect(self.address);
    }
}

fn config(authority: &Authority, own: &Pair, tls: Tls) -> ServerConfig {
    let provider = Arc::new(ring::default_provider());
    let mut roots = RootCertStore::empty();
    roots.add(authority.der()).unwrap();
    let clients = WebPkiClientVerifier::builder_with_provider(roots.into(), provider.clone());
    let clients = match tls {
        Tls::Strict => clients,
        _ => clients.allow_unauthenticated(),
    };
    let versions = if tls == Tls::Old { [&TLS12] } else { [&TLS13] };
    ServerConfig::builder_with_provider(provider)
        .with_protocol_versions(&versions)
        .unwrap()
        .with_client_cert_verifier(clients.build().unwrap())
        .with_single_cert(own.chain(), own.private())
        .unwrap()
}

fn secure(stream: TcpStream, config: Arc<ServerConfig>, shared: &Mutex<Shared>) {
    let mut connection = ServerConnection::new(config).unwrap();
    let mut socket = stream.try_clone().unwrap();
    let shaken = loop {
        match connection.complete_io(&mut socket) {
            Ok(_) if connection.is_handshaking() => {}
            shaken => break shaken,
        }
    };
    if shaken.is_err() {
        // Read the rest of the client's data, so that the client reads the reason of the refusal.
        let _ = stream.shutdown(Shutdown::Write);
        let _ = socket.read_to_end(&mut Vec::new());
        return;
    }
    let known = connection.peer_certificates().is_some();
    converse(StreamOwned::new(connection, socket), shared, known);
}

fn speaks_tls(stream: &TcpStream) -> bool {
    let mut first = [0];
    stream.peek(&mut first).is_ok() && first == [22]
}

/// Answers a TLS hello like a plain HTTP server.
fn refuse(mut stream: TcpStream) {
    let _ = stream.write_all(b"HTTP/1.1 400 Bad Request\r\nConnection: close\r\n\r\n");
    let _ = stream.shutdown(Shutdown::Write);
    let _ = stream.read_to_end(&mut Vec::new());
}

/// Reads one request and answers it.
fn converse(mut stream: impl Read + Write, shared: &Mutex<Shared>, known: bool) {
    let Some(head) = request_head(&mut stream) else {
        return;
    };
    let play = {
        let mut shared = shared.lock().unwrap();
        shared.requests.push(head.clone());
        shared.play.clone()
    };
    // Some tests close the connection early.
    match play {
        Play::Node(ranges) => {
            let (status, body) = real(&head, known, &ranges);
            let _ = stream.write_all(&http(status, body.to_string().as_bytes()));
        }
        Play::Answer(status, body) => drop(stream.write_all(&http(status, &body))),
        Play::Drips(beginning) => drip(stream, beginning.as_bytes()),
    }
}

/// The answer of a real server.
fn real(head: &str, known: bool, ranges: &[&str]) -> (u16, Value) {
    let lower = head.to_lowercase();
    let bearer = format!("authorization: bearer {TOKEN}\r\n");
    let (code, reason, message) = match head.split(' ').nth(1).unwrap() {
        _ if !known && !lower.contains(&bearer.to_lowercase()) => {
            (401, "Unauthorized", "Unauthorized".to_owned())
        }
        "/api/v1/nodes/node1" => return (200, node("node1", ranges)),
        "/api/v1/nodes/forbidden" => (
            403,
            "Forbidden",
            "nodes \"forbidden\" is forbidden: User \"system:node:node1\" cannot get resource \"nodes\" in API group \"\" at the cluster scope: node 'node1' cannot read 'forbidden', only its own Node object".to_owned(),
        ),
        other => {
            let name = other.rsplit('/').next().unwrap();
            (404, "NotFound", format!("nodes {name:?} not found"))
        }
    };
    let status = json!({
        "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
        "message": message, "reason": reason, "code": code,
    });
    (code, status)
}

/// A node object.
pub fn node(name: &str, ranges: &[&str]) -> Value {
    json!({
        "kind": "Node", "apiVersion": "v1",
        "metadata": { "name": name, "uid": "0ee26aa9-6a8f-4cbb-8b1f-4f4d0ee5a3f5", "labels": { "kubernetes.io/os": "linux" } },
        "spec": { "podCIDR": ranges.first(), "podCIDRs": ranges },
        "status": { "capacity": { "cpu": "2", "pods": "110" } }
    })
}

fn http(status: u16, body: &[u8]) -> Vec<u8> {
    let length = body.len();
    let mut bytes = format!(
        "HTTP/1.1 {status} X\r\nContent-Type: application/json\r\nContent-Length: {length}\r\n\r\n"
    )
    .into_bytes();
    bytes.extend(body);
    bytes
}

fn drip(mut stream: impl Write, beginning: &[u8]) {
    let _ = stream.write_all(beginning);
    while stream.write_all(b"a").and_then(|()| stream.flush()).is_ok() {
        thread::sleep(Duration::from_millis(200));
    }
}
