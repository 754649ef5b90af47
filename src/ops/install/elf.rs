//! Finds a section of an ELF executable: just enough of the format to recognise whose executable it is. Reads little, checks every
//! offset, and never panics, whatever the bytes are (promise P9).

use std::fs::File;
use std::os::unix::fs::FileExt;

/// Most executables have about 30 sections.
const MOST_SECTIONS: u16 = 4096;
const HEADER: usize = 64;
const SECTION_HEADER: usize = 64;
const PROGRAM_HEADER: usize = 56;

/// Bytes that can be read from any offset.
pub trait ReadAt {
    /// Returns exactly `length` bytes at `offset`, or `None` if they are not there or cannot be read.
    fn read_at(&self, offset: u64, length: usize) -> Option<Vec<u8>>;
}

impl ReadAt for File {
    fn read_at(&self, offset: u64, length: usize) -> Option<Vec<u8>> {
        let mut bytes = vec![0; length];
        self.read_exact_at(&mut bytes, offset).ok()?;
        Some(bytes)
    }
}

/// An executable for a 64-bit little-endian machine, as amd64 and arm64 are. Others cannot run here.
pub struct Elf<'a> {
    file: &'a dyn ReadAt,
    header: Vec<u8>,
}

/// A section: its address in memory and its first bytes.
#[derive(Debug, PartialEq, Eq)]
pub struct Section {
    /// The address that it is loaded to.
    pub address: u64,
    /// Its bytes, up to the limit that was asked for.
    pub bytes: Vec<u8>,
}

impl<'a> Elf<'a> {
    /// Reads the header. Returns `None` for anything but such an executable.
    pub fn parse(file: &'a dyn ReadAt) -> Option<Elf<'a>> {
        let header = file.read_at(0, HEADER)?;
        // The magic number, 64 bits, little-endian.
        header
            .starts_with(b"\x7fELF\x02\x01")
            .then_some(Elf { file, header })
    }

    /// Returns at most `limit` bytes of the section of this name.
    pub fn section(&self, name: &str, limit: usize) -> Option<Section> {
        let (offset, size, count) = self.table(40, 58, SECTION_HEADER)?;
        let entry = |index: u16| {
            let offset = offset.checked_add(u64::from(index).checked_mul(size)?)?;
            self.file.read_at(offset, SECTION_HEADER)
        };
        let names = u64_at(&entry(u16_at(&self.header, 62)?)?, 24)?;
        let mut wanted = name.as_bytes().to_vec();
        wanted.push(0);
        for index in 0..count.min(MOST_SECTIONS) {
            let section = entry(index)?;
            let name = names.checked_add(u64::from(u32_at(&section, 0)?))?;
            if self.file.read_at(name, wanted.len()).as_ref() == Some(&wanted) {
                let length = usize::try_from(u64_at(&section, 32)?).unwrap_or(usize::MAX);
                return Some(Section {
                    address: u64_at(&section, 16)?,
                    bytes: self
                        .file
                        .read_at(u64_at(&section, 24)?, length.min(limit))?,
                });
            }
        }
        None
    }

    /// Returns the bytes that are loaded to an address.
    pub fn at_address(&self, address: u64, length: usize) -> Option<Vec<u8>> {
        const LOAD: u32 = 1;
        let (offset, size, count) = self.table(32, 54, PROGRAM_HEADER)?;
        for index in 0..count.min(MOST_SECTIONS) {
            let offset = offset.checked_add(u64::from(index).checked_mul(size)?)?;
            let segment = self.file.read_at(offset, PROGRAM_HEADER)?;
            let (start, in_file) = (u64_at(&segment, 16)?, u64_at(&segment, 32)?);
            let into = match address.checked_sub(start) {
                Some(into) if u32_at(&segment, 0)? == LOAD && into < in_file => into,
                _ => continue,
            };
            if u64::try_from(length).ok()? > in_file - into {
                return None;
            }
            let offset = u64_at(&segment, 8)?.checked_add(into)?;
            return self.file.read_at(offset, length);
        }
        None
    }

    /// The offset, the size of an entry and the number of entries of a table, whose place the header gives at `place`, and whose
    /// sizes at `sizes`.
    fn table(&self, place: usize, sizes: usize, least: usize) -> Option<(u64, u64, u16)> {
        let offset = u64_at(&self.header, place)?;
        let size = u16_at(&self.header, sizes)?;
        let count = u16_at(&self.header, sizes + 2)?;
        (usize::from(size) >= least).then_some((offset, size.into(), count))
    }
}

fn bytes_at<const N: usize>(bytes: &[u8], place: usize) -> Option<[u8; N]> {
    bytes.get(place..)?.first_chunk().copied()
}

fn u16_at(bytes: &[u8], place: usize) -> Option<u16> {
    bytes_at(bytes, place).map(u16::from_le_bytes)
}

fn u32_at(bytes: &[u8], place: usize) -> Option<u32> {
    bytes_at(bytes, place).map(u32::from_le_bytes)
}

/// Reads a number of eight bytes.
pub fn u64_at(bytes: &[u8], place: usize) -> Option<u64> {
    bytes_at(bytes, place).map(u64::from_le_bytes)
}

#[cfg(test)]
pub mod testing {
    //! Executables made by hand.

