//! The wire server.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

/// The address that it listens on, as in Azure.
pub const ADDRESS: &str = "168.63.129.16:80";

/// A server in this process.
pub struct Server {
    /// The answer, and the delay before it.
    answer: Arc<Mutex<(Arc<str>, Duration)>>,
}

impl Server {
    /// Starts to listen.
    pub fn start() -> std::io::Result<Server> {
        let listener = TcpListener::bind(ADDRESS)?;
        let answer = Arc::new(Mutex::new(("".into(), Duration::ZERO)));
        let server = Server {
            answer: Arc::clone(&answer),
        };
        thread::spawn(move || {
            for caller in listener.incoming().flatten() {
                let (text, delay) = answer.lock().expect("nobody panics with it").clone();
                // Short answers are sent without a new thread, which would cost more than the answer.
                if delay.is_zero() && text.len() < 256 * 1024 {
                    serve(caller, &text, delay);
                } else {
                    thread::spawn(move || serve(caller, &text, delay));
                }
            }
        });
        Ok(server)
    }

    /// Sets the answer: it lists this number of addresses, after this delay.
    pub fn set_answer(&self, addresses: usize, delay: Duration) {
        let mut xml = String::from(
            r#"<Interfaces><Interface MacAddress="7C1E52F9F3C4" IsPrimary="true"><IPSubnet Prefix="10.224.0.0/12">"#,
        );
        for n in 4..addresses + 5 {
            let (high, middle, low) = (224 + (n >> 16), (n >> 8) & 255, n & 255);
            let primary = n == 4;
            xml += &format!(
                r#"<IPAddress Address="10.{high}.{middle}.{low}" IsPrimary="{primary}"/>"#
            );
        }
        xml += "</IPSubnet></Interface></Interfaces>";
        let length = xml.len();
        let text = format!(
            "HTTP/1.1 200 OK\r\nContent-Type: text/xml; charset=utf-8\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n{xml}"
        );
        *self.answer.lock().expect("nobody panics with it") = (text.into(), delay);
    }
}

fn serve(mut caller: TcpStream, text: &str, delay: Duration) {
    let mut question = [0; 4096];
    let _ = caller.read(&mut question);
    thread::sleep(delay);
    let _ = caller.write_all(text.as_bytes());
}
