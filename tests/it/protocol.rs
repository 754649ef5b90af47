//! ADD, DEL and VERSION in every version of the specification, and the program without CNI_COMMAND.

use std::fs;
use std::os::unix::net::UnixDatagram;

use serde_json::json;

use crate::harness::{Node, Reply, conf, xml};

const VERSIONS: [&str; 7] = [
    "0.1.0", "0.2.0", "0.3.0", "0.3.1", "0.4.0", "1.0.0", "1.1.0",
];

#[test]
fn type_ipamv6_asks_for_ipv6() {
    let subnet = r#"<IPSubnet Prefix="fd00:1:2::/120"><IPAddress Address="FD00:1:2:0::A" IsPrimary="false"/></IPSubnet>"#;
    let both = xml([5]).replace("</Interface>", &format!("{subnet}</Interface>"));
    let (node, _wire) = Node::with_wire("ipv6", Reply::Xml(both));
    let four = conf("0.4.0", json!({}));
    let six = four.replace("azure-vnet-ipam\"", "azure-vnet-ipamv6\"");
    for (id, stdin, address) in [("c1", six, "fd00:1:2::a"), ("c2", four, "10.224.0.5")] {
        assert_eq!(node.call("ADD", id).stdin(stdin).run().address(), address);
    }
}

#[test]
fn record_keeps_the_network_namespace() {
    use std::os::unix::fs::MetadataExt;
    let (node, _wire) = Node::with_wire("netns", Reply::Xml(xml([5])));
    node.put("/var/run/netns/pod", "");
    let before = fs::metadata(node.path("/var/run/netns/pod")).unwrap();
    node.call("ADD", "c1")
        .env("CNI_ARGS", "K8S_POD_NAMESPACE=default;K8S_POD_NAME=web-0")
        .run()
        .success();
    let ours = node.state()["azure-vnet-ipam"].clone();
    let entry = &ours["records"]["local"]["10.224.0.0/16"]["10.224.0.5"];
    let netns = json!({ "path": "/var/run/netns/pod", "dev": before.dev(), "ino": before.ino() });
    assert_eq!(entry["netns"], netns);
    assert_eq!(
        (&entry["id"], &entry["network"], &entry["ifName"]),
        (&"c1".into(), &"azure".into(), &"eth0".into())
    );
    assert_eq!(entry["pod"], "default/web-0");
    assert!(entry["since"].as_u64().unwrap() > 0);
    assert_eq!(ours["bootId"], "8f3c5c52-0000-4000-8000-000000000001");
}

#[test]
fn request_is_plain_and_asks_for_no_encoding() {
    let (node, wire) = Node::with_wire("request", Reply::Xml(xml([5])));
    node.add("c1").success();
    let request = wire.requests().remove(0);
    assert!(
        request
            .starts_with("GET /machine/plugins?comp=nmagent&type=getinterfaceinfov1 HTTP/1.1\r\n"),
        "{request}"
    );
    let head = request.to_lowercase();
    assert!(
        head.contains("host: 127.0.0.1") && !head.contains("gzip"),
        "{request}"
    );
}

#[test]
fn query_url_can_be_a_url_or_a_saved_answer() {
    let (node, wire) = Node::with_wire("url", Reply::Xml(xml([7])));
    let by_conf = |url: &str| conf("0.3.0", json!({ "queryUrl": url }));
    let without = |n: &Node, id: &str, url: &str| {
        n.call("ADD", id)
            .without("AZURE_VNET_IPAM_QUERY_URL")
            .stdin(by_conf(url))
            .run()
    };
    for url in [format!("{}/?{}", wire.url(), "x".repeat(3000)), wire.url()] {
        assert_eq!(without(&node, "c1", &url).address(), "10.224.0.7");
    }
    node.put("/saved.xml", xml([8]));
    let saved = format!("file:{}", node.path("/saved.xml").display());
    assert_eq!(without(&node, "c2", &saved).address(), "10.224.0.8");
    let both = node.call("ADD", "c3").stdin(by_conf("file:/nowhere")).run();
    assert_eq!(
        both.error().1.split(" in ").next().unwrap(),
        "Failed to allocate address: No available addresses",
        "the environment goes first"
    );
}