    use super::*;

    impl ReadAt for Vec<u8> {
        fn read_at(&self, offset: u64, length: usize) -> Option<Vec<u8>> {
            let start = usize::try_from(offset).ok()?;
            Some(self.get(start..start.checked_add(length)?)?.to_vec())
        }
    }

    /// Makes an executable with one section, which is loaded to the address 0x1000.
    pub fn elf(name: &str, content: &[u8]) -> Vec<u8> {
        let mut out = b"\x7fELF\x02\x01\x01".to_vec();
        out.resize(64, 0);
        let segment = out.len();
        out.resize(segment + 56, 0);
        let start = out.len();
        out.extend(content);
        let names = out.len();
        out.extend(format!("\0{name}\0.shstrtab\0").bytes());
        let table = out.len();
        out.resize(table + 3 * 64, 0);
        let mut put = |place: usize, bytes: &[u8]| {
            out[place..place + bytes.len()].copy_from_slice(bytes);
        };
        let number = |n: usize| u64::try_from(n).unwrap().to_le_bytes();
        put(32, &number(segment));
        put(40, &number(table));
        for (place, value) in [(54, 56_u16), (56, 1), (58, 64), (60, 3), (62, 2)] {
            put(place, &value.to_le_bytes());
        }
        put(segment, &1_u32.to_le_bytes());
        put(segment + 8, &number(start));
        put(segment + 16, &number(0x1000));
        put(segment + 32, &number(content.len()));
        put(table + 64, &1_u32.to_le_bytes());
        put(table + 64 + 16, &number(0x1000));
        put(table + 64 + 24, &number(start));
        put(table + 64 + 32, &number(content.len()));
        let name_of_names = u32::try_from(name.len() + 2).unwrap();
        put(table + 128, &name_of_names.to_le_bytes());
        put(table + 128 + 24, &number(names));
        out
    }
}

#[cfg(test)]
mod tests {
    use super::testing::elf;
    use super::*;

    fn section(bytes: &Vec<u8>, name: &str, limit: usize) -> Option<Section> {
        Elf::parse(bytes)?.section(name, limit)
    }

    #[test]
    fn sections_are_found_by_their_whole_name() {
        let bytes = elf(".mine", b"content");
        let found = section(&bytes, ".mine", 100).unwrap();
        assert_eq!((found.address, &found.bytes[..]), (0x1000, &b"content"[..]));
        assert_eq!(section(&bytes, ".mine", 3).unwrap().bytes, b"con");
        for name in [".min", ".mines", "mines", ""] {
            assert_ne!(
                section(&bytes, name, 100).map(|s| s.bytes),
                Some(b"content".to_vec())
            );
        }
    }

    #[test]
    fn addresses_lead_into_the_file() {
        let bytes = elf(".mine", b"content");
        let elf = Elf::parse(&bytes).unwrap();
        assert_eq!(elf.at_address(0x1003, 4).unwrap(), b"tent");
        for (address, length) in [(0x1003, 5), (0xfff, 1), (0x1007, 1), (u64::MAX, 1)] {
            assert_eq!(elf.at_address(address, length), None, "{address:x}");
        }
    }

    #[test]
    fn other_files_are_no_executables() {
        let whole = elf(".mine", b"content");
        for (place, value) in [(0, b'x'), (4, 1), (5, 2)] {
            let mut other = whole.clone();
            other[place] = value;
            assert!(Elf::parse(&other).is_none(), "{place}");
        }
        let mut archive = b"archive".to_vec();
        archive.extend(&whole);
        assert!(Elf::parse(&archive).is_none());
        assert!(Elf::parse(&Vec::new()).is_none());
    }

    #[test]
    fn damaged_executables_do_not_panic() {
        let whole = elf(".mine", b"content");
        for length in 0..whole.len() {
            let _ = section(&whole[..length].to_vec(), ".mine", 100);
        }
        for place in 0..whole.len() {
            for value in [0, 1, 0x7f, 0x80, 0xff] {
                let mut other = whole.clone();
                other[place] = value;
                let _ = section(&other, ".mine", 100);
                if let Some(elf) = Elf::parse(&other) {
                    let _ = elf.at_address(0x1003, 4);
                }
            }
        }
    }
}
