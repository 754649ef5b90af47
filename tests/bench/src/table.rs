//! What is measured, in which order, and how it is told.

use std::collections::HashMap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use crate::measure::{Program, Row, burst, interleaved};
use crate::wire::Server;

/// Addresses of an ordinary node.
const ORDINARY: usize = 254;
/// Pods that start at once.
const CROWD: usize = 250;
const HOST_LOCAL: &str = "/usr/lib/cni/host-local";
const CONF: &str = r#"{"cniVersion":"0.3.0","name":"azure","type":"azure-vnet","ipam":{"type":"azure-vnet-ipam","subnet":"10.224.0.0/12"}}"#;
const HOST_LOCAL_CONF: &str = r#"{"cniVersion":"0.3.1","name":"hl","type":"x","ipam":{"type":"host-local","dataDir":"/run/hl","ranges":[[{"subnet":"10.224.0.0/12"}]]}}"#;

type Rows = HashMap<(String, &'static str), Row>;

struct Bench {
    rounds: usize,
    scratch: PathBuf,
    server: Server,
    /// Those that draw from the wire server; the floor is not among them.
    plugins: Vec<Program>,
    floor: Program,
    host_local: Option<Program>,
}

/// Measures everything and prints it.
pub fn print(arguments: &[String]) -> io::Result<()> {
    let bench = Bench::set_up(arguments)?;
    bench.head();
    bench.verbs()?;
    println!("\nexecutable:");
    for plugin in &bench.plugins {
        println!(
            "  {:<12} {:>9} bytes",
            plugin.label,
            fs::metadata(&plugin.path)?.len()
        );
    }
    bench.growth()?;
    bench.surroundings()?;
    bench.crowds()?;
    fs::remove_dir_all(&bench.scratch)
}

fn shell(line: &str) -> io::Result<()> {
    match Command::new("sh").args(["-ec", line]).status()?.success() {
        true => Ok(()),
        false => Err(io::Error::other(format!("failed: {line}"))),
    }
}

fn ratio(one: Duration, other: Duration) -> f64 {
    one.as_secs_f64() / other.as_secs_f64().max(1e-9)
}

fn micros(rows: &Rows, label: &str, verb: &'static str) -> Duration {
    rows.get(&(label.to_owned(), verb))
        .map(Row::median)
        .unwrap_or_default()
}

impl Bench {
    fn set_up(arguments: &[String]) -> io::Result<Bench> {
        let scratch =
            std::env::temp_dir().join(format!("azure-vnet-ipam-bench-{}", std::process::id()));
        fs::create_dir_all(&scratch)?;
        let usage = || io::Error::other("usage: tests/bench/run [--rounds N] [LABEL=BINARY ...]");
        let mut rounds = 200;
        let mut plugins = Vec::new();
        let mut arguments = arguments.iter();
        let (conf, host_local_conf) = (scratch.join("conf"), scratch.join("host-local"));
        while let Some(argument) = arguments.next() {
            if argument == "--rounds" {
                let number = arguments.next().and_then(|n| n.parse().ok());
                rounds = number.ok_or_else(usage)?;
                continue;
            }
            let (label, path) = argument.split_once('=').ok_or_else(usage)?;
            // A copy, as installing makes one: the pages of what a linker wrote are cached in smaller pieces, and slower to map.
            let copy = scratch.join(format!("{label}-{}", plugins.len()));
            fs::copy(path, &copy)?;
            plugins.push(Program {
                label: label.to_owned(),
                path: copy,
                conf: conf.clone(),
            });
        }
        // The one that matters comes first.
        plugins.rotate_right(1);
        for folder in ["/run", "/var/log", "/var/lib/cni"] {
            fs::create_dir_all(folder)?;
            shell(&format!("mount -t tmpfs -o size=1g none {folder}"))?;
        }
        shell(
            "ip link add eth0 address 7c:1e:52:f9:f3:c4 type veth peer name p0; ip link set eth0 up; ip link set p0 up;
             ip addr add 10.224.0.4/12 dev eth0; ip addr add 168.63.129.16/32 dev lo",
        )?;
        fs::write(&conf, CONF)?;
        fs::write(&host_local_conf, HOST_LOCAL_CONF)?;
        let floor = scratch.join("floor");
        fs::copy(std::env::current_exe()?, &floor)?;
        Ok(Bench {
            rounds,
            server: Server::start()?,
            plugins,
            floor: Program {
                label: "floor".to_owned(),
                path: floor,
                conf,
            },
            host_local: Path::new(HOST_LOCAL).exists().then(|| Program {
                label: "host-local".to_owned(),
                path: HOST_LOCAL.into(),
                conf: host_local_conf,
            }),
            scratch,
        })
    }

    fn head(&self) {
        let first = |path: &str, key: &str| {
            let text = fs::read_to_string(path).unwrap_or_default();
            let line = text
                .lines()
                .find(|line| line.starts_with(key))
                .unwrap_or_default();
            line.rsplit(": ").next().unwrap_or_default().to_owned()
        };
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        let kernel = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
        println!(
            "{} x {}, Linux {}",
            cores,
            first("/proc/cpuinfo", "model name"),
            kernel.trim()
        );
        for plugin in &self.plugins {
            let version = Command::new(&plugin.path).arg("--version").output();
            let version = version.map(|o| String::from_utf8_lossy(&o.stdout).trim().to_owned());
            println!("{}: {}", plugin.label, version.unwrap_or_default());
        }
        println!(
            "floor: the same system calls without parsing, deciding and logging; {} rounds, medians",
            self.rounds
        );
    }

    /// A state of `addresses` addresses, of which one is held.
    fn fresh(&self, addresses: usize) -> io::Result<()> {
        self.server.lists(addresses, Duration::ZERO);
        shell("rm -rf /run/azure-vnet* /run/.azure-vnet-ipam.journal")?;
        self.plugins[0].call("ADD", "first")
    }

    fn all(&self) -> Vec<Program> {
        let mut all = self.plugins.clone();
        all.push(self.floor.clone());
        all.extend(self.host_local.clone());
        all
    }

    /// ADD and DEL on an ordinary node.
    fn verbs(&self) -> io::Result<()> {
        self.fresh(ORDINARY)?;
        let programs = self.all();
        let rows = interleaved(&programs, self.rounds)?;
        println!("\n{ORDINARY} addresses:");
        println!("                        us   x floor   x host-local    KiB   failed");
        for verb in ["ADD", "DEL"] {
            for Program { label, .. } in &programs {
                let Some(row) = rows.get(&(label.clone(), verb)) else {
                    continue;
                };
                let beside = |other| ratio(row.median(), micros(&rows, other, verb));
                let host_local = match self.host_local {
                    Some(_) => format!("{:>12.2}", beside("host-local")),
                    None => format!("{:>12}", "-"),
                };
                println!(
                    "  {verb} {label:<12} {:>8} {:>9.2} {host_local} {:>8} {:>8}",
                    row.median().as_micros(),
                    beside("floor"),
                    row.memory,
                    row.failed
                );
            }
        }
        Ok(())
    }

    /// ADD on smaller and larger nodes.
    fn growth(&self) -> io::Result<()> {
        println!("\ngrowth, ADD:              us   x floor");
        for (addresses, part) in [(28, 2), (4096, 4), (65_536, 20)] {
            self.fresh(addresses)?;
            let mut programs = self.plugins.clone();
            programs.push(self.floor.clone());
            let rows = interleaved(&programs, (self.rounds / part).max(5))?;
            for Program { label, .. } in &self.plugins {
                let add = micros(&rows, label, "ADD");
                let beside = ratio(add, micros(&rows, "floor", "ADD"));
                println!(
                    "  {addresses:>6} {label:<12} {:>8} {beside:>9.2}",
                    add.as_micros()
                );
            }
        }
        Ok(())
    }

    /// ADD on a node with many links and routes, then with many results in libcni's cache too.
    fn surroundings(&self) -> io::Result<()> {
        const LINKS: usize = 250;
        const ENTRIES: usize = 10_000;
        println!("\nsurroundings, ADD:                        x floor   x without");
        // Each by itself: what one notes about the node for its next call, another might overwrite.
        let beside_floor = |plugin: &Program| -> io::Result<f64> {
            self.fresh(ORDINARY)?;
            let rows = interleaved(&[plugin.clone(), self.floor.clone()], self.rounds / 2)?;
            let (add, floor) = (
                micros(&rows, &plugin.label, "ADD"),
                micros(&rows, "floor", "ADD"),
            );
            Ok(ratio(add, floor))
        };
        let without: io::Result<Vec<f64>> = self.plugins.iter().map(beside_floor).collect();
        let without = without?;
        let tell = |what: &str| -> io::Result<()> {
            for (plugin, before) in self.plugins.iter().zip(&without) {
                let now = beside_floor(plugin)?;
                let label = &plugin.label;
                println!("  {what:<24} {label:<12} {now:>9.2} {:>11.2}", now / before);
            }
            Ok(())
        };
        let mut batch = String::new();
        for n in 0..LINKS {
            batch += &format!(
                "link add v{n} type veth peer name w{n}\nlink set v{n} up\nroute add 10.239.{}.{}/32 dev v{n}\n",
                n >> 8,
                n & 255
            );
        }
        let file = self.scratch.join("links");
        fs::write(&file, batch)?;
        shell(&format!("ip -batch {}", file.display()))?;
        tell("250 links and routes")?;
        let remove: String = (0..LINKS).map(|n| format!("link del v{n}\n")).collect();
        fs::write(&file, remove)?;
        shell(&format!("ip -batch {}", file.display()))?;
        fs::create_dir_all("/var/lib/cni/results")?;
        for n in 0..ENTRIES {
            let (high, low) = (n >> 8 & 255, n & 255);
            let entry = format!(
                r#"{{"kind":"cniCacheV1","containerId":"{n:064x}","config":"e30=","ifName":"eth0","networkName":"other","result":{{"cniVersion":"0.3.0","ips":[{{"version":"4","address":"10.99.{high}.{low}/16"}}]}}}}"#
            );
            fs::write(format!("/var/lib/cni/results/other-{n:064x}-eth0"), entry)?;
        }
        tell("10,000 cached results")?;
        fs::remove_dir_all("/var/lib/cni/results")
    }

    /// Many ADDs at once, and what a dead wire server means.
    fn crowds(&self) -> io::Result<()> {
        println!(
            "\n{CROWD} ADDs at once:             ms   x floor   slowest   user+sys ms   failed   twice"
        );
        for delay in [0, 50, 500] {
            let what = format!("after {delay} ms");
            let floor = self.crowd(&self.floor, &what, Duration::from_millis(delay), None)?;
            for plugin in &self.plugins {
                self.crowd(plugin, &what, Duration::from_millis(delay), Some(floor))?;
            }
        }
        for plugin in &self.plugins {
            self.fresh(ORDINARY)?;
            self.dead(|| self.fresh_crowd(plugin, "dead", None).map(drop))?;
        }
        println!("\n{CROWD} addresses held, wire server dead:       us   x alive");
        for plugin in &self.plugins {
            self.fresh(ORDINARY)?;
            burst(plugin, CROWD, &self.scratch)?;
            let rows = || interleaved(std::slice::from_ref(plugin), self.rounds / 4);
            let alive = rows()?;
            self.dead(|| {
                let dead = rows()?;
                for verb in ["ADD", "DEL"] {
                    let median = |rows: &Rows| micros(rows, &plugin.label, verb);
                    let (now, beside) = (median(&dead), ratio(median(&dead), median(&alive)));
                    println!(
                        "  {verb} {:<33} {:>8} {beside:>9.2}",
                        plugin.label,
                        now.as_micros()
                    );
                }
                Ok(())
            })?;
        }
        Ok(())
    }

    /// Does something while whatever is sent to the wire server vanishes.
    fn dead(&self, work: impl FnOnce() -> io::Result<()>) -> io::Result<()> {
        shell(
            "ip addr del 168.63.129.16/32 dev lo; ip route replace 168.63.129.16/32 dev eth0;
             ip neigh replace 168.63.129.16 lladdr 02:00:00:00:00:99 dev eth0 nud permanent",
        )?;
        work()?;
        shell(
            "ip neigh del 168.63.129.16 dev eth0; ip route del 168.63.129.16/32 dev eth0;
             ip addr add 168.63.129.16/32 dev lo",
        )
    }

    fn crowd(
        &self,
        program: &Program,
        what: &str,
        delay: Duration,
        floor: Option<Duration>,
    ) -> io::Result<Duration> {
        self.fresh(ORDINARY)?;
        self.server.lists(ORDINARY, delay);
        self.fresh_crowd(program, what, floor)
    }

    fn fresh_crowd(
        &self,
        program: &Program,
        what: &str,
        floor: Option<Duration>,
    ) -> io::Result<Duration> {
        let burst = burst(program, CROWD, &self.scratch)?;
        let label = &program.label;
        let beside = floor.map_or("-".to_owned(), |floor| {
            format!("{:.2}", ratio(burst.total, floor))
        });
        // The floor gives the same address to everybody.
        let twice = if label == "floor" { 0 } else { burst.twice };
        println!(
            "  {what:<14} {label:<12} {:>8} {beside:>9} {:>9.2} {:>13} {:>8} {twice:>7}",
            burst.total.as_millis(),
            ratio(burst.slowest, burst.total),
            burst.processor.as_millis(),
            burst.failed,
        );
        Ok(burst.total)
    }
}
