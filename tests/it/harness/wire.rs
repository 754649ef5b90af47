//! A wire server on a real socket.

use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use rustix::net::sockopt::set_socket_reuseaddr;
use rustix::net::{
    AddressFamily, Shutdown, SocketAddrAny, SocketFlags, SocketType, bind, getsockname, shutdown,
    socket_with,
};

use super::wait::{LIMIT, wait_until, watched};

/// How a wire server answers a request.
#[derive(Clone)]
pub enum Reply {
    /// Answers 200 with this body.
    Xml(String),
    /// Answers with this status and body.
    Status(u16, String),
    /// Writes these bytes and closes.
    Raw(Vec<u8>),
    /// Waits, then sends the reply.
    After(Duration, Box<Reply>),
    /// Waits until the gate is open, then sends the reply.
    Gated(Gate, Box<Reply>),
    /// Writes the first part, waits, writes the second part.
    InTwo(Vec<u8>, Duration, Vec<u8>),
    /// Redirects to this URL, which answers 200 with the body.
    Redirect(String, Vec<u8>),
    /// Accepts and never answers.
    Silent,
}

/// Blocks replies until it is opened.
#[derive(Clone, Default)]
pub struct Gate(Arc<AtomicBool>);

impl Gate {
    pub fn open(&self) {
        self.0.store(true, Ordering::SeqCst);
    }

    fn is_open(&self) -> bool {
        self.0.load(Ordering::SeqCst)
    }
}

/// A wire server on a real socket.
pub struct WireServer {
    address: SocketAddr,
    reply: Arc<Mutex<Reply>>,
    requests: Arc<Mutex<Vec<String>>>,
    accepting: Option<Accepting>,
    /// Reserves the port while no process listens on it.
    _reservation: OwnedFd,
}

struct Accepting {
    listener: Arc<TcpListener>,
    thread: thread::JoinHandle<()>,
}

/// A bound socket that does not listen, and its address.
fn reserve(address: &str) -> (OwnedFd, SocketAddr) {
    let address: SocketAddr = address.parse().unwrap();
    let socket = socket_with(
        AddressFamily::INET,
        SocketType::STREAM,
        SocketFlags::CLOEXEC,
        None,
    );
    let socket = socket.unwrap();
    set_socket_reuseaddr(&socket, true).unwrap();
    bind(&socket, &address).unwrap();
    let named: SocketAddrAny = getsockname(&socket).unwrap();
    (socket, named.try_into().unwrap())
}

impl WireServer {
    pub fn on(address: &str, reply: Reply) -> WireServer {
        let (reservation, address) = reserve(address);
        let mut server = WireServer {
            address,
            reply: Arc::new(Mutex::new(reply)),
            requests: Arc::default(),
            accepting: None,
            _reservation: reservation,
        };
        server.start();
        server
    }

    pub fn url(&self) -> String {
        format!(
            "http://{}/machine/plugins?comp=nmagent&type=getinterfaceinfov1",
            self.address
        )
    }

    pub fn set(&self, reply: Reply) {
        *self.reply.lock().unwrap() = reply;
    }

    /// The number of requests so far.
    pub fn count(&self) -> usize {
        self.requests.lock().unwrap().len()
    }

    /// The headers of all requests so far.
    pub fn requests(&self) -> Vec<String> {
        self.requests.lock().unwrap().clone()
    }

    /// Stops listening: connections are refused.
    pub fn stop(&mut self) {
        if let Some(Accepting { listener, thread }) = self.accepting.take() {
            // Shutdown ends the wait in accept with an error.
            shutdown(&listener, Shutdown::Both).unwrap();
            watched("the wire server to stop", || thread.join()).unwrap();
        }
    }

    /// Starts or resumes listening.
    pub fn start(&mut self) {
        if self.accepting.is_some() {
            return;
        }
        let listener = Arc::new(TcpListener::bind(self.address).unwrap());
        let (reply, requests) = (self.reply.clone(), self.requests.clone());
        let thread = thread::spawn({
            let listener = listener.clone();
            move || {
                loop {
                    match listener.accept() {
                        Ok((stream, _)) => {
                            let (reply, requests) = (reply.clone(), requests.clone());
                            thread::spawn(move || serve(stream, &reply, &requests));
                        }
                        // The listener was stopped.
                        Err(e) if e.kind() == ErrorKind::InvalidInput => return,
                        Err(e) => println!("the wire server: {e}"),
                    }
                }
            }
        });
        self.accepting = Some(Accepting { listener, thread });
    }
}

impl Drop for WireServer {
    fn drop(&mut self) {
        self.stop();
    }
}

/// Reads the header of an HTTP request. `None` when the client closes the connection early.
pub fn request_head(stream: &mut impl Read) -> Option<String> {
    let mut head = Vec::new();
    let mut byte = [0];
    while !head.ends_with(b"\r\n\r\n") {
        match stream.read(&mut byte) {
            Ok(1) => head.push(byte[0]),
            _ => return None,
        }
    }
    Some(String::from_utf8_lossy(&head).into_owned())
}

fn serve(mut stream: TcpStream, reply: &Mutex<Reply>, requests: &Mutex<Vec<String>>) {
    stream.set_read_timeout(Some(LIMIT)).unwrap();
    stream.set_write_timeout(Some(LIMIT)).unwrap();
    let Some(head) = request_head(&mut stream) else {
        return;
    };
    let path = head.split(' ').nth(1).unwrap_or_default().to_owned();
    requests.lock().unwrap().push(head);
    let reply = reply.lock().unwrap().clone();
    answer(&mut stream, reply, &path);
}

fn answer(stream: &mut TcpStream, reply: Reply, path: &str) {
    // Some tests close the connection early.
    let _ = match reply {
        Reply::Xml(body) => stream.write_all(&http(200, body.as_bytes())),
        Reply::Status(status, body) => stream.write_all(&http(status, body.as_bytes())),
        Reply::Raw(bytes) => stream.write_all(&bytes),
        Reply::After(wait, then) => {
            thread::sleep(wait);
            answer(stream, *then, path);
            Ok(())
        }
        Reply::Gated(gate, then) => {
            wait_until("a gate to be opened", || gate.is_open());
            answer(stream, *then, path);
            Ok(())
        }
        Reply::InTwo(first, wait, second) => stream.write_all(&first).and_then(|()| {
            thread::sleep(wait);
            stream.write_all(&second)
        }),
        Reply::Redirect(to, body) if to.splitn(4, '/').nth(3) == path.strip_prefix('/') => {
            stream.write_all(&http(200, &body))
        }
        Reply::Redirect(to, _) => write!(
            stream,
            "HTTP/1.1 302 X\r\nLocation: {to}\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
        ),
        // Wait until the caller closes the connection.
        Reply::Silent => stream.read(&mut [0]).map(drop),
    };
}

pub fn http(status: u16, body: &[u8]) -> Vec<u8> {
    let length = body.len();
    let mut bytes =
        format!("HTTP/1.1 {status} X\r\nContent-Type: text/xml\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n")
            .into_bytes();
    bytes.extend(body);
    bytes
}
