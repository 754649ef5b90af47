//! Problems around the program that a test can cause without root.

use std::fs;
use std::io::{PipeReader, Read, Write};
use std::path::{Path, PathBuf};
use std::process::Stdio;

use rustix::fs::{OFlags, fcntl_setfl};
use serde_json::{Value, json};

use crate::harness::wait::{Process, wait_until};
use crate::harness::{Node, Reply, SUBNET, WireServer, address, conf, xml};

#[test]
fn closed_stdout_takes_no_address() {
    for redirect in [">&-", ">&- 2>&-", ">/dev/full"] {
        let (node, _wire) = Node::with_wire("closed", Reply::Xml(xml([5, 6])));
        node.add("c1").success();
        let before = node.state()["IPAM"]["AddressSpaces"].clone();
        let add = node
            .call("ADD", "c2")
            .run_in_shell(&format!("\"$0\" {redirect}"));
        assert_eq!(add.exit, Some(1), "{redirect}: {add:?}");
        assert_eq!(node.state()["IPAM"]["AddressSpaces"], before, "{redirect}");
        for words in ["is free again", "10.224.0.6/16 is released again"] {
            assert!(node.log().contains(words), "{redirect}: {words}");
        }
        let again = node
            .call("ADD", "c1")
            .run_in_shell(&format!("\"$0\" {redirect}"));
        assert_eq!(again.exit, Some(1), "{redirect}");
        assert_eq!(
            node.held().into_values().collect::<Vec<_>>(),
            ["c1"],
            "what was held before stays held"
        );
        assert_eq!(
            node.call("DEL", "c1")
                .run_in_shell(&format!("\"$0\" {redirect}"))
                .exit,
            Some(0),
            "a DEL prints nothing"
        );
    }
}

/// The files below a folder that contain a text.
fn files_with(folder: &Path, text: &str) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            found.extend(files_with(&path, text));
        } else if fs::read(&path).is_ok_and(|c| String::from_utf8_lossy(&c).contains(text)) {
            found.push(path);
        }
    }
    found
}

#[test]
fn secrets_of_the_url_are_left_out_everywhere() {
    let (node_with_url, wire) = Node::with_wire("secrets", Reply::Xml(xml(5..9)));
    let node = node_with_url.env("AZURE_VNET_IPAM_QUERY_URL", "");
    let url = wire.url().replace("http://", "http://user:s3cret@") + "&sig=s3cret";
    let stdin = conf("1.0.0", json!({ "queryUrl": url }));
    let add = |id: &str| node.call("ADD", id).stdin(&*stdin).run();
    add("c1").success();
    let conflist = node.path("/etc/cni/net.d/1.conf");
    let mut printed = String::new();
    for reply in [
        Reply::Xml(xml(5..9)),
        Reply::Status(500, String::new()),
        Reply::Xml("<no>".to_owned()),
    ] {
        wire.set(reply);
        node.advance_clock(60);
        let added = add("c2");
        printed += &format!("{added:?}");
        node.put("/etc/cni/net.d/1.conf", &stdin);
        for words in ["check --all", "check -o json", "show", "export", "events"] {
            let done = node.run_line(words);
            printed += &(done.stdout + &done.stderr);
        }
        fs::remove_file(&conflist).unwrap();
    }
    let invalid = conf("1.0.0", json!({ "queryUrl": "https://user:s3cret@h/" }));
    printed += &format!("{:?}", node.call("ADD", "c3").stdin(invalid).run());
    assert!(!printed.contains("s3cret"), "{printed}");
    assert!(printed.contains("http://***@"), "{printed}");
    let found = files_with(&node.root, "s3cret");
    assert!(found.is_empty(), "{found:?}");
    assert!(
        wire.requests()
            .iter()
            .all(|request| request.contains("sig=s3cret"))
    );
}

