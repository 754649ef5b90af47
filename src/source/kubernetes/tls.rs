//! A TLS connector for ureq.
//!
//! ureq's own connector has two defects here. It verifies only the name in the URL, although a
//! kubeconfig may set `tls-server-name`. It also loses the alert with which a server refuses the
//! client certificate.

use std::fmt;
use std::io::{self, Read, Write};
use std::sync::Arc;

use rustls::pki_types::ServerName;
use rustls::{ClientConfig, ClientConnection, StreamOwned};
use ureq::unversioned::transport::{
    Buffers, ConnectionDetails, Connector, LazyBuffers, NextTimeout, Transport, TransportAdapter,
};

/// Establishes TLS on a connection.
pub struct TlsConnector {
    /// The trusted certificates and the client certificate.
    pub config: Arc<ClientConfig>,
    /// The name that the server's certificate must be for.
    pub name: ServerName<'static>,
}

/// A TLS connection.
pub struct TlsTransport<T: Transport> {
    stream: StreamOwned<ClientConnection, TransportAdapter<T>>,
    buffers: LazyBuffers,
}

impl<T: Transport> Connector<T> for TlsConnector {
    type Out = TlsTransport<T>;

    fn connect(
        &self,
        details: &ConnectionDetails,
        chained: Option<T>,
    ) -> Result<Option<TlsTransport<T>>, ureq::Error> {
        let Some(transport) = chained else {
            return Ok(None);
        };
        let mut connection = ClientConnection::new(Arc::clone(&self.config), self.name.clone())
            .map_err(io::Error::other)?;
        // The adapter applies one time limit to all reads and writes of the handshake.
        let mut socket = TransportAdapter::new(transport, Arc::clone(&details.current_time));
        socket.set_timeout(details.timeout);
        connection.complete_io(&mut socket)?;
        let buffers = LazyBuffers::new(
            details.config.input_buffer_size(),
            details.config.output_buffer_size(),
        );
        let stream = StreamOwned::new(connection, socket);
        Ok(Some(TlsTransport { stream, buffers }))
    }
}

impl<T: Transport> Transport for TlsTransport<T> {
    fn buffers(&mut self) -> &mut dyn Buffers {
        &mut self.buffers
    }

    fn transmit_output(&mut self, amount: usize, timeout: NextTimeout) -> Result<(), ureq::Error> {
        self.stream.sock.set_timeout(timeout);
        let output = self.buffers.output().get(..amount).unwrap_or_default();
        let sent = self
            .stream
            .write_all(output)
            .and_then(|()| self.stream.flush());
        sent.map_err(|error| self.pending_alert().unwrap_or(error).into())
    }

    fn await_input(&mut self, timeout: NextTimeout) -> Result<bool, ureq::Error> {
        self.stream.sock.set_timeout(timeout);
        let read = self.stream.read(self.buffers.input_append_buf())?;
        self.buffers.input_appended(read);
        Ok(read > 0)
    }

    fn is_open(&mut self) -> bool {
        self.stream.sock.get_mut().is_open()
    }

    fn is_tls(&self) -> bool {
        true
    }
}

impl<T: Transport> TlsTransport<T> {
    /// Returns the alert with which the server closed the connection, if it sent one.
    ///
    /// With TLS 1.3, the server verifies the client certificate only after the client has completed
    /// the handshake. The alert therefore arrives while the request is sent.
    fn pending_alert(&mut self) -> Option<io::Error> {
        let StreamOwned { conn, sock } = &mut self.stream;
        conn.read_tls(sock).ok()?;
        conn.process_new_packets().err().map(io::Error::other)
    }
}

impl fmt::Debug for TlsConnector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("TLS")
    }
}

impl<T: Transport> fmt::Debug for TlsTransport<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a TLS connection")
    }
}
