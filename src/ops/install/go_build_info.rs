//! Reads which Go module an executable was built from, as `go version -m` does. The format is that of Go's package
//! `debug/buildinfo`.

use super::elf::{Elf, u64_at};

/// The section's name and its first bytes.
const SECTION: &str = ".go.buildinfo";
const MAGIC: &[u8] = b"\xff Go buildinf:";

/// Since Go 1.18 the two texts follow the header; before, it points to them.
const HEADER: usize = 32;
const INLINE: u8 = 2;
const BIG_ENDIAN: u8 = 1;

/// The original lists its some hundred dependencies in about 20 KiB.
const LIMIT: usize = 1 << 20;

/// What a Go executable was built from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GoBuild {
    /// The version of Go, such as `go1.23.2`.
    pub go: String,
    /// The path of the main module.
    pub module: String,
    /// The version that the linker was told, as the original's Makefile does; otherwise that of the module, often `(devel)`.
    pub version: String,
}

/// Reads the build information. Returns `None` if there is none.
pub fn read(elf: &Elf<'_>) -> Option<GoBuild> {
    let section = elf.section(SECTION, LIMIT)?.bytes;
    let (header, rest) = section.split_at_checked(HEADER)?;
    let (pointer_size, flags) = (*header.get(14)?, *header.get(15)?);
    let (go, modules) = match (header.starts_with(MAGIC), flags & INLINE, pointer_size) {
        (false, ..) => return None,
        (true, INLINE, _) => {
            let (go, rest) = split_text(rest)?;
            (go.to_vec(), split_text(rest)?.0.to_vec())
        }
        (true, _, 8) if flags & BIG_ENDIAN == 0 => {
            let text = |place| text_at(elf, u64_at(header, place)?);
            (text(16)?, text(24)?)
        }
        _ => return None,
    };
    let modules = String::from_utf8_lossy(&modules);
    let line = modules.lines().find_map(|line| {
        // 16 bytes without meaning come before and after the lines.
        let (_, line) = line
            .split_once("mod\t")
            .filter(|(before, _)| before.is_empty())?;
        Some(line)
    })?;
    let mut words = line.split('\t');
    let module = words.next()?.to_owned();
    let version = linked_version(&modules).or(words.next());
    Some(GoBuild {
        go: String::from_utf8_lossy(&go).into_owned(),
        module,
        version: version.unwrap_or_default().to_owned(),
    })
}

/// Returns the version in a line such as `build -ldflags="-X main.version=v1.4.59"`.
fn linked_version(modules: &str) -> Option<&str> {
    let mut lines = modules.lines();
    let flags = lines.find_map(|line| line.strip_prefix("build\t-ldflags="))?;
    let (_, version) = flags.split_once("main.version=")?;
    let version = version.split([' ', '"', '\'', '\\', '`']).next()?;
    (!version.is_empty()).then_some(version)
}

/// Splits a text off that its length precedes: seven bits in each byte, the lowest first.
fn split_text(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let mut length = 0_usize;
    for (n, byte) in bytes.iter().take(4).enumerate() {
        length |= usize::from(byte & 0x7f) << (7 * n);
        if byte & 0x80 == 0 {
            return bytes.get(n + 1..)?.split_at_checked(length);
        }
    }
    None
}

/// Follows a pointer to a string of Go: a pointer and a length.
fn text_at(elf: &Elf<'_>, address: u64) -> Option<Vec<u8>> {
    let string = elf.at_address(address, 16)?;
    let length = usize::try_from(u64_at(&string, 8)?).ok()?;
    elf.at_address(u64_at(&string, 0)?, (length <= LIMIT).then_some(length)?)
}

#[cfg(test)]
pub mod testing {
    //! Go executables made by hand.

    use super::super::elf::testing::elf;
    use super::*;