#[test]
fn a_value_of_the_source_that_cannot_be_used_is_named() {
    let (node, wire) = Node::with_wire("values", Reply::Xml(xml([])));
    let good = xml(5..9);
    for (from, to, named) in [
        (
            "Prefix=\"10.224.0.0/16\"",
            "Prefix=\"null\"",
            "the prefix \"null\" of interface eth0, which is not a valid prefix",
        ),
        (
            "Prefix=\"10.224.0.0/16\"",
            "Prefix=\"10.224.0.0 / 16\"",
            "the prefix \"10.224.0.0 / 16\" of interface eth0, which is not a valid prefix",
        ),
        (
            "Prefix=\"10.224.0.0/16\"",
            "Prefix=\"10.225.0.0/16\"",
            "the address 10.224.0.5 of interface eth0, which is outside of its subnet 10.225.0.0/16",
        ),
    ] {
        let answer = good.replace(from, to);
        assert_ne!(answer, good, "{from}");
        wire.set(Reply::Xml(answer));
        node.advance_clock(120);
        let refused = node.call("ADD", "c1").stdin(conf("1.0.0", json!({}))).run();
        let details = refused.json()["details"].to_string().replace("\\\"", "\"");
        let sentence = format!("the source lists {named}");
        assert!(details.contains(&sentence), "{details}");
        assert!(node.log().contains(&sentence));
        node.put("/etc/cni/net.d/1.conf", conf("1.0.0", json!({})));
        let report = node.run_line("check -o json").json();
        assert!(
            report["findings"]
                .to_string()
                .replace("\\\"", "\"")
                .contains(named),
            "{report:#}"
        );
    }
    // The rows for the source of Azure Stack.
    for (text, why) in [
        (b"\xef\xbb\xbf{}".to_vec(), "a byte order mark"),
        ("{}".bytes().flat_map(|byte| [byte, 0]).collect(), "UTF-16"),
    ] {
        let node = Node::new("values-file");
        node.put("/etc/kubernetes/interfaces.json", text);
        let stdin = conf("1.0.0", json!({ "environment": "mas" }));
        let refused = node.call("ADD", "c1").stdin(stdin).run();
        let details = refused.json()["details"].as_str().unwrap().to_owned();
        assert!(details.contains(why), "{details}");
        assert!(
            details.starts_with("the list of addresses is old: "),
            "{details}"
        );
    }
}

#[test]
fn reader_that_went_away_takes_no_address() {
    let (node, _wire) = Node::with_wire("pipe", Reply::Xml(xml([5])));
    // The shell waits until the reader has closed the pipe.
    node.put("/reader", "");
    let add = node
        .call("ADD", "c1")
        .env("READER", node.path("/reader").to_str().unwrap())
        .run_in_shell("(while [ -e \"$READER\" ]; do sleep 0.01; done; \"$0\"; echo $? >&2) | (exec <&-; rm \"$READER\")");
    assert_eq!(add.stderr.trim(), "1", "{add:?}");
    assert!(node.held().is_empty());
}

#[test]
fn discarded_stdout_is_accepted() {
    let (node, _wire) = Node::with_wire("null", Reply::Xml(xml([5])));
    for redirect in [">/dev/null", "1<>/dev/null", "2>&-"] {
        let line = format!("\"$0\" {redirect}");
        node.call("ADD", "c1").run_in_shell(&line).success();
    }
    assert_eq!(node.held().len(), 1);
}

#[test]
fn lock_timeout_names_the_holder() {
    let (node, _wire) = Node::with_wire("held", Reply::Xml(xml([5])));
    node.add("c1").success();
    let lock = node.hold_lock();
    node.put("/proc/1/comm", "init");
    let other = "1: POSIX  ADVISORY  WRITE 7 00:01:2 0 EOF\n";
    node.put("/proc/locks", other.to_owned() + &node.lock_line(1));
    node.advance_clock(1);
    let mut calls = [("DEL", "c1"), ("ADD", "c2")].map(|(verb, id)| node.call(verb, id).start());
    // VERSION must not wait for the lock.
    node.call("VERSION", "").run().success();
    node.time_out_waiting_for_lock(&mut calls);
    for call in calls {
        let (code, msg) = call.finish().error();
        assert_eq!(code, 11);
        assert!(
            msg.contains("timed out after 30 s") && msg.contains("process 1 (init)"),
            "{msg}"
        );
    }
    drop(lock);
    node.del("c1").assert_no_output();
}

#[test]
fn add_sets_corrupt_state_aside_and_three_copies_are_kept() {
    let (node, _wire) = Node::with_wire("asides", Reply::Xml(xml([5])));
    for n in 0..5 {
        node.put("/var/run/azure-vnet-ipam.json", format!("broken {n}"));
        node.add("c1").assert_quarantined();
    }
    let mut aside = node.leftover_files();
    aside.sort();
    let texts: Vec<_> = aside
        .iter()
        .map(|a| fs::read_to_string(node.path("/var/run").join(a)).unwrap())
        .collect();
    assert_eq!(texts, ["broken 2", "broken 3", "broken 4"]);
}

