//! The wire server.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

/// Where it listens, as on Azure.
pub const ADDRESS: &str = "168.63.129.16:80";

/// What it says, and after how long.
#[derive(Clone, Default)]
pub struct Answer {
    text: Arc<Vec<u8>>,
    delay: Duration,
}

/// A server in this process.
#[derive(Clone)]
pub struct Server {
    answer: Arc<Mutex<Answer>>,
}

impl Server {
    /// Begins to listen.
    pub fn start() -> std::io::Result<Server> {
        let server = Server {
            answer: Arc::default(),
        };
        let listener = TcpListener::bind(ADDRESS)?;
        let answer = Arc::clone(&server.answer);
        thread::spawn(move || {
            for caller in listener.incoming().flatten() {
                let answer = answer.lock().map(|a| a.clone()).unwrap_or_default();
                // Most are served at once, as a thread costs more than an answer.
                if answer.delay.is_zero() && answer.text.len() < 256 * 1024 {
                    serve(caller, &answer);
                } else {
                    thread::spawn(move || serve(caller, &answer));
                }
            }
        });
        Ok(server)
    }

    /// From now on lists so many addresses, after so long.
    pub fn lists(&self, addresses: usize, delay: Duration) {
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
        if let Ok(mut answer) = self.answer.lock() {
            *answer = Answer {
                text: Arc::new(text.into_bytes()),
                delay,
            };
        }
    }
}

fn serve(mut caller: TcpStream, answer: &Answer) {
    let mut question = [0; 4096];
    let _ = caller.read(&mut question);
    thread::sleep(answer.delay);
    let _ = caller.write_all(&answer.text);
}
