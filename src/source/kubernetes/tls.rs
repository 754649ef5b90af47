//! TLS between ureq and its socket, with one deadline for the whole of it: a server that sends a byte now and then would
//! begin anew each time limit that is meant for a single read.

use std::fmt;
use std::io::{self, Read, Write};
use std::sync::Arc;
use std::time::Instant;

use rustls::pki_types::ServerName;
use rustls::{ClientConfig, ClientConnection, StreamOwned};
use ureq::unversioned::transport::time::Duration;
use ureq::unversioned::transport::{
    Buffers, ConnectionDetails, Connector, LazyBuffers, NextTimeout, Transport,
};

/// Makes connections secure.
pub struct Tls {
    /// Whom to trust, and what to show.
    pub config: Arc<ClientConfig>,
    /// The name that the server's certificate must be for.
    pub name: ServerName<'static>,
    /// When it must all be over.
    pub deadline: Instant,
}

/// A secure connection.
pub struct Secure<T: Transport> {
    stream: StreamOwned<ClientConnection, Socket<T>>,
    buffers: LazyBuffers,
}

/// A connection without TLS, as rustls wants it.
struct Socket<T> {
    transport: T,
    timeout: NextTimeout,
    deadline: Instant,
}

impl<T: Transport> Connector<T> for Tls {
    type Out = Secure<T>;

    fn connect(
        &self,
        details: &ConnectionDetails,
        chained: Option<T>,
    ) -> Result<Option<Secure<T>>, ureq::Error> {
        let Some(transport) = chained else {
            return Ok(None);
        };
        let connection = ClientConnection::new(Arc::clone(&self.config), self.name.clone())
            .map_err(io::Error::other)?;
        let socket = Socket {
            transport,
            timeout: details.timeout,
            deadline: self.deadline,
        };
        let mut stream = StreamOwned::new(connection, socket);
        stream.conn.complete_io(&mut stream.sock)?;
        let (input, output) = (
            details.config.input_buffer_size(),
            details.config.output_buffer_size(),
        );
        let buffers = LazyBuffers::new(input, output);
        Ok(Some(Secure { stream, buffers }))
    }
}

impl<T: Transport> Transport for Secure<T> {
    fn buffers(&mut self) -> &mut dyn Buffers {
        &mut self.buffers
    }

    fn transmit_output(&mut self, amount: usize, timeout: NextTimeout) -> Result<(), ureq::Error> {
        self.stream.sock.timeout = timeout;
        let output = self.buffers.output().get(..amount).unwrap_or_default();
        let sent = self.stream.write_all(output);
        let sent = sent.and_then(|()| self.stream.flush());
        sent.map_err(|e| self.pending_alert().unwrap_or(e).into())
    }

    fn await_input(&mut self, timeout: NextTimeout) -> Result<bool, ureq::Error> {
        self.stream.sock.timeout = timeout;
        let read = self.stream.read(self.buffers.input_append_buf())?;
        self.buffers.input_appended(read);
        Ok(read > 0)
    }

    fn is_open(&mut self) -> bool {
        self.stream.sock.transport.is_open()
    }

    fn is_tls(&self) -> bool {
        true
    }
}

impl<T: Transport> Secure<T> {
    /// Why the server hung up, if it said so: with TLS 1.3 it looks at the client certificate when the client is through with
    /// the handshake and sends its request already.
    fn pending_alert(&mut self) -> Option<io::Error> {
        let StreamOwned { conn, sock } = &mut self.stream;
        conn.read_tls(sock).ok()?;
        conn.process_new_packets().err().map(io::Error::other)
    }
}

impl<T: Transport> Socket<T> {
    /// What is left of the time.
    fn left(&self) -> io::Result<NextTimeout> {
        let left = self.deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(ureq::Error::Timeout(self.timeout.reason).into_io());
        }
        let mut timeout = self.timeout;
        timeout.after = Duration::Exact(left);
        Ok(timeout)
    }
}

impl<T: Transport> Read for Socket<T> {
    fn read(&mut self, wanted: &mut [u8]) -> io::Result<usize> {
        let timeout = self.left()?;
        // Bytes that are there already are handed out first.
        if self.transport.buffers().input().is_empty() {
            let read = self.transport.await_input(timeout);
            read.map_err(ureq::Error::into_io)?;
        }
        let read = self.transport.buffers().input().read(wanted)?;
        self.transport.buffers().input_consume(read);
        Ok(read)
    }
}

impl<T: Transport> Write for Socket<T> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let timeout = self.left()?;
        let written = self.transport.buffers().output().write(bytes)?;
        let sent = self.transport.transmit_output(written, timeout);
        sent.map_err(ureq::Error::into_io)?;
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl fmt::Debug for Tls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("TLS")
    }
}

impl<T: Transport> fmt::Debug for Secure<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a TLS connection")
    }
}
