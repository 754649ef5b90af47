//! A minimal client of rtnetlink(7).
//!
//! /sys also describes links. But it can show those of another network namespace, and reading it
//! takes four times as long on a node with 250 links.

use std::io;

use rustix::buffer::spare_capacity;
use rustix::fd::{AsFd, OwnedFd};
use rustix::net::{
    AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, recv, send, socket_with,
};

use super::libc_calls::{CookieSource, read_cookie};

// Message types of rtnetlink.
pub(super) const GET_LINK: u16 = 18;
pub(super) const GET_ADDRESS: u16 = 22;
pub(super) const GET_ROUTE: u16 = 26;
pub(super) const GET_NAMESPACE_ID: u16 = 90;
const NLMSG_ERROR: u16 = 2;
const NLMSG_DONE: u16 = 3;
const NLM_F_REQUEST: u16 = 1;
const NLM_F_DUMP: u16 = 0x300;
/// Set on answers of a dump during which the kernel's table changed.
const NLM_F_DUMP_INTR: u16 = 0x10;
const HEADER: usize = 16;
/// Attributes and messages begin at multiples of this.
const ALIGN: usize = 4;

/// A socket to the kernel, in the caller's network namespace.
pub(super) struct Netlink {
    socket: OwnedFd,
}

impl Netlink {
    pub fn open() -> io::Result<Netlink> {
        let socket = socket_with(
            AddressFamily::NETLINK,
            SocketType::RAW,
            SocketFlags::CLOEXEC,
            None,
        )?;
        Ok(Netlink { socket })
    }

    /// Returns the cookie of the network namespace that the socket is in; `None` when the kernel
    /// does not report it.
    pub fn namespace_cookie(&self) -> Option<u64> {
        read_cookie(self.socket.as_fd(), CookieSource::Socket)
    }

    /// Dumps a whole table, and parses the payload of each message. Repeats the dump when the table
    /// changes during it.
    pub fn dump<T>(
        &self,
        kind: u16,
        body: &[u8],
        parse: impl Fn(&[u8]) -> Option<T>,
    ) -> io::Result<Vec<T>> {
        const ATTEMPTS: u32 = 8;
        let mut found = Vec::new();
        for sequence in 1..=ATTEMPTS {
            self.send(kind, NLM_F_REQUEST | NLM_F_DUMP, sequence, body)?;
            found.clear();
            if !self.receive(sequence, |payload| found.extend(parse(payload)))? {
                return Ok(found);
            }
        }
        Err(io::Error::other("the table keeps changing"))
    }

    /// Requests one entry; `None` if the kernel answers that there is none.
    pub fn ask(&self, kind: u16, body: &[u8]) -> io::Result<Option<Vec<u8>>> {
        let answer = self.request(kind, body);
        match answer.as_ref().map_err(io::Error::raw_os_error) {
            // No route, no such device, no such namespace.
            Err(Some(
                libc::ENETUNREACH | libc::EHOSTUNREACH | libc::ENODEV | libc::ENOENT | libc::EINVAL,
            )) => Ok(None),
            _ => answer.map(Some),
        }
    }

    /// Requests one entry.
    ///
    /// # Errors
    /// The kernel answers with an error, or not at all.
    pub fn request(&self, kind: u16, body: &[u8]) -> io::Result<Vec<u8>> {
        /// Any number will do, because the answer to such a request is a single message.
        const SEQUENCE: u32 = 1;
        self.send(kind, NLM_F_REQUEST, SEQUENCE, body)?;
        let mut buffer = Vec::with_capacity(8 * 1024);
        loop {
            self.receive_into(&mut buffer)?;
            let Some((message, _)) = Message::split(&buffer) else {
                // The answer did not fit, and no other message follows.
                return Err(io::ErrorKind::InvalidData.into());
            };
            if message.sequence != SEQUENCE {
                continue;
            }
            if message.kind != NLMSG_ERROR {
                return Ok(message.payload.to_vec());
            }
            return Err(message.error());
        }
    }

    fn send(&self, kind: u16, flags: u16, sequence: u32, body: &[u8]) -> io::Result<()> {
        let too_long = |_| io::Error::from(io::ErrorKind::InvalidInput);
        let length = u32::try_from(HEADER + body.len()).map_err(too_long)?;
        let mut message = Vec::with_capacity(HEADER + body.len());
        message.extend(length.to_ne_bytes());
        message.extend(kind.to_ne_bytes());
        message.extend(flags.to_ne_bytes());
        message.extend(sequence.to_ne_bytes());
        message.extend(0u32.to_ne_bytes());
        message.extend(body);
        send(&self.socket, &message, SendFlags::empty())?;
        Ok(())
    }

    /// Receives the next datagram, as much of it as fits.
    fn receive_into(&self, buffer: &mut Vec<u8>) -> io::Result<()> {
        buffer.clear();
        recv(&self.socket, spare_capacity(buffer), RecvFlags::empty())?;
        Ok(())
    }

