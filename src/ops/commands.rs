//! What an operator can type: the one table that the parser, `--help`, the man page and the completions of shells are made of.

use super::arguments::Arguments;
use super::outcome::{CommandError, CommandOutput};
use super::{
    check, completions, doctor, explain, export, man, metrics, node::Node, reclaim, release, show,
};

/// One command.
#[derive(Clone, Copy)]
pub struct Command {
    /// Its name.
    pub name: &'static str,
    /// What stands behind it, as `[POOL]` or `ADDRESS`; empty for nothing.
    pub operand: &'static str,
    /// Whether the operand may be left out.
    pub operand_is_optional: bool,
    /// Its options.
    pub options: &'static [Opt],
    /// What it does, in a line without full stop.
    pub about: &'static str,
    /// The same at length, a paragraph each.
    pub text: &'static [&'static str],
    /// What to type, in lines of at most 68 characters and without backticks, and what for.
    pub examples: &'static [(&'static str, &'static str)],
    /// What its exit statuses mean.
    pub exits: &'static [(u8, &'static str)],
    /// Carries it out.
    pub run: fn(&Node, &Arguments) -> Result<CommandOutput, CommandError>,
}

/// An option of a command.
#[derive(Clone, Copy)]
pub struct Opt {
    /// Its long name, without dashes.
    pub name: &'static str,
    /// The name of its value, if it takes one.
    pub value: Option<&'static str>,
    /// What it does, in a line without full stop.
    pub about: &'static str,
}

const JSON: Opt = Opt {
    name: "json",
    value: None,
    about: "print JSON, whose shape stays, instead of text for people",
};

const OUTPUT: Opt = Opt {
    name: "output",
    value: Some("FILE"),
    about: "write to FILE, replaced as a whole, instead of stdout",
};

const WORKED: (u8, &str) = (0, "it worked");
const CANNOT: (u8, &str) = (2, "it could not be done: stderr says why");

