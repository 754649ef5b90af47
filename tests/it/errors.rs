//! Every error. A refused call changes nothing, and prints one error object with the right code. Each error is on the
//! page of errors, and each error on that page is produced here. The recorded cases of the original have more invalid
//! input.

use std::collections::BTreeSet;
use std::fs;

use serde_json::{Value, json};

use crate::harness::{Call, Node, Reply, conf, xml};

/// Refused calls: `VERB ID ENVIRONMENT
/// STDIN => CODE MESSAGE`, with the beginning of the message. A row without VERB, ID and ENVIRONMENT is an ADD of
/// `c2`. The node has 10.224.0.5 to .8. `c1` got the first ten minutes ago, and the last was just released. `LONG`,
/// `HUGE` and `DEEP` stand for more than a reader accepts.
const REFUSED: &[&str] = &[
    // The environment.
    "ADD  | => 4 required env variables [CNI_CONTAINERID] missing",
    "ADD c2 CNI_NETNS= | => 4 required env variables [CNI_NETNS] missing",
    "ADD c2 CNI_IFNAME= | => 4 required env variables [CNI_IFNAME] missing",
    "ADD  CNI_NETNS= CNI_IFNAME= | => 4 required env variables [CNI_CONTAINERID,CNI_NETNS,CNI_IFNAME] missing",
    "NONE  CNI_NETNS= CNI_IFNAME= | => 3 missing containerID",
    "ADD ../../etc | => 4 invalid characters in containerID",
    "ADD _a | => 4 invalid characters in containerID",
    "ADD LONG | => 4 containerID is too long",
    "ADD c2 CNI_IFNAME=a\u{a0}b | => 4 interface name contains / or : or whitespace characters",
    "ADD c2 CNI_IFNAME=a/b | => 4 interface name contains / or : or whitespace characters",
    "ADD c2 CNI_IFNAME=a:b | => 4 interface name contains / or : or whitespace characters",
    "ADD c2 CNI_IFNAME=. | => 4 interface name is . or ..",
    "ADD c2 CNI_IFNAME=.. | => 4 interface name is . or ..",
    "ADD c2 CNI_IFNAME=äääääääää | => 4 interface name is too long",
    "UPDATE c2 | => 4 unknown CNI_COMMAND: UPDATE",
    "add c2 | => 4 unknown CNI_COMMAND: add",
    "ADD c2 CNI_ARGS=FOO=bar;IP=10.224.0.6 | => 4 unknown args in CNI_ARGS: FOO",
    "ADD c2 AZURE_VNET_IPAM_QUERY_URL=https://example.invalid/ | => 7 invalid query URL",
    // The network configuration.
    "ADD c2 |  => 6 error unmarshall network config: unexpected end of JSON input",
    "hello => 6 error unmarshall network config: ",
    "[] => 6 error unmarshall network config: ",
    r#"{"name":1} => 6 error unmarshall network config: "#,
    r#"{"name":"a"} x => 6 error unmarshall network config: "#,
    r#"{"name":"a","x":"HUGE"} => 6 error unmarshall network config: "#,
    r#"{"name":"a","x":DEEP} => 6 error unmarshall network config: "#,
    r#"{"name":"a","cniVersion":3} => 6 decoding version from network config: "#,
    r#"GC c1 | {"name":"azure","cniVersion":"x.1"} => 6 failed to convert major version part "x.1""#,
    r#"{"name":"a","cniVersion":"0.3"} => 1 incompatible CNI versions"#,
    r#"{"name":"a","cniVersion":"2.0.0"} => 1 incompatible CNI versions"#,
    "null => 7 missing network name",
    r#"{"cniVersion":"1.1.0"} => 7 missing network name"#,
    r#"{"name":"../x"} => 7 invalid characters found in network name"#,
    r#"{"name":"_a"} => 7 invalid characters found in network name"#,
    r#"{"name":"a b"} => 7 invalid characters found in network name"#,
    r#"{"name":"LONG"} => 7 network name is too long"#,
    r#"{"name":"a","ipam":7} => 100 Failed to parse network configuration: "#,
    r#"{"name":"a","ipam":{"subnet":7}} => 100 Failed to parse network configuration: "#,
    r#"{"name":"a","ipam":{"environment":"x"}} => 100 Failed to parse network configuration: Invalid configuration"#,
    r#"{"name":"a","ipam":{"queryUrl":"gopher://x"}} => 7 invalid query URL"#,
    r#"{"name":"a","ipam":{"cooldown":"x"}} => 7 ipam.cooldown must be "#,
    r#"{"name":"a","ipam":{"addressSpace":"x"}} => 100 Failed to allocate pool: Invalid address space"#,
    r#"{"name":"a","ipam":{"addressSpace":"x","subnet":"10.224.0.0/16"}} => 100 Failed to allocate address: Invalid address space"#,
    r#"{"name":"a","ipam":{"subnet":"10.9.0.0/16"}} => 100 Failed to allocate address: Pool id 10.9.0.0/16 not found :Invalid address pool"#,
    r#"{"name":"a","master":"eth9"} => 100 Failed to allocate pool: no available address pools"#,
    r#"{"name":"a","ipam":{"exclude":["0.0.0.0/0"]}} => 100 Failed to allocate address: No available addresses in 10.224.0.0/16: 1 held, 0 free, 3 excluded"#,
    // Families.
    r#"{"name":"a","ipam":{"families":["ipv4","ipv6"]}} => 100 Failed to allocate pool: no pool has IPv6 addresses"#,
    r#"{"name":"a","ipam":{"families":[]}} => 7 ipam.families must be a list of "#,
    r#"{"name":"a","ipam":{"families":"ipv4"}} => 7 ipam.families must be a list of "#,
    r#"{"name":"a","ipam":{"families":["ipv4","ipv5"]}} => 7 ipam.families must be a list of "#,
    r#"{"name":"a","ipam":{"families":["ipv4","ipv4"]}} => 7 ipam.families must be a list of "#,
    r#"{"name":"a","ipam":{"families":[4,6]}} => 7 ipam.families must be a list of "#,
    r#"{"name":"a","ipam":{"families":["ipv4"],"subnet":"fd00:1:2::/120"}} => 7 ipam.families must be a list of "#,
    // Requested addresses.
    "ADD c2 CNI_ARGS=IP=banana | => 7 invalid requested address \"banana\" in CNI_ARGS IP: it is not an address",
    "ADD c2 CNI_ARGS=IP=;IP=zzz | => 7 invalid requested address \"zzz\" in CNI_ARGS IP: it is not an address",
    "ADD c2 CNI_ARGS=IP=10.224.0.6;IP=10.224.0.7 | => 7 invalid requested address \"10.224.0.7\" in CNI_ARGS IP: another",
    r#"{"name":"a","runtimeConfig":{"ips":["10.224.0.6","10.224.0.6/16"]}} => 7 invalid requested address "10.224.0.6/16" in runtimeConfig.ips: it is there twice"#,
    r#"{"name":"a","runtimeConfig":{"ips":["10.224.0.6","10.224.0.8"]}} => 7 invalid requested address "10.224.0.8" in runtimeConfig.ips: another address of its family"#,
    r#"{"name":"a","Args":{"CNI":{"IPS":["zzz"]}},"RuntimeConfig":{"IPs":[]}} => 7 invalid requested address "zzz" in args.cni.ips"#,
    r#"ADD c2 CNI_ARGS=IP=10.224.0.6 | {"name":"a","ipam":{"ipAddress":"10.224.0.8"}} => 7 invalid requested address "10.224.0.6" in CNI_ARGS IP: another"#,
    r#"{"name":"a","runtimeConfig":{"ips":"10.224.0.6"}} => 7 runtimeConfig.ips must be a list of addresses, for example "#,
    r#"{"name":"a","args":{"cni":{"ips":[6]}}} => 7 args.cni.ips must be a list of addresses, for example "#,
    "ADD c2 CNI_ARGS=IP=10.224.0.99 | => 100 Failed to allocate address: Address not found",
    "ADD c2 CNI_ARGS=IP=fd00::5 | => 100 Failed to allocate address: Address not found",
    r#"ADD c2 CNI_ARGS=IP=10.224.0.6 | {"name":"a","ipam":{"ipAddress":"10.224.0.8/99"}} => 100 Failed to allocate address: Address not found"#,
    r#"ADD c2 CNI_ARGS=IP=fd00::5 | {"name":"a","ipam":{"subnet":"10.224.0.0/16"}} => 100 Failed to allocate address: Address not found"#,
    r#"{"name":"a","ipam":{"ipAddress":"10.224.0.5"}} => 100 Failed to allocate address: Address already in use"#,
    r#"ADD c2 CNI_ARGS=IP=10.224.0.6 | {"name":"a","ipam":{"exclude":["10.224.0.0/24"]}} => 100 Failed to allocate address: Address 10.224.0.6 is excluded"#,
    r#"{"name":"a","ipam":{"ipAddress":"10.224.0.8","cooldown":3600}} => 100 Failed to allocate address: Address 10.224.0.8 is in cooldown; retry in "#,
    // CHECK, GC and STATUS.
    r#"CHECK c1 | {"name":"azure","cniVersion":"0.3.1"} => 1 config version does not allow CHECK"#,
    r#"GC c1 | {"name":"azure","cniVersion":"1.0.0"} => 1 config version does not allow GC"#,
    r#"GC  | {"name":"azure","cniVersion":"1.0.0"} => 1 config version does not allow GC"#,
    r#"STATUS c1 | {"name":"azure","cniVersion":"1.0.0"} => 1 config version does not allow STATUS"#,
    r#"STATUS  | {"name":"azure","cniVersion":"1.0.0"} => 1 config version does not allow STATUS"#,
    r#"CHECK c9 | {"name":"azure","cniVersion":"1.1.0","prevResult":{"ips":[{"address":"10.224.0.6/16"}]}} => 3 Check failed: no address is held for this attachment"#,
    r#"CHECK c1 | {"name":"azure","cniVersion":"1.1.0","prevResult":{"ips":[{"address":"10.224.0.6/16"}]}} => 100 Check failed: 10.224.0.6 is not held for this attachment"#,
    r#"CHECK c1 | {"name":"azure","cniVersion":"1.1.0","prevResult":7} => 7 prevResult must be"#,
    r#"GC  | {"name":"azure","cniVersion":"1.1.0"} => 7 cni.dev/valid-attachments is missing"#,
    r#"GC  | {"name":"azure","cniVersion":"1.1.0","cni.dev/attachments":7} => 7 "#,
    r#"GC  | {"name":"azure","cniVersion":"1.1.0","cni.dev/attachments":{}} => 7 "#,
    r#"GC  | {"name":"azure","cniVersion":"1.1.0","cni.dev/attachments":["c1"]} => 7 "#,
    r#"GC  | {"name":"azure","cniVersion":"1.1.0","cni.dev/attachments":[{"ifname":"eth0"}]} => 7 "#,
    // In a folder, the kernel cannot be scanned.
    r#"GC  | {"name":"azure","cniVersion":"1.1.0","cni.dev/valid-attachments":null} => 100 1 stale addresses are kept, 0 are freed"#,
    r#"STATUS  | {"name":"azure","cniVersion":"1.1.0","ipam":{"subnet":"10.9.0.0/16"}} => 50 ADDs cannot be served: Failed to allocate address: Pool id 10.9.0.0/16 not found"#,
    r#"STATUS  | {"name":"azure","cniVersion":"1.1.0","ipam":{"families":["ipv4","ipv6"]}} => 50 ADDs cannot be served: Failed to allocate pool: no pool has IPv6 addresses"#,
];