    /// Reads answers until the last one. Returns whether the table changed during the dump.
    fn receive(&self, sequence: u32, mut take: impl FnMut(&[u8])) -> io::Result<bool> {
        // The kernel sends at most 32 KiB at a time.
        let mut buffer = Vec::with_capacity(32 * 1024);
        let mut changed = false;
        loop {
            self.receive_into(&mut buffer)?;
            let mut rest = buffer.as_slice();
            while let Some((message, next)) = Message::split(rest) {
                rest = next;
                if message.sequence != sequence {
                    continue;
                }
                changed |= message.flags & NLM_F_DUMP_INTR != 0;
                match message.kind {
                    // Both carry an error code, which is 0 after success.
                    NLMSG_DONE | NLMSG_ERROR => {
                        let error = message.error();
                        return match error.raw_os_error() {
                            Some(0) => Ok(changed),
                            _ => Err(error),
                        };
                    }
                    _ => take(message.payload),
                }
            }
        }
    }
}

struct Message<'a> {
    kind: u16,
    flags: u16,
    sequence: u32,
    payload: &'a [u8],
}

impl<'a> Message<'a> {
    /// Splits off the first message. Returns it, and the bytes that follow it.
    fn split(bytes: &'a [u8]) -> Option<(Message<'a>, &'a [u8])> {
        let length = usize::try_from(u32_at(bytes, 0)?).ok()?;
        let payload = bytes.get(HEADER..length)?;
        let message = Message {
            kind: u16_at(bytes, 4)?,
            flags: u16_at(bytes, 6)?,
            sequence: u32_at(bytes, 8)?,
            payload,
        };
        let rest = bytes.get(length.next_multiple_of(ALIGN)..);
        Some((message, rest.unwrap_or_default()))
    }

    fn error(&self) -> io::Error {
        let code = u32_at(self.payload, 0).map_or(0, |n| i32::from_ne_bytes(n.to_ne_bytes()));
        io::Error::from_raw_os_error(code.saturating_neg())
    }
}

/// Iterates over the attributes in `bytes` as kind and value. Ends at the first malformed one.
pub(super) fn attributes(mut bytes: &[u8]) -> impl Iterator<Item = (u16, &[u8])> {
    /// Flags that the kernel may set on an attribute's kind.
    const FLAGS: u16 = 0xc000;
    std::iter::from_fn(move || {
        let length = usize::from(u16_at(bytes, 0)?);
        let kind = u16_at(bytes, 2)? & !FLAGS;
        let value = bytes.get(4..length)?;
        bytes = bytes
            .get(length.next_multiple_of(ALIGN)..)
            .unwrap_or_default();
        Some((kind, value))
    })
}

/// Encodes one attribute.
pub(super) fn attribute(kind: u16, value: &[u8]) -> Vec<u8> {
    let length = u16::try_from(4 + value.len()).unwrap_or(u16::MAX);
    let mut bytes = Vec::with_capacity(usize::from(length).next_multiple_of(ALIGN));
    bytes.extend(length.to_ne_bytes());
    bytes.extend(kind.to_ne_bytes());
    bytes.extend(value);
    bytes.resize(bytes.len().next_multiple_of(ALIGN), 0);
    bytes
}

pub(super) fn u16_at(bytes: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_ne_bytes(*bytes.get(at..)?.first_chunk()?))
}

pub(super) fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_ne_bytes(*bytes.get(at..)?.first_chunk()?))
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixDatagram;

    use super::*;

    #[test]
    fn dump_that_the_kernel_did_not_finish_is_an_error() {
        const ENDS: [(u16, i32, bool); 3] = [
            (0, 0, true),
            (0, -libc::ENOMEM, false),
            (NLM_F_DUMP_INTR, 0, false),
        ];
        for (flags, code, is_whole) in ENDS {
            let (ours, kernels) = UnixDatagram::pair().unwrap();
            for sequence in 1..=8u32 {
                let mut end = 20u32.to_ne_bytes().to_vec();
                end.extend(NLMSG_DONE.to_ne_bytes());
                end.extend(flags.to_ne_bytes());
                end.extend(sequence.to_ne_bytes());
                end.extend(0u32.to_ne_bytes());
                end.extend(code.to_ne_bytes());
                kernels.send(&end).unwrap();
            }
            let netlink = Netlink {
                socket: ours.into(),
            };
            let dumped = netlink.dump(GET_LINK, &[], |_| Some(()));
            assert_eq!(dumped.is_ok(), is_whole, "{flags} {code}: {dumped:?}");
        }
    }

    #[test]
    fn attributes_survive_a_round_trip() {
        let mut bytes = attribute(1, b"abc");
        bytes.extend(attribute(0x8002, b""));
        bytes.extend(attribute(3, b"four"));
        let found: Vec<_> = attributes(&bytes).collect();
        assert_eq!(found, [(1, &b"abc"[..]), (2, &b""[..]), (3, &b"four"[..])]);
        assert_eq!(bytes.len() % ALIGN, 0);
    }

    #[test]
    fn malformed_attributes_end_iteration() {
        for bad in [
            &[][..],
            &[3, 0, 0, 0],
            &[9, 0, 0, 0, 1],
            &[0; 3],
            &[255; 40],
        ] {
            assert_eq!(attributes(bad).count(), 0, "{bad:?}");
            assert!(Message::split(bad).is_none(), "{bad:?}");
        }
    }
}