/// All commands, in the order in which they are told.
pub const COMMANDS: &[Command] = &[
    Command {
        name: "show",
        operand: "POOL",
        operand_is_optional: true,
        options: &[
            JSON,
            Opt {
                name: "events",
                value: None,
                about: "show the last operations instead of the pools",
            },
        ],
        about: "show the pools, how full they are, and who holds what",
        text: &[
            "Shows every pool, or the POOL of this subnet, with its interface, its gateway, and how many of its addresses are held, suspected to be leaks, resting after their release, kept back and free; then every holder: address, pod, container, network and interface, and for how long it has held it.",
            "In the bar, # is held, ! held but without any sign of life when last looked for, ~ resting, x not to be given (the host has it, or the configuration excludes it), and . free. An age that begins with > is of a record that the original plugin wrote: it is at least that old.",
            "With --events it shows the last 256 ADDs, DELs, CHECKs, GCs, reclaims and releases, the newest last.",
            "Takes no lock, changes nothing and asks nobody.",
        ],
        examples: &[
            ("azure-vnet-ipam show", "everything"),
            ("azure-vnet-ipam show 10.224.0.0/16", "one pool"),
            ("azure-vnet-ipam show --events", "what happened last"),
            (
                "azure-vnet-ipam show --json | jq '.pools[].free'",
                "for programs",
            ),
        ],
        exits: &[WORKED, CANNOT],
        run: show::run,
    },
    Command {
        name: "check",
        operand: "",
        operand_is_optional: true,
        options: &[JSON],
        about: "compare the state with the node, and report what is wrong",
        text: &[
            "Looks into every network namespace of the node, at the routes of the host, at what the runtime and azure-vnet know, asks the source, and compares all of it with the state: leaked addresses, addresses that two attachments claim, addresses in use that nobody holds, pods with an address from elsewhere, records of an unknown owner, a state that is lost or cannot be read, a lock that is held for too long, a source that does not answer or fits no interface. Each finding comes with its evidence and with what to do.",
            "Takes no lock and changes nothing.",
        ],
        examples: &[
            ("azure-vnet-ipam check", "what is wrong"),
            (
                "azure-vnet-ipam check --json >/tmp/findings.json \\\n    || echo 'look at the findings'",
                "for a monitoring agent",
            ),
        ],
        exits: &[
            (0, "nothing is wrong"),
            (1, "there are findings"),
            (2, "it could not look, or not everywhere, and found nothing"),
        ],
        run: check::run,
    },
    Command {
        name: "explain",
        operand: "ADDRESS|CONTAINER|POD",
        operand_is_optional: false,
        options: &[JSON],
        about: "tell the whole story of one address, container or pod",
        text: &[
            "Tells what the state has about it, what the node shows of it, what happened to it last, and what the plugin would do now. A container may be named by the first characters of its ID, a pod as namespace/name or name.",
            "Takes no lock and changes nothing.",
        ],
        examples: &[
            ("azure-vnet-ipam explain 10.224.0.9", "an address"),
            ("azure-vnet-ipam explain default/web-1", "a pod"),
            ("azure-vnet-ipam explain 3f2a91c04d7e", "a container"),
        ],
        exits: &[(0, "it is known"), (1, "nothing is known of it"), CANNOT],
        run: explain::run,
    },
    Command {
        name: "reclaim",
        operand: "",
        operand_is_optional: true,
        options: &[
            Opt {
                name: "yes",
                value: None,
                about: "free what is dead, instead of telling what would be freed",
            },
            JSON,
        ],
        about: "free the addresses of holders that are dead",
        text: &[
            "Judges every holder by the rules that an ADD follows when a pool has nothing left: dead is who is older than 15 minutes, of whom the node shows nothing at all, and who was found so twice, 60 seconds apart or more, or is older than an hour.",
            "Without --yes it only tells what would be freed and why. With --yes it takes the lock and frees that, and takes note of those that look dead for the first time; what changed while the node was looked at is left alone. Freed addresses rest like released ones.",
        ],
        examples: &[
            ("azure-vnet-ipam reclaim", "what would be freed, and why"),
            ("sudo azure-vnet-ipam reclaim --yes", "free it"),
        ],
        exits: &[WORKED, CANNOT],
        run: reclaim::run,
    },
    Command {
        name: "release",
        operand: "ADDRESS",
        operand_is_optional: false,
        options: &[
            Opt {
                name: "container",
                value: Some("ID"),
                about: "the container that holds it, or the first 8 characters of its ID or more; \"unknown\" where nobody knows the owner",
            },
            Opt {
                name: "force",
                value: None,
                about: "release it in spite of signs of life",
            },
            JSON,
        ],
        about: "release one address by hand",
        text: &[
            "Releases ADDRESS if the container ID names its holder. It refuses when anything on the node speaks for the holder, or when not everything could be looked at, unless --force is given: another pod that gets an address still in use breaks both. The log and the events say who released what, from which terminal.",
        ],
        examples: &[(
            "sudo azure-vnet-ipam release 10.224.0.9 --container 3f2a91c04d7e",
            "as `show` and `check` name them",
        )],
        exits: &[
            (0, "it is released"),
            (
                1,
                "it is not: it is another's, free, or shows signs of life",
            ),
            CANNOT,
        ],
        run: release::run,
    },
    Command {
        name: "doctor",
        operand: "",
        operand_is_optional: true,
        options: &[JSON],
        about: "look at everything the plugin needs on this node",
        text: &[
            "Looks at paths and their modes, the lock, the state and its format, the file of settings, the source and the interfaces it lists, the conflists in /etc/cni/net.d that name this plugin, other plugins that give the same addresses, and addresses of the pools that are configured on the host itself. Each line is ok, a warning or wrong, with the remedy.",
            "Takes no lock and changes nothing.",
        ],
        examples: &[("sudo azure-vnet-ipam doctor", "look at everything")],
        exits: &[
            (0, "nothing is wrong, though there may be warnings"),
            (1, "something is wrong"),
            CANNOT,
        ],
        run: doctor::run,
    },
    Command {
        name: "export",
        operand: "",
        operand_is_optional: true,
        options: &[OUTPUT],
        about: "one JSON document for a support case",
        text: &[
            "Puts together the state, what the node shows of who is alive, the findings of `check`, the lines of `doctor`, the last events and the versions. Of configurations only what concerns this plugin is in it, and no credentials.",
        ],
        examples: &[(
            "sudo azure-vnet-ipam export --output /tmp/azure-vnet-ipam.json",
            "a file to send",
        )],
        exits: &[WORKED, CANNOT],
        run: export::run,
    },
    Command {
        name: "metrics",
        operand: "",
        operand_is_optional: true,
        options: &[OUTPUT],
        about: "figures for Prometheus",
        text: &[
            "Prints pools, their use, the age of the source's answer, and counts of operations in the text format of Prometheus. With --output FILE, for the textfile collector of the node exporter, whose files end in .prom; the file is always a whole one.",
            "Takes no lock and asks nobody.",
        ],
        examples: &[
            ("azure-vnet-ipam metrics", "print them"),
            (
                "azure-vnet-ipam metrics \\\n    --output /var/lib/prometheus/node-exporter/azure-vnet-ipam.prom",
                "for a timer or cron",
            ),
        ],
        exits: &[WORKED, CANNOT],
        run: metrics::run,
    },
    Command {
        name: "check-settings",
        operand: "FILE",
        operand_is_optional: true,
        options: &[],
        about: "tell what is wrong in /etc/azure-vnet-ipam.json, or FILE",
        text: &[
            "Checks the file that gives defaults for the key ipam of network configurations. An ADD leaves out what is wrong in it, and says so in the log only.",
        ],
        examples: &[("azure-vnet-ipam check-settings", "after writing it")],
        exits: &[
            (0, "the file is right"),
            (1, "it is not, or is not there: stderr says why"),
        ],
        run: doctor::check_settings,
    },
    Command {
        name: "completions",
        operand: "bash|zsh",
        operand_is_optional: false,
        options: &[],
        about: "print what makes a shell complete these commands",
        text: &[
            "Completes the names of commands, their options, and what these take where that is a file. Looks at nothing on the node.",
        ],
        examples: &[
            (
                "azure-vnet-ipam completions bash \\\n    >/etc/bash_completion.d/azure-vnet-ipam",
                "for bash",
            ),
            (
                "azure-vnet-ipam completions zsh \\\n    >/usr/local/share/zsh/site-functions/_azure-vnet-ipam",
                "for zsh",
            ),
        ],
        exits: &[WORKED, CANNOT],
        run: completions::run,
    },
    Command {
        name: "man",
        operand: "",
        operand_is_optional: true,
        options: &[],
        about: "print the man page",
        text: &[
            "Prints the page in the language of roff, which man formats. Looks at nothing on the node.",
        ],
        examples: &[
            ("azure-vnet-ipam man | man -l -", "read it"),
            (
                "azure-vnet-ipam man >/usr/local/share/man/man8/azure-vnet-ipam.8",
                "install it",
            ),
        ],
        exits: &[WORKED, CANNOT],
        run: man::run,
    },
];

/// The command of this name.
pub fn named(name: &str) -> Option<&'static Command> {
    COMMANDS.iter().find(|command| command.name == name)
}