/// The call of a row.
fn call<'a>(node: &'a Node, row: &str) -> Call<'a> {
    let usual = r#"{"name":"azure","cniVersion":"1.1.0"}"#;
    let (called, stdin) = match row.split_once(" |") {
        Some((called, stdin)) => (called, stdin.strip_prefix(' ').unwrap_or(usual)),
        None => ("ADD c2", row),
    };
    let fill = |text: &str| {
        let text = text.replace("LONG", &"a".repeat(1025));
        let text = text.replace("HUGE", &"x".repeat(1 << 20));
        text.replace("DEEP", &"[".repeat(100_000))
    };
    let mut words = called.split(' ');
    let (verb, id) = (words.next().unwrap(), words.next().unwrap());
    let call = node.call(verb, &fill(id)).stdin(fill(stdin));
    words.fold(call, |call, word| {
        let (name, value) = word.split_once('=').unwrap();
        call.env(name, value)
    })
}

/// Collects the errors of refused calls. Checks that the calls change nothing.
fn collect_refusals(found: &mut Vec<(i64, String)>) {
    let (node, _wire) = Node::with_wire("refused", Reply::Xml(xml(5..9)));
    assert_eq!(node.add("c1").address(), "10.224.0.5");
    node.advance_clock(600);
    let last = json!({ "ipAddress": "10.224.0.8" });
    let given = node.call("ADD", "gone").stdin(conf("1.0.0", last));
    given.run().success();
    node.del("gone").assert_no_output();
    let records = || {
        let mut state: Value = node.state();
        let mut records = state["azure-vnet-ipam"]["records"].take();
        // The next call that saves the state after 30 s forgets the last namespace of a released address if it is gone.
        let released = &mut records["local"]["10.224.0.0/16"]["10.224.0.8"];
        released.as_object_mut().unwrap().remove("netns");
        [state["IPAM"]["AddressSpaces"].take(), records]
    };
    let before = records();
    node.advance_clock(31);
    let mut wrong = Vec::new();
    for row in REFUSED {
        let (input, expected) = row.split_once(" => ").unwrap();
        let outcome = call(&node, input).run();
        let (code, msg) = outcome.error();
        let error = format!("{code} {msg}");
        if !error.starts_with(expected) {
            wrong.push(format!("{row}: {error}"));
        }
        assert_eq!(outcome.stderr, "", "{row}");
        found.push((code, msg));
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
    assert_eq!(records(), before);
}

/// Collects the errors of a broken node.
fn collect_node_errors(found: &mut Vec<(i64, String)>) {
    let (node, _wire) = Node::with_wire("broken", Reply::Xml(xml([5])));
    let mut expect = |verb: &str, expected: &str| {
        let stdin = r#"{"name":"azure","cniVersion":"1.1.0"}"#;
        let (code, msg) = node.call(verb, "c1").stdin(stdin).run().error();
        let error = format!("{code} {msg}");
        assert!(error.starts_with(expected), "{expected}: {error}");
        found.push((code, msg));
    };
    let folder = node.path("/var/run/azure-vnet");
    node.put("/var/run/azure-vnet", "");
    expect("ADD", "5 cannot lock the state");
    expect("STATUS", "50 ADDs cannot be served: ");
    assert!(!node.state_path().exists());
    node.del("c1").assert_no_output();
    fs::remove_file(folder).unwrap();
    node.add("c1").success();
    let mut state = node.state();
    state["azure-vnet-ipam"]["format"] = 99.into();
    let (path, good) = (node.state_path(), node.state_bytes());
    fs::write(&path, state.to_string()).unwrap();
    expect("ADD", "100 the state is of format 99");
    expect("CHECK", "100 the state is of format 99");
    expect(
        "STATUS",
        "50 ADDs cannot be served: the state is of format 99",
    );
    fs::remove_file(&path).unwrap();
    node.remove_backup();
    expect(
        "CHECK",
        "11 Check failed: the state may lack addresses: it is gone, though addresses were allocated",
    );
    std::os::unix::fs::symlink(&path, &path).unwrap();
    expect("CHECK", "11 the state cannot be read now");
    fs::remove_file(&path).unwrap();
    fs::write(&path, "{ half").unwrap();
    expect("CHECK", "11 Check failed: the state may lack addresses: ");
    assert_eq!(node.leftover_files(), [""; 0], "a CHECK sets nothing aside");
    expect(
        "ADD",
        "11 Failed to allocate address: the state is being rebuilt; retry in ",
    );
    fs::write(&path, good).unwrap();
    expect(
        "ADD",
        "11 Failed to allocate address: the state is being rebuilt; retry in ",
    );
    let (node, _wire) = Node::with_wire("full", Reply::Xml(xml([5])));
    found.push(node.call("ADD", "c1").run_in_shell("\"$0\" </").error());
    let cramped = "trap '' XFSZ; ulimit -f 0; exec \"$0\"";
    found.push(node.call("ADD", "c1").run_in_shell(cramped).error());
    // This error appears only in the log.
    node.call("ADD", "c1").run_in_shell("\"$0\" >/dev/full");
    let log = node.log();
    let (_, msg) = log.rsplit_once("with code 5: ").unwrap();
    found.push((5, msg.to_owned()));
    // A pool without a subnet, which the source does not list.
    let node = Node::new("nosubnet");
    let record = json!({ "ID": "", "Addr": "10.1.0.5", "InUse": false });
    let pool = json!({ "Id": "x", "Addresses": { "10.1.0.5": record } });
    let space = json!({ "Id": "local", "Pools": { "x": pool } });
    let state = json!({ "IPAM": { "AddressSpaces": { "local": space } } });
    node.put("/var/run/azure-vnet-ipam.json", state.to_string());
    let named = conf("1.0.0", json!({ "subnet": "x" }));
    found.push(node.call("ADD", "c1").stdin(named).run().error());
}

/// The page of errors.
const ERROR_PAGE: &str = include_str!("../../.github/ERRORS.md");

/// The code and the message pattern of each error on the page.
fn read_page() -> BTreeSet<(i64, String)> {
    let mut patterns = BTreeSet::new();
    for entry in ERROR_PAGE.split("\n- ").skip(1) {
        let (code, rest) = entry.split_once(' ').unwrap();
        let (messages, _) = rest.split_once("\n  -> ").unwrap();
        let messages = messages.split('`').skip(1).step_by(2);
        patterns.extend(messages.map(|message| (code.parse().unwrap(), message.to_owned())));
    }
    patterns
}

/// Whether a message begins with a pattern of the page. `X` and `N` in the pattern match any text.
fn matches_pattern(pattern: &str, msg: &str) -> bool {
    let spaced = format!(" {pattern} ").replace("ipam.X", "ipam. X");
    let words: Vec<_> = spaced.split(' ').collect();
    let mut rest = msg;
    for (n, words) in words.split(|w| ["X", "X:", "N"].contains(w)).enumerate() {
        let piece = words.join(" ");
        match rest.find(piece.trim()) {
            Some(at) if n > 0 || at == 0 => rest = &rest[at + piece.trim().len()..],
            _ => return false,
        }
    }
    true
}

#[test]
fn every_error_is_on_the_page_and_every_error_of_the_page_is_produced() {
    let mut found = [
        // These are tested elsewhere. The tests of `failure` cover internal errors. One error needs the whole lock
        // timeout (`trouble.rs`), and one a process between two steps (`never_twice.rs`).
        (100, "internal error"),
        (
            100,
            "Failed to allocate address: the state contradicts itself",
        ),
        (11, "timed out after 30 s waiting for the lock on the state"),
        (11, "the lock on the state was lost"),
    ]
    .map(|(code, msg)| (code, msg.to_owned()))
    .to_vec();
    collect_refusals(&mut found);
    collect_node_errors(&mut found);
    let mut lacking = read_page();
    assert!(lacking.len() > 35, "{lacking:?}");
    let page = lacking.clone();
    for (code, msg) in &found {
        let is_it = |(c, pattern): &(i64, String)| c == code && matches_pattern(pattern, msg);
        assert!(page.iter().any(is_it), "not on the page: {code} {msg}");
        lacking.retain(|pattern| !is_it(pattern));
    }
    assert!(lacking.is_empty(), "{lacking:?}");
}

#[test]
fn error_echoes_the_callers_version() {
    let node = Node::new("errorversion");
    let wrong = |version| conf(version, json!({ "environment": "x" }));
    for (stdin, version) in [
        (wrong("0.1.0"), "0.1.0"),
        (wrong("1.0.0"), "1.0.0"),
        ("x".to_owned(), "1.1.0"),
    ] {
        let outcome = node.call("ADD", "c1").stdin(stdin).run();
        assert_eq!(outcome.json()["cniVersion"], version);
    }
}

#[test]
fn container_names_appear_only_in_details() {
    let (node, _wire) = Node::with_wire("details", Reply::Xml(xml([5])));
    node.add("secret-container").success();
    let asked = conf("0.3.0", json!({ "ipAddress": "10.224.0.5" }));
    let held = node.call("ADD", "c2").stdin(asked).run();
    assert!(!held.error().1.contains("secret-container"));
    let details = held.json()["details"].to_string();
    assert!(details.contains("secret-container"), "{details}");
}

/// DEL succeeds with any configuration, and without a network namespace.
#[test]
fn del_succeeds_when_nothing_exists() {
    let (node, wire) = Node::with_wire("del", Reply::Xml(xml([5])));
    let hints = [
        json!({}),
        json!({ "subnet": "10.9.0.0/16" }),
        json!({ "subnet": 7, "ipAddress": [] }),
        json!({ "addressSpace": "nowhere" }),
        json!({ "environment": "nonsense" }),
        json!({ "environment": "mas" }),
        json!({ "queryUrl": "gopher://x" }),
        json!({ "subnet": "x", "ipAddress": "y" }),
        json!({ "families": [4, 6] }),
    ];
    let del = |hint: &Value| {
        let call = node.call("DEL", "c1").without("CNI_NETNS");
        let stdin = conf("0.3.0", hint.clone());
        call.stdin(stdin).run().assert_no_output();
    };
    for hint in &hints {
        del(hint);
        assert!(!node.state_path().exists(), "a DEL makes no state");
    }
    assert_eq!(wire.count(), 0, "and asks nobody");
    for hint in &hints {
        node.add("c1").success();
        del(hint);
        assert!(node.held().is_empty(), "{hint}");
    }
}
