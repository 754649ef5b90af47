//! Inputs larger than those of any node: every call needs little processor time and memory.

use ipnet::Ipv4Net;
use serde_json::{Map, Value, json};

use crate::harness::{Call, MAC, Node, Outcome, Reply, SUBNET, conf, xml, xml_of};

/// Runs a call with at most 10 s of processor time and 1 GB of memory. That is far more than a call needs, and far less
/// than quadratic work. Other load on the machine does not count.
fn run_soon(call: Call) -> Outcome {
    call.run_in_shell(r#"ulimit -t 10; ulimit -v 1000000; exec "$0" "$@""#)
}

/// A wire server's answer with `count` subnets of one address each.
fn many_subnets(count: u32) -> String {
    let subnet = |n: u32| {
        let (a, b) = (n >> 8, n & 0xff);
        format!(
            r#"<IPSubnet Prefix="11.{a}.{b}.0/24"><IPAddress Address="11.{a}.{b}.5" IsPrimary="false"/></IPSubnet>"#
        )
    };
    let subnets: String = (0..count).map(subnet).collect();
    format!(
        r#"<Interfaces><Interface MacAddress="{MAC}" IsPrimary="true">{subnets}</Interface></Interfaces>"#
    )
}

/// A state of the original with these pools. Each pool is a subnet and its addresses with their holders.
fn state_of_the_original(pools: impl Iterator<Item = (String, Vec<(String, String)>)>) -> String {
    let record = |(address, id): (String, String)| {
        let record = json!({ "ID": id, "Addr": address, "InUse": !id.is_empty() });
        (address, record)
    };
    let pool = |(subnet, records): (String, Vec<_>)| {
        let net: Ipv4Net = subnet.parse().unwrap();
        let mask = ["//8AAA==", "////AA=="][usize::from(net.prefix_len() == 24)];
        let pool = json!({
            "Id": subnet, "IfName": "eth0", "Subnet": { "IP": net.network(), "Mask": mask },
            "Gateway": net.hosts().next(), "IsIPv6": false, "Priority": 0, "RefCount": 0,
            "Addresses": Map::from_iter(records.into_iter().map(record)),
        });
        (subnet, pool)
    };
    let pools: Map<String, Value> = pools.map(pool).collect();
    json!({ "IPAM": {
        "Version": "v1.4.59", "TimeStamp": "2026-11-20T21:09:39.380892147Z",
        "AddressSpaces": { "local": { "Id": "local", "Scope": 0, "Pools": pools } },
    }})
    .to_string()
}

/// A state of the original with one pool. 10.224.0.4 is free, and `count` addresses from 10.224.0.5 on are held.
pub fn state_with_holders(count: u32) -> String {
    let held = (0..count).map(|n| (address(n), format!("pod-{n}")));
    let free = ("10.224.0.4".to_owned(), String::new());
    let pool = (SUBNET.to_owned(), held.chain([free]).collect());
    state_of_the_original([pool].into_iter())
}

fn address(n: u32) -> String {
    let n = n + 5;
    format!("10.224.{}.{}", n >> 8, n & 0xff)
}

#[test]
fn time_and_memory_are_linear_in_the_number_of_subnets() {
    let (node, _wire) = Node::with_wire("pools", Reply::Xml(xml(5..30)));
    let pools = (0..36_000).map(|n| {
        let net = format!("11.{}.{}", n >> 8, n & 0xff);
        let held = (format!("{net}.5"), format!("pod-{n}"));
        (format!("{net}.0/24"), vec![held])
    });
    let state = state_of_the_original(pools);
    node.put("/var/run/azure-vnet-ipam.json", state);
    for (verb, id) in [
        ("ADD", "c1"),
        ("ADD", "c2"),
        ("DEL", "pod-7"),
        ("DEL", "c1"),
    ] {
        run_soon(node.call(verb, id)).success();
    }
    let check = node.call("", "").without("CNI_COMMAND").arg("check");
    assert_eq!(run_soon(check).exit, Some(1));
}

/// A list of these addresses in the file format of Azure Stack.
fn interfaces_file(count: u32) -> String {
    let subnet = |n: u32| {
        let (a, b) = (n >> 8, n & 0xff);
        json!({
            "Prefix": format!("11.{a}.{b}.0/24"),
            "IPAddresses": [{ "Address": format!("11.{a}.{b}.5"), "IsPrimary": false }],
        })
    };
    let subnets: Vec<Value> = (0..count).map(subnet).collect();
    json!({ "Interfaces": [{ "MacAddress": MAC, "IsPrimary": true, "IPSubnets": subnets }] })
        .to_string()
}

#[test]
fn oversized_wire_answer_is_refused() {
    let (node, wire) = Node::with_wire("subnets", Reply::Xml(xml(5..10)));
    node.add("c1").success();
    for answer in [
        many_subnets(65),
        many_subnets(36_000),
        xml_of("10.224.0.0/15".parse().unwrap(), 0..=u16::MAX).replace(
            "</IPSubnet>",
            r#"<IPAddress Address="10.225.0.7" IsPrimary="false"/></IPSubnet>"#,
        ),
    ] {
        // Skip the pause after a failed fetch.
        node.advance_clock(11);
        wire.set(Reply::Xml(answer));
        run_soon(node.call("ADD", "c2")).success();
        let log = node.log();
        assert!(log.contains(", more than 6"), "{log}");
        run_soon(node.call("DEL", "c2")).assert_no_output();
        let pools = &node.state()["IPAM"]["AddressSpaces"]["local"]["Pools"];
        assert_eq!(pools.as_object().unwrap().len(), 1);
        std::fs::remove_file(node.path("/var/log/azure-vnet-ipam.log")).unwrap();
    }
}

#[test]
fn every_source_refuses_oversized_answers() {
    for (count, is_taken) in [(64, true), (65, false)] {
        let node = Node::new("files");
        node.put("/answer.xml", many_subnets(count));
        node.put("/etc/kubernetes/interfaces.json", interfaces_file(count));
        let url = format!("file:{}", node.path("/answer.xml").display());
        for ipam in [json!({ "queryUrl": url }), json!({ "environment": "mas" })] {
            let add = node
                .call("ADD", "c1")
                .without("AZURE_VNET_IPAM_QUERY_URL")
                .stdin(conf("1.0.0", ipam));
            if is_taken {
                add.run().success();
                node.call("DEL", "c1")
                    .stdin(conf("1.0.0", json!({})))
                    .run()
                    .assert_no_output();
            } else {
                let add = add.run();
                assert_eq!(add.error().0, 100);
                assert!(
                    add.stdout.contains("lists 65 subnets, more than 64"),
                    "{add:?}"
                );
            }
            let _ = std::fs::remove_file(node.state_path());
            let _ = std::fs::remove_dir_all(node.path("/var/run/azure-vnet"));
            node.remove_backup();
        }
    }
}

#[test]
fn file_size_limit_kills_no_call() {
    let (node, _wire) = Node::with_wire("fsize", Reply::Xml(xml(5..30)));
    node.add("c1").success();
    // Limits in blocks of 512 bytes: zero, smaller than the state, larger than the state.
    for blocks in [0, 1, 64] {
        // A full log, and events of many earlier calls.
        let line = "2026/11/20 21:09:39 [1] [ipam] text\n";
        for path in [
            "/var/log/azure-vnet-ipam.log",
            "/var/run/azure-vnet/azure-vnet-ipam.events",
        ] {
            node.put(path, line.repeat(2000));
        }
        let before = node.held();
        let limited = |verb: &str, id: &str| {
            let line = format!("ulimit -f {blocks}; \"$0\"");
            node.call(verb, id).run_in_shell(&line)
        };
        let add = limited("ADD", "c2");
        let del = limited("DEL", "c1");
        if blocks < 64 {
            for outcome in [add, del] {
                let (code, msg) = outcome.error();
                assert!(code == 5 && msg.contains("file too large"), "{code} {msg}");
            }
            assert_eq!(node.held(), before);
            assert!(
                node.leftover_files().is_empty(),
                "{:?}",
                node.leftover_files()
            );
        } else {
            add.success();
            del.assert_no_output();
            assert_eq!(node.held().into_values().collect::<Vec<_>>(), ["c2"]);
        }
        limited("DEL", "c9").success();
        node.run_command(["show"]).success();
    }
    node.add("c3").success();
}

#[test]
fn log_and_error_of_a_call_are_bounded() {
    let (node, wire) = Node::with_wire("macs", Reply::Xml(xml(5..30)));
    node.add("c1").success();
    let log = node.path("/var/log/azure-vnet-ipam.log");
    let many: String = (0..80_000u32)
        .map(|n| format!("<Interface MacAddress=\"{n:012x}\"/>"))
        .collect();
    let answer = xml(5..30).replace("</Interfaces>", &format!("{many}</Interfaces>"));
    wire.set(Reply::Xml(answer));
    std::fs::remove_file(&log).unwrap();
    run_soon(node.call("ADD", "c2")).success();
    let text = node.log();
    assert!(text.len() < 100 << 10, "{} bytes", text.len());
    assert!(
        text.contains("interface with 79936 more MAC addresses"),
        "{text}"
    );
    assert!(text.contains("ADD done in"), "{text}");
    // One long word has the same effect as many short ones.
    let long = "x".repeat(3 << 20);
    for answer in [
        format!("<{long}/>"),
        format!("<Interfaces><{long}></Interfaces>"),
        format!("<Interfaces><Interface IsPrimary=\"{long}\"/></Interfaces>"),
        xml(5..30).replace(MAC, &long),
    ] {
        let (node, _wire) = Node::with_wire("words", Reply::Xml(answer));
        let add = node.add("c1");
        assert_eq!(add.exit, Some(1));
        add.error();
        let (log, printed) = (node.log().len(), add.stdout.len());
        assert!(log < 100 << 10 && printed < 20 << 10, "{log} {printed}");
    }
}

/// JSON pointers to all numbers in our key of the state.
const NUMBERS: [&str; 9] = [
    "/generation",
    "/refreshed",
    "/quarantineUntil",
    "/tombstones/0/at",
    "/records/local/10.224.0.0~116/10.224.0.5/since",
    "/records/local/10.224.0.0~116/10.224.0.5/generation",
    "/records/local/10.224.0.0~116/10.224.0.5/suspect",
    "/records/local/10.224.0.0~116/10.224.0.6/released",
    "/format",
];

/// Sets the value at a JSON pointer.
fn set(object: &mut Value, pointer: &str, value: u64) {
    let mut place = object;
    for key in pointer.split('/').skip(1) {
        let key = key.replace("~1", "/");
        place = match key.parse::<usize>() {
            Ok(n) => &mut place[n],
            Err(_) => &mut place[key],
        };
    }
    *place = value.into();
}

#[test]
fn implausible_numbers_in_the_state_are_treated_as_damage() {
    for pointer in NUMBERS {
        for number in [u64::MAX, u64::MAX - 1, 1 << 63, (1 << 53) + 1] {
            let what = format!("{pointer} {number}");
            let (node, _wire) = Node::with_wire("numbers", Reply::Xml(xml(5..30)));
            node.add("c1").success();
            node.add("c2").success();
            node.del("c2").assert_no_output();
            node.del("early").assert_no_output();
            let mut state = node.state();
            set(&mut state["azure-vnet-ipam"], pointer, number);
            node.put("/var/run/azure-vnet-ipam.json", state.to_string());
            if pointer == "/format" {
                assert_eq!(node.add("c3").error().0, 100, "a newer format");
                node.del("c1").assert_no_output();
                continue;
            }
            node.run_command(["show"]).success();
            // Nothing on this node shows that a holder is alive.
            match pointer {
                "/generation" | "/quarantineUntil" => {
                    node.add("c3").success();
                    continue;
                }
                _ => {}
            }
            node.add("c3").success();
            let conf = conf("1.0.0", json!({ "subnet": SUBNET }));
            node.call("CHECK", "c1")
                .stdin(conf)
                .run()
                .assert_no_output();
            node.del("c1").assert_no_output();
            // By then a released address is free, even if its recorded cooldown was endless.
            node.advance_clock(400);
            node.add("early").success();
            let pool: Vec<String> = node.held().into_values().collect();
            assert_eq!(pool.len(), 2, "{what}");
            assert!(!node.log().contains("internal error"), "{what}");
        }
    }
}

#[test]
fn implausible_numbers_in_other_files_are_treated_as_damage() {
    let boot = "8f3c5c52-0000-4000-8000-000000000001";
    let most = u64::MAX;
    let lock = "azure-vnet/azure-vnet-ipam.lock";
    let backup = ".azure-vnet-ipam.backup";
    let key = |number: &str| {
        format!(
            "{{\"azure-vnet-ipam\": {{\"format\": 4, \"bootId\": \"{boot}\", \"generation\": {number}}}}}"
        )
    };
    for (file, text) in [
        (lock, format!("azure-vnet-ipam {boot} {}\n", "9".repeat(18))),
        (backup, key(&most.to_string())),
        (backup, key(&"9".repeat(18))),
        (
            "azure-vnet/azure-vnet-ipam.fetch",
            format!("{{\"bootId\": \"{boot}\", \"answered\": {most}, \"failed\": {most}}}"),
        ),
    ] {
        for is_lost in [false, true] {
            let (node, _wire) = Node::with_wire("beside", Reply::Xml(xml(5..30)));
            node.add("c1").success();
            if is_lost {
                std::fs::remove_file(node.state_path()).unwrap();
            }
            let path = format!("/var/run/{file}");
            node.put(&path, &text);
            let add = node.add("c2");
            if add.exit != Some(0) {
                assert_eq!(add.error().0, 11, "{file} {text}");
                assert!(is_lost, "{file} {text}");
                node.advance_clock(31);
                node.add("c2").success();
            }
            node.del("c1").assert_no_output();
            node.add("c3").success();
            assert!(!node.log().contains("internal error"), "{file} {text}");
        }
    }
}

#[test]
fn first_reconcile_after_the_original_takes_linear_time() {
    let node = Node::new("takeover");
    node.put("/var/run/azure-vnet-ipam.json", state_with_holders(65_000));
    // The results of other plugins list addresses too.
    let others: Vec<String> = (0..100).map(|n| format!("10.9.9.{n}")).collect();
    for n in 0..10_000 {
        let own = address(n);
        let addresses = others.iter().chain([&own]).map(String::as_str);
        let addresses: Vec<&str> = addresses.collect();
        let id = format!("pod-{n}");
        node.cache("azure", &id, "eth0", "/var/run/netns/pod", &addresses);
    }
    let add = run_soon(node.call("ADD", "c1"));
    assert_eq!(add.address(), "10.224.0.4");
}

#[test]
fn backup_restores_a_large_state_in_time() {
    const HELD: u32 = 60_000;
    let last = u16::try_from(HELD + 5).unwrap();
    let (node, _wire) = Node::with_wire("holders", Reply::Xml(xml(4..last)));
    node.put("/var/run/azure-vnet-ipam.json", state_with_holders(HELD));
    node.add("c1").success();
    // The original has used the state a moment before.
    node.advance_clock(40);
    std::fs::remove_file(node.state_path()).unwrap();
    let add = run_soon(node.call("ADD", "c1"));
    assert_eq!(add.address(), "10.224.0.4");
    assert_eq!(node.held().len(), usize::try_from(HELD).unwrap() + 1);
}