#[test]
fn new_address_is_checked_on_the_node_before_it_is_granted() {
    let (node, wire) = Node::with_wire("new", Reply::Xml(xml([5])));
    node.add("c1").success();
    // An older pod has an address that the source did not list for a while.
    node.put("/var/run/netns/x", "");
    node.cache("azure", "x", "eth0", "/var/run/netns/x", &["10.224.0.6"]);
    wire.set(Reply::Xml(xml([5, 6, 7])));
    assert_eq!(node.add("c2").address(), "10.224.0.7");
    assert_eq!(node.held()["10.224.0.6"], "x");
}

#[test]
fn reboot_frees_nothing_that_could_not_be_checked() {
    let (node, _wire) = Node::with_wire("reboot", Reply::Xml(xml([5, 6])));
    node.add("c1").success();
    node.put(
        "/proc/sys/kernel/random/boot_id",
        "8f3c5c52-0000-4000-8000-000000000002\n",
    );
    node.del("unknown").assert_no_output();
    assert_eq!(
        node.state()["azure-vnet-ipam"]["pending"],
        "newBoot",
        "a DEL leaves it to the next ADD"
    );
    assert_eq!(
        node.add("c2").address(),
        "10.224.0.6",
        "there is no /proc below this root to look into"
    );
    assert_eq!(node.held().len(), 2);
    assert_eq!(
        node.state()["azure-vnet-ipam"]["bootId"],
        "8f3c5c52-0000-4000-8000-000000000002"
    );
}

#[test]
fn del_before_its_add_is_remembered() {
    let (node, _wire) = Node::with_wire("early", Reply::Xml(xml([5, 6])));
    node.del("c1").assert_no_output();
    assert!(!node.state_path().exists(), "only into a state that exists");
    node.add("c0").success();
    node.del("c1").assert_no_output();
    let ours = node.state()["azure-vnet-ipam"].clone();
    assert_eq!(ours["tombstones"][0]["id"], "c1");
    let before = node.state_bytes();
    node.del("c1").assert_no_output();
    assert_eq!(node.state_bytes(), before, "a second one is no news");
    for is_suspect in [true, false] {
        // A new ADD removes the mark of the early DEL.
        node.add("c1").success();
        let ours = node.state()["azure-vnet-ipam"].clone();
        let record = &ours["records"]["local"]["10.224.0.0/16"]["10.224.0.6"];
        assert_eq!(record["suspect"].is_u64(), is_suspect);
        assert!(ours.get("tombstones").is_none());
    }
}

#[test]
fn foreign_keys_survive() {
    let (node, _wire) = Node::with_wire("others", Reply::Xml(xml([5])));
    node.put(
        "/var/run/azure-vnet-ipam.json",
        r#"{"Zeta":{"b":1,"a":[1,2.50,1e3,"\u00e9<&>"]},"Alpha":null,"ipam":{"x":1}}"#,
    );
    node.add("c1").success();
    let text = String::from_utf8(node.state_bytes()).unwrap();
    let zeta = "\n\t\"Zeta\": {\n\t\t\"b\": 1,\n\t\t\"a\": [\n\t\t\t1,\n\t\t\t2.50,\n\t\t\t1e3,\n\t\t\t\"\\u00e9\\u003c\\u0026\\u003e\"\n\t\t]\n\t}";
    assert!(text.contains(zeta), "{text}");
    let order: Vec<_> = text
        .lines()
        .filter_map(|l| l.strip_prefix("\t\"")?.split('"').next())
        .collect();
    assert_eq!(
        order,
        ["Alpha", "IPAM", "Zeta", "azure-vnet-ipam", "ipam"],
        "sorted by their bytes"
    );
}

/// A node with the pod c1. A newer version saved its state last.
fn node_of_newer_format(name: &str) -> (Node, WireServer) {
    let (node, wire) = Node::with_wire(name, Reply::Xml(xml([5, 6])));
    node.add("c1").success();
    let mut state = node.state();
    state["azure-vnet-ipam"]["format"] = 99.into();
    state["azure-vnet-ipam"]["future"] = json!({ "a": [1] });
    fs::write(node.state_path(), state.to_string()).unwrap();
    (node, wire)
}

#[test]
fn newer_format_is_refused_but_can_be_released_from() {
    let (node, _wire) = node_of_newer_format("newer");
    let before = node.state();
    let (code, msg) = node.add("c2").error();
    assert!(
        code == 100 && msg.contains("99") && msg.contains("up to 4"),
        "{msg}"
    );
    node.del("c1").assert_no_output();
    assert!(node.held().is_empty());
    assert_eq!(
        node.state()["azure-vnet-ipam"],
        before["azure-vnet-ipam"],
        "what is not understood is kept"
    );
    let text = fs::read_to_string(node.lock_path()).unwrap();
    assert_eq!(text, "", "the newer version is to look at the node");
}

