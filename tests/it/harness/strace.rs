//! Calls under strace that are killed or fail at chosen system calls.

use std::collections::BTreeMap;
use std::fs;

use super::{Call, Node};

impl Call<'_> {
    /// Runs the call under strace with these expressions, such as `inject=fsync:error=EIO`.
    pub fn strace(self, expressions: &[&str]) -> Self {
        let words = ["strace", "-f", "-qq", "-o", "/dev/null"].into_iter();
        self.under(words.chain(expressions.iter().flat_map(|text| ["-e", text])))
    }
}

/// The number of times that a call makes each system call: the highest count of one thread, as strace counts them.
pub fn count_system_calls(node: &Node, call: Call<'_>) -> BTreeMap<String, usize> {
    let trace = node.path("/trace");
    let words = ["strace", "-f", "-qq", "-o", trace.to_str().unwrap()];
    let outcome = call.under(words).run();
    assert!(outcome.exit.is_some(), "{outcome:?}");
    let mut counts = BTreeMap::<_, usize>::new();
    let text = fs::read_to_string(trace).unwrap();
    for line in text.lines() {
        let (thread, call) = line.split_once(' ').unwrap();
        let call = call.trim_start().split('(').next().unwrap();
        let is_named = call.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_');
        if is_named && !["", "execve", "exit_group"].contains(&call) {
            *counts.entry((call, thread)).or_default() += 1;
        }
    }
    let mut most = BTreeMap::new();
    for ((call, _), count) in counts {
        let known = most.entry(call.to_owned()).or_insert(0);
        *known = count.max(*known);
    }
    let total: usize = most.values().sum();
    assert!(total > 30, "{most:?}");
    most
}

/// The number of tries, and how many of them killed the call.
pub struct Kills {
    pub kills: usize,
    pub tries: usize,
}

/// Kills a call at every system call, but at no more than `most` of one kind. Runs `again` before each call to reset
/// the node, and `after` afterwards.
pub fn kill_at_every_system_call<'a>(
    node: &'a Node,
    most: usize,
    call: impl Fn() -> Call<'a>,
    again: impl Fn(),
    after: impl Fn(&str),
) -> Kills {
    again();
    let census = count_system_calls(node, call());
    let (mut kills, mut tries) = (0, 0);
    for (name, count) in census {
        let step = count.div_ceil(most);
        for n in (1..=count).step_by(step) {
            again();
            let inject = format!("inject={name}:signal=KILL:when={n}");
            let outcome = call().strace(&[&inject]).run();
            tries += 1;
            kills += usize::from(outcome.exit.is_none());
            after(&format!("killed at {name} number {n}"));
        }
    }
    println!("{kills} kills of {tries} tries");
    Kills { kills, tries }
}
