//! The table of errors, which the documentation and `errors` print: what an operator can do about each message.

use crate::cni::Code;

/// A row of the table.
#[derive(Debug)]
pub struct ErrorRow {
    /// The code of the error.
    pub code: Code,
    /// The beginnings of its messages. `X` stands for any text, and `N` for any number.
    pub messages: &'static [&'static str],
    /// What to do, in Markdown.
    pub remedy: &'static str,
}

impl ErrorRow {
    /// Formats the row in Markdown.
    pub fn to_markdown(&self) -> String {
        let messages: Vec<_> = self.messages.iter().map(|m| format!("`{m}`")).collect();
        let (code, messages) = (self.code as u8, messages.join(", "));
        format!("| {code} | {messages} | {} |", self.remedy)
    }
}

const fn row(code: Code, messages: &'static [&'static str], remedy: &'static str) -> ErrorRow {
    ErrorRow {
        code,
        messages,
        remedy,
    }
}

/// The rows, in the order of their codes.
pub const ERROR_TABLE: &[ErrorRow] = &[
    row(
        Code::IncompatibleVersion,
        &["incompatible CNI versions"],
        "use a `cniVersion` of the list in `details`",
    ),
    row(
        Code::IncompatibleVersion,
        &["config version does not allow X"],
        "CHECK needs cniVersion 0.4.0 or later; GC and STATUS need 1.1.0",
    ),
    row(
        Code::UnknownContainer,
        &["missing containerID"],
        "set CNI_CONTAINERID",
    ),
    row(
        Code::UnknownContainer,
        &["Check failed: no address is held for this attachment"],
        "recreate the pod",
    ),
    row(
        Code::InvalidEnvironment,
        &["required env variables X missing"],
        "set them",
    ),
    row(
        Code::InvalidEnvironment,
        &[
            "invalid characters in containerID",
            "containerID is too long",
            "interface name",
        ],
        "correct the variable",
    ),
    row(
        Code::InvalidEnvironment,
        &["unknown CNI_COMMAND: X"],
        "use ADD, DEL, CHECK, GC, STATUS or VERSION",
    ),
    row(
        Code::InvalidEnvironment,
        &["unknown args in CNI_ARGS"],
        "correct them, or set `IgnoreUnknown=1`",
    ),
    row(
        Code::Io,
        &["cannot lock the state", "Failed to X: cannot write X"],
        "look at the disk and the folder that `details` name; they tell whether anything was changed; `check` looks at all of them",
    ),
    row(
        Code::Io,
        &["cannot write the result to stdout"],
        "the caller closed stdout; the log tells what became of the address",
    ),
    row(
        Code::Decoding,
        &[
            "error unmarshall network config",
            "decoding version from network config",
        ],
        "correct the JSON on stdin",
    ),
    row(
        Code::InvalidNetworkConfig,
        &[
            "missing network name",
            "invalid characters found in network name",
            "network name is too long",
            "invalid query URL",
            "ipam.X must be",
        ],
        "correct the network configuration; `check` names the file and the key",
    ),
    row(
        Code::InvalidNetworkConfig,
        &[
            "prevResult must be",
            "cni.dev/valid-attachments must be",
            "cni.dev/valid-attachments is missing",
        ],
        "the runtime's part of the configuration is wrong; nothing was changed",
    ),
    row(
        Code::InvalidNetworkConfig,
        &["invalid requested address X in X"],
        "ask for one address of each family at most",
    ),
    row(
        Code::TryAgain,
        &["timed out after 30 s waiting for the lock on the state"],
        "another process holds the lock and is named; `check` tells since when it runs; the call may be repeated",
    ),
    row(
        Code::TryAgain,
        &["Failed to allocate address: the state was lost, and for N s more"],
        "the next ADDs rebuild it; new pods wait meanwhile; the call may be repeated; `show` tells for how long",
    ),
    row(
        Code::TryAgain,
        &["the state cannot be read now"],
        "the call may be repeated; `check` tells what became of the state",
    ),
    row(
        Code::NotAvailable,
        &["ADDs cannot be served"],
        "the rest of `msg` says why; `check` says what to do",
    ),
    row(
        Code::Plugin,
        &["Check failed: X is not held for this attachment"],
        "the address is free, or another's (`explain ADDRESS` tells): recreate the pod",
    ),
    row(
        Code::Plugin,
        &["Check failed: the state is gone"],
        "the next ADD rebuilds it",
    ),
    row(
        Code::Plugin,
        &["N stale addresses are kept, N are freed"],
        "GC: `details` and the log tell which and why; they are in use, or could not be looked for; `explain ADDRESS` tells more",
    ),
    row(
        Code::Plugin,
        &["Failed to parse network configuration"],
        "a key has the wrong type, or `ipam.environment` is unknown; `check` names the file",
    ),
    row(
        Code::Plugin,
        &["Failed to allocate pool: no available address pools"],
        "no pool is of the wanted family and on the wanted interface: does the interface have secondary addresses, and does its hardware address match? `check` tells both",
    ),
    row(
        Code::Plugin,
        &["Failed to allocate pool: no pool has X addresses"],
        "`ipam.families` wants both, and the source lists one: leave the other out, or name a source that has it (`ipam.ipv6Environment`)",
    ),
    row(
        Code::Plugin,
        &[
            "Failed to allocate pool: Invalid address space",
            "Failed to allocate address: Invalid address space",
        ],
        "there is no state, and the source gave none: `details` say why; `check` asks again and says what to try",
    ),
    row(
        Code::Plugin,
        &["Failed to allocate address: Pool id X not found :Invalid address pool"],
        "`ipam.subnet` names no pool; `details` and `show` list the pools",
    ),
    row(
        Code::Plugin,
        &[
            "Failed to allocate address: Address not found",
            "Failed to allocate address: Address already in use",
            "Failed to allocate address: Address X was released a moment ago",
            "Failed to allocate address: Address X is excluded",
        ],
        "ask for another address, or later; `explain ADDRESS` tells who has it and how long it rests",
    ),
    row(
        Code::Plugin,
        &["Failed to allocate address: No available addresses in X"],
        "`show` tells who holds them: delete pods, or assign more secondary addresses in Azure; \"suspected leaks\" come back by themselves, or with `reclaim --yes`; what is \"wired on the host\" should be removed there",
    ),
    row(
        Code::Plugin,
        &["Failed to parse address: invalid CIDR address"],
        "the state has a pool without a subnet, which the source does not list",
    ),
    row(
        Code::Plugin,
        &["Failed to allocate address: the state contradicts itself"],
        "a defect; `details` and what `export` prints belong in a bug report",
    ),
    row(
        Code::Plugin,
        &["the state is of format N"],
        "a newer version wrote it: install that again",
    ),
    row(
        Code::Plugin,
        &["internal error"],
        "a defect; `details` and what `export` prints belong in a bug report",
    ),
];
