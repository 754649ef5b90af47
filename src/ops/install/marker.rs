//! The mark by which every version recognises the executables of this program.
//!
//! It is a section of its own: a file that only contains the same bytes, such as an archive with this program in it, has no such
//! section.

use std::hint::black_box;

use super::elf::Elf;
use crate::ops::build_info;

const SECTION: &str = ".azure_vnet_ipam";

/// Random. It must stay the same in all versions.
const MAGIC: [u8; 16] = *b"\x8e\x31\xd7\x0c\xf2\x96\x4b\xa5\x1d\xe8\x73\xb0\x5f\xc4\x29\x9a";

/// Longer ones belong to nobody.
const LIMIT: usize = 512;

const VERSION_LENGTH: usize = build_info::LINE.len();

#[repr(C)]
struct Marker {
    magic: [u8; 16],
    version: [u8; VERSION_LENGTH],
}

#[expect(
    unsafe_code,
    reason = "the name of a section can be misused; this section holds constant bytes that nothing but this module reads"
)]
#[used]
#[unsafe(link_section = ".azure_vnet_ipam")]
static MARKER: Marker = Marker {
    magic: MAGIC,
    version: match build_info::LINE.as_bytes().first_chunk() {
        Some(version) => *version,
        None => [0; VERSION_LENGTH],
    },
};

/// Returns the version of an executable of this program, such as `0.2.0 (commit abc1234, x86_64-unknown-linux-musl, tls)`. Returns
/// `None` for any other executable.
pub fn version(elf: &Elf<'_>) -> Option<String> {
    let section = elf.section(SECTION, LIMIT)?.bytes;
    // The linker drops a section that nothing refers to.
    let version = section.strip_prefix(&black_box(&MARKER).magic)?;
    let version = std::str::from_utf8(version).ok()?;
    let version = version.trim_end_matches('\0');
    (!version.is_empty()).then(|| version.to_owned())
}

#[cfg(test)]
pub mod testing {
    //! Executables of other versions made by hand.

    use super::super::elf::testing::elf;
    use super::*;

    pub fn executable_of_version(version: &str) -> Vec<u8> {
        elf(SECTION, &[&MAGIC, version.as_bytes()].concat())
    }
}

#[cfg(test)]
mod tests {
    use super::super::elf::testing::elf;
    use super::testing::executable_of_version;
    use super::*;

    fn version_of(bytes: &Vec<u8>) -> Option<String> {
        version(&Elf::parse(bytes)?)
    }

    #[test]
    fn only_executables_with_the_section_are_ours() {
        let ours = executable_of_version("0.9.1 (commit 1234567)");
        assert_eq!(version_of(&ours).unwrap(), "0.9.1 (commit 1234567)");
        let mut archive = vec![b'x'; 512];
        archive.extend(&ours);
        assert_eq!(version_of(&archive), None, "an archive");
        assert_eq!(version_of(&elf(".data", &ours)), None, "inside of another");
        assert_eq!(version_of(&elf(SECTION, b"0.9.1")), None, "no magic number");
        assert_eq!(version_of(&executable_of_version("")), None);
        assert_eq!(
            version_of(&elf(SECTION, &[&MAGIC[..], b"\xff"].concat())),
            None
        );
    }
}