    fn with_length(text: &str) -> Vec<u8> {
        let mut out = Vec::new();
        let mut length = text.len();
        while length > 0x7f {
            out.push(u8::try_from(length & 0x7f).unwrap() | 0x80);
            length >>= 7;
        }
        out.push(u8::try_from(length).unwrap());
        out.extend(text.bytes());
        out
    }

    pub fn modules(module: &str) -> String {
        format!(
            "0123456789abcdefpath\t{module}/cni\nmod\t{module}\tv1.4.59\th1:x=\ndep\tx\tv1\n0123456789abcdef"
        )
    }

    /// As Go 1.18 and later build it.
    pub fn go_executable(module: &str) -> Vec<u8> {
        go_executable_of(&modules(module))
    }

    /// The same with these lines.
    pub fn go_executable_of(modules: &str) -> Vec<u8> {
        let mut section = MAGIC.to_vec();
        section.extend([8, 2]);
        section.resize(HEADER, 0);
        section.extend(with_length("go1.23.2"));
        section.extend(with_length(modules));
        elf(SECTION, &section)
    }

    /// As Go 1.17 and earlier build it. The section is loaded to 0x1000.
    pub fn old_go_executable(module: &str) -> Vec<u8> {
        let texts = ["go1.17.13", &modules(module)];
        let mut section = MAGIC.to_vec();
        section.extend([8, 0]);
        for n in 0..2_u64 {
            section.extend((0x1000 + 32 + 16 * n).to_le_bytes());
        }
        let mut place = 0x1000 + 64;
        for text in texts {
            section.extend(u64::to_le_bytes(place));
            place += u64::try_from(text.len()).unwrap();
            section.extend(u64::try_from(text.len()).unwrap().to_le_bytes());
        }
        for text in texts {
            section.extend(text.bytes());
        }
        elf(SECTION, &section)
    }
}

#[cfg(test)]
mod tests {
    use super::testing::{go_executable, go_executable_of, modules, old_go_executable};
    use super::*;

    const MODULE: &str = "github.com/Azure/azure-container-networking";

    fn build(bytes: &Vec<u8>) -> Option<GoBuild> {
        read(&Elf::parse(bytes)?)
    }

    #[test]
    fn the_module_is_read_in_both_forms() {
        for (bytes, go) in [
            (go_executable(MODULE), "go1.23.2"),
            (old_go_executable(MODULE), "go1.17.13"),
        ] {
            let expected = GoBuild {
                go: go.to_owned(),
                module: MODULE.to_owned(),
                version: "v1.4.59".to_owned(),
            };
            assert_eq!(build(&bytes), Some(expected));
        }
        assert!(modules(MODULE).len() > 0x7f, "a length of two bytes");
    }

    #[test]
    fn the_version_that_the_linker_was_told_comes_first() {
        let version = |flags: &str| {
            let modules =
                format!("path\tx\nmod\t{MODULE}\t(devel)\t\nbuild\t-compiler=gc\n{flags}\n");
            build(&go_executable_of(&modules)).unwrap().version
        };
        for (flags, expected) in [
            (r#"build -ldflags="-X main.version=v1.4.59""#, "v1.4.59"),
            (
                r#"build -ldflags="-s -X 'main.version=v1.5.0' -w""#,
                "v1.5.0",
            ),
            ("build -ldflags=-X=main.version=v1.6.1", "v1.6.1"),
            (r#"build -ldflags="-X main.version= -w""#, "(devel)"),
            ("build -ldflags=-w", "(devel)"),
            ("", "(devel)"),
        ] {
            assert_eq!(version(&flags.replacen(' ', "\t", 1)), expected, "{flags}");
        }
    }

    #[test]
    fn damaged_build_information_does_not_panic() {
        for whole in [go_executable(MODULE), old_go_executable(MODULE)] {
            for length in 0..whole.len() {
                let _ = build(&whole[..length].to_vec());
            }
            for place in 0..whole.len() {
                for value in [0, 1, 0x7f, 0x80, 0xff] {
                    let mut other = whole.clone();
                    other[place] = value;
                    let _ = build(&other);
                }
            }
        }
    }
}