#[test]
fn version_echoes_and_writes_nothing() {
    let node = Node::new("version");
    let all = json!(VERSIONS);
    for (stdin, echoed) in [
        (r#"{"cniVersion":"0.4.0"}"#, "0.4.0"),
        (r#"{"cniVersion":"1.0.0"}"#, "1.0.0"),
        (r#"{"CNIVERSION":"9.9.9"}"#, "9.9.9"),
        ("", "1.1.0"),
        ("nonsense", "1.1.0"),
        (r#"{"cniVersion":7}"#, "1.1.0"),
    ] {
        let outcome = node.call("VERSION", "").stdin(stdin).run();
        assert_eq!(
            outcome.success().json(),
            json!({ "cniVersion": echoed, "supportedVersions": all }),
            "{stdin}"
        );
        assert!(outcome.stdout.ends_with("}\n") && outcome.stdout.lines().count() == 1);
    }
    assert!(!node.path("/var").exists(), "no state, lock or log");
}

#[test]
fn version_does_not_wait_for_a_terminal() {
    let node = Node::new("terminal");
    let answer = node.call("VERSION", "").run_on_terminal();
    assert!(answer.contains("supportedVersions"), "{answer}");
}

#[test]
fn call_without_command_prints_help() {
    let node = Node::new("hand");
    let about = node.call("", "").run();
    about.assert_no_output();
    assert_eq!(about.stderr.lines().count(), 2);
    assert!(about.stderr.ends_with(
        "CNI protocol versions supported: 0.1.0, 0.2.0, 0.3.0, 0.3.1, 0.4.0, 1.0.0, 1.1.0\n"
    ));
    let shown = node.call("", "").run_on_terminal();
    assert!(shown.ends_with("\r\n`azure-vnet-ipam help` lists its commands.\r\n"));
    let version = node.call("", "").arg("--version").run();
    let start = format!("azure-vnet-ipam {} (commit ", env!("CARGO_PKG_VERSION"));
    assert!(version.success().stdout.starts_with(&start), "{version:?}");
    let help = node.call("", "").arg("--help").run();
    assert!(help.success().stdout.contains("CNI_COMMAND"));
    assert_eq!(node.call("", "").arg("--frobnicate").run().exit, Some(2));
    assert!(!node.path("/var").exists(), "no state, lock or log");
}

#[test]
fn log_has_one_line_per_step_in_the_originals_form() {
    let (node, _wire) = Node::with_wire("log", Reply::Xml(xml([5])));
    let secret = json!({ "subnet": "10.224.0.0/16", "token": "s3cr3t" });
    node.call("ADD", "c1")
        .stdin(conf("0.3.0", secret))
        .run()
        .success();
    node.add("c2").error();
    node.del("c1").assert_no_output();
    let log = node.log();
    for line in log.lines() {
        let (stamp, rest) = line.split_at(19);
        assert!(
            stamp
                .bytes()
                .zip(b"2026/11/20 21:09:39".iter())
                .all(|(a, b)| a == *b || (a.is_ascii_digit() && b.is_ascii_digit())),
            "{line}"
        );
        let (pid, rest) = rest.strip_prefix(" [").unwrap().split_once("] ").unwrap();
        assert!(pid.parse::<u32>().is_ok(), "{line}");
        let (level, rest) = rest.split_once(' ').unwrap();
        assert!(["INFO", "WARN", "ERROR"].contains(&level), "{line}");
        assert_eq!(level == "ERROR", line.contains(" failed in "), "{line}");
        assert!(
            rest.starts_with("[ipam] ") || rest.starts_with("[cni-ipam] "),
            "{line}"
        );
    }
    for fact in [
        "ADD container c1 interface eth0 network azure",
        "got 1 addresses from interface eth0, subnet 10.224.0.0/16.",
        "10.224.0.5/16 allocated from pool 10.224.0.0/16",
        "ADD done in ",
        "with code 100: Failed to allocate address: No available addresses",
        "10.224.0.5 released to pool 10.224.0.0/16.",
    ] {
        assert!(log.contains(fact), "{fact} in {log}");
    }
    assert!(!log.contains("s3cr3t"), "never the whole of stdin");
}

#[test]
fn syslog_gets_the_log_while_it_listens() {
    let (node, _wire) = Node::with_wire("syslog", Reply::Xml(xml([5])));
    let socket = node.path("/dev/log");
    node.put("/dev/x", "");
    let plain = conf("0.3.0", json!({ "subnet": "10.224.0.0/16" }));
    let config = plain.replacen('{', r#"{"logTarget":"Syslog","#, 1);
    let call = |verb: &str| node.call(verb, "c1").stdin(config.clone()).run();
    let syslog = UnixDatagram::bind(&socket).unwrap();
    syslog.set_nonblocking(true).unwrap();
    let read_all = || {
        let mut datagram = [0; 8192];
        let read = |_| {
            let length = syslog.recv(&mut datagram).ok()?;
            Some(String::from_utf8(datagram[..length].to_vec()).unwrap())
        };
        (0..).map_while(read).collect::<Vec<_>>().join("\n")
    };
    call("ADD").success();
    let sent = read_all();
    assert!(sent.starts_with("<30>"), "{sent}");
    for text in [" azure-vnet-ipam[", "INFO [ipam] 10.224.0.5/16 allocated"] {
        assert!(sent.contains(text), "{sent}");
    }
    // The log also has the commands of operators, and the reason why a configuration is refused.
    node.put("/etc/cni/net.d/1.conf", &config);
    let release = "release 10.224.0.5 --container c1 --force";
    node.run_line(release).success();
    assert!(read_all().contains("was released by"));
    let invalid = config.replace("10.224.0.0/16", "x");
    node.call("ADD", "c2").stdin(invalid).run().error();
    let sent = read_all();
    assert!(
        sent.contains("<27>") && sent.contains("ADD failed"),
        "{sent}"
    );
    assert!(!node.path("/var/log/azure-vnet-ipam.log").exists());
    drop(syslog);
    for what in ["nothing listens", "there is no socket"] {
        call("ADD").success();
        assert!(
            node.log().contains("INFO [ipam] 10.224.0.5/16 allocated"),
            "{what}"
        );
        call("DEL").assert_no_output();
        fs::remove_file(node.path("/var/log/azure-vnet-ipam.log")).unwrap();
        let _ = fs::remove_file(&socket);
    }
}

#[test]
fn log_level_is_honoured() {
    for (level, add, refused) in [
        ("error", false, true),
        ("off", false, false),
        ("INFO", true, true),
        ("nonsense", true, true),
    ] {
        let (node, _wire) = Node::with_wire("level", Reply::Xml(xml([5])));
        let with = conf("0.3.0", json!({ "subnet": "10.224.0.0/16" })).replacen(
            '{',
            &format!("{{\"logLevel\":\"{level}\","),
            1,
        );
        node.call("ADD", "c1").stdin(with.clone()).run().success();
        assert_eq!(node.log().contains("c1"), add, "{level}");
        node.call("ADD", "c2").stdin(with).run().error();
        assert_eq!(node.log().contains("No available"), refused, "{level}");
    }
}