#[test]
fn backup_of_a_newer_format_is_refused_too() {
    let (node, _wire) = node_of_newer_format("newer-backup");
    fs::rename(node.state_path(), node.backup_path()).unwrap();
    let (code, msg) = node.add("c2").error();
    assert!(code == 100 && msg.contains("99"), "{msg}");
    node.del("c1").assert_no_output();
    assert!(node.held().is_empty());
}

/// A network configuration whose result is larger than a pipe buffer.
fn long_conf() -> String {
    let route = |n: usize| json!({ "dst": format!("10.{}.{}.0/24", n / 256, n % 256) });
    let routes: Vec<_> = (0..3000).map(route).collect();
    conf("1.0.0", json!({ "subnet": SUBNET, "routes": routes }))
}

/// Starts an ADD whose stdout is a full non-blocking pipe. Returns the reading end and the bytes in the pipe.
fn add_to_full_pipe(node: &Node, stdin: &str) -> (Process, PipeReader, usize) {
    let (reader, mut writer) = std::io::pipe().unwrap();
    fcntl_setfl(&writer, OFlags::NONBLOCK).unwrap();
    let mut filled = 0;
    while let Ok(written) = writer.write(&[b' '; 4096]) {
        filled += written;
    }
    let mut command = node.call("ADD", "c1").command();
    command
        .stdin(Stdio::piped())
        .stdout(writer)
        .stderr(Stdio::null());
    let mut add = Process::start(&mut command);
    drop(command);
    add.write_stdin(stdin);
    wait_until("the grant", || {
        node.state_path().exists() && node.held().len() == 1
    });
    (add, reader, filled)
}

#[test]
fn add_waits_for_a_full_nonblocking_stdout() {
    for stdin in [conf("1.0.0", json!({ "subnet": SUBNET })), long_conf()] {
        let (node, _wire) = Node::with_wire("slow", Reply::Xml(xml([5])));
        let (add, mut reader, filled) = add_to_full_pipe(&node, &stdin);
        let mut printed = Vec::new();
        reader.read_to_end(&mut printed).unwrap();
        assert!(add.status().success());
        let result: Value = serde_json::from_slice(&printed[filled..]).unwrap();
        assert_eq!(address(&result).unwrap(), "10.224.0.5");
        assert_eq!(node.held().len(), 1);
    }
}

#[test]
fn unread_stdout_ends_add_without_taking_an_address() {
    for stdin in [conf("1.0.0", json!({ "subnet": SUBNET })), long_conf()] {
        let (node, _wire) = Node::with_wire("unread", Reply::Xml(xml([5])));
        node.advance_clock(0);
        let (mut add, mut reader, filled) = add_to_full_pipe(&node, &stdin);
        let mut first = vec![0; filled];
        if stdin.len() > 10_000 {
            // Make room for the beginning of the result.
            reader.read_exact(&mut first).unwrap();
        }
        // The program waits once for the result, and once for the error if nothing was printed.
        wait_until("the end of the ADD", || {
            node.advance_clock(1);
            !add.is_running()
        });
        assert_eq!(add.status().code(), Some(1));
        assert!(node.held().is_empty());
        let mut printed = Vec::new();
        reader.read_to_end(&mut printed).unwrap();
        let text = String::from_utf8(printed).unwrap();
        assert!(
            !text.contains("\"code\""),
            "no error follows the beginning of a result"
        );
    }
}

#[test]
fn endless_stdin_ends_the_call() {
    let (node, _wire) = Node::with_wire("stdin", Reply::Xml(xml([5])));
    node.advance_clock(0);
    for verb in ["ADD", "DEL", "CHECK", "GC", "STATUS"] {
        let (reader, mut writer) = std::io::pipe().unwrap();
        writer.write_all(b"{ \"cniVersion\": ").unwrap();
        let mut command = node.call(verb, "c1").command();
        command
            .stdin(reader)
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        let mut call = Process::start(&mut command);
        wait_until("the end of the call", || {
            node.advance_clock(1);
            !call.is_running()
        });
        let error: Value = serde_json::from_slice(&call.output().stdout).unwrap();
        assert_eq!(error["code"], 5, "{error}");
        let msg = "cannot read stdin: it did not end within 30 s";
        assert_eq!(error["msg"], msg);
        drop(writer);
    }
}
