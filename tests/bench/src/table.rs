//! Runs the measurements in their order, and prints them.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use crate::measure::{Burst, Place, Program, Row, VERBS, burst, interleaved, shell};
use crate::wire::Server;

/// The number of addresses of an ordinary node.
const ORDINARY: usize = 254;
/// The number of pods that start at once.
const CROWD: usize = 250;
const HOST_LOCAL: &str = "/usr/lib/cni/host-local";
const CONF: &str = r#"{"cniVersion":"0.3.0","name":"azure","type":"azure-vnet","ipam":{"type":"azure-vnet-ipam","subnet":"10.224.0.0/12"}}"#;
const HOST_LOCAL_CONF: &str = r#"{"cniVersion":"0.3.1","name":"hl","type":"x","ipam":{"type":"host-local","dataDir":"/run/hl","ranges":[[{"subnet":"10.224.0.0/12"}]]}}"#;

struct Bench {
    rounds: usize,
    scratch: PathBuf,
    server: Server,
    /// The programs that use the wire server, without the floor.
    plugins: Vec<Program>,
    floor: Program,
    host_local: Option<Program>,
}

/// Measures everything and prints it.
pub fn print() -> io::Result<()> {
    let bench = Bench::set_up()?;
    bench.head()?;
    bench.verbs(1)?;
    bench.verbs(CROWD)?;
    println!("\nexecutable:");
    for Program { label, path, .. } in &bench.plugins {
        println!("  {label:<12} {:>9} bytes", fs::metadata(path)?.len());
    }
    bench.growth()?;
    bench.surroundings()?;
    bench.crowds()?;
    fs::remove_dir_all(&bench.scratch)
}

fn ratio(one: Duration, other: Duration) -> f64 {
    one.as_secs_f64() / other.as_secs_f64().max(1e-9)
}

impl Bench {
    fn set_up() -> io::Result<Bench> {
        let scratch =
            std::env::temp_dir().join(format!("azure-vnet-ipam-bench-{}", std::process::id()));
        fs::create_dir_all(&scratch)?;
        shell(
            "mkdir -p /var/lib/cni; mount -t tmpfs -o size=1g none /var/lib/cni
             ip link add eth0 address 7c:1e:52:f9:f3:c4 type veth peer name p0; ip link set eth0 up; ip link set p0 up;
             ip addr add 10.224.0.4/12 dev eth0; ip addr add 168.63.129.16/32 dev lo",
        )?;
        // The server starts before the first `Place`. A thread that starts later would share the folders of this one, which could then
        // enter no mount namespace.
        let server = Server::start()?;
        let usage = || io::Error::other("usage: tests/bench/run [--rounds N] [LABEL=BINARY ...]");
        let mut rounds = 200;
        let mut plugins = Vec::new();
        let mut arguments = std::env::args().skip(1);
        // A copy, as after an installation. Files that a linker wrote are cached in smaller pieces, and are slower to map.
        let program = |label: &str, from: &Path, copy: &str, text: &str| -> io::Result<Program> {
            let (path, conf) = (scratch.join(copy), scratch.join(format!("{copy}.conf")));
            fs::copy(from, &path)?;
            fs::write(&conf, text)?;
            Ok(Program {
                label: label.to_owned(),
                path,
                conf,
                place: Place::new()?,
            })
        };
        while let Some(argument) = arguments.next() {
            if argument == "--rounds" {
                let number = arguments.next().and_then(|n| n.parse().ok());
                rounds = number.ok_or_else(usage)?;
                continue;
            }
            let (label, path) = argument.split_once('=').ok_or_else(usage)?;
            let copy = format!("{label}-{}", plugins.len());
            plugins.push(program(label, path.as_ref(), &copy, CONF)?);
        }
        // The program under test comes first.
        plugins.rotate_right(1);
        let floor = program("floor", &std::env::current_exe()?, "floor", CONF)?;
        let host_local = Path::new(HOST_LOCAL);
        let host_local = if host_local.exists() {
            Some(program(
                "host-local",
                host_local,
                "host-local",
                HOST_LOCAL_CONF,
            )?)
        } else {
            None
        };
        Ok(Bench {
            rounds,
            server,
            plugins,
            floor,
            host_local,
            scratch,
        })
    }

    fn head(&self) -> io::Result<()> {
        shell(
            r#"echo "$(nproc) x $(sed -n 's/^model name.*: //p' /proc/cpuinfo | head -n 1), Linux $(uname -r)""#,
        )?;
        for plugin in &self.plugins {
            let version = Command::new(&plugin.path).arg("--version").output()?;
            let version = String::from_utf8_lossy(&version.stdout);
            println!("{}: {}", plugin.label, version.trim());
        }
        println!(
            "floor: the same system calls without parsing, deciding and logging; {} rounds, medians",
            self.rounds
        );
        Ok(())
    }

    /// Creates a new state for every program, with `addresses` addresses. `held` of them are held. The first plugin writes the state of
    /// the floor.
    fn fresh(&self, addresses: usize, held: usize) -> io::Result<()> {
        self.server.set_answer(addresses, Duration::ZERO);
        let own = self.plugins.iter().map(|plugin| (plugin, plugin));
        for (program, writer) in own.chain([(&self.floor, &self.plugins[0])]) {
            program.place.enter()?;
            shell("rm -rf /run/azure-vnet* /run/.azure-vnet-ipam.*")?;
            for pod in 0..held {
                writer.call("ADD", &format!("pod{pod:03}"))?;
            }
        }
        Ok(())
    }

    /// Measures the verbs on an ordinary node on which `held` addresses are held.
    fn verbs(&self, held: usize) -> io::Result<()> {
        self.fresh(ORDINARY, held)?;
        let programs: Vec<_> = self
            .plugins
            .iter()
            .chain([&self.floor])
            .chain(&self.host_local)
            .collect();
        let rows = interleaved(&programs, self.rounds)?;
        println!("\n{ORDINARY} addresses, {held} held:");
        println!("                        us   x floor   x host-local    KiB   failed");
        for (verb, name) in VERBS.into_iter().enumerate() {
            let median_time = |program: usize| rows.get(program).map(|rows| rows[verb].median);
            let floor = median_time(self.plugins.len());
            let host_local = median_time(self.plugins.len() + 1);
            for (Program { label, .. }, rows) in programs.iter().zip(&rows) {
                let Row {
                    median,
                    memory,
                    failed,
                    ..
                } = rows[verb];
                let beside = |other: Option<Duration>| {
                    other.map_or("-".to_owned(), |other| {
                        format!("{:.2}", ratio(median, other))
                    })
                };
                println!(
                    "  {name} {label:<12} {:>8} {:>9} {:>12} {memory:>8} {failed:>8}",
                    median.as_micros(),
                    beside(floor),
                    beside(host_local),
                );
            }
        }
        Ok(())
    }

    /// Measures ADD on a node with this number of addresses. Returns the time of each plugin, and its ratio to the floor's.
    fn adds(&self, addresses: usize, rounds: usize) -> io::Result<Vec<(Duration, f64)>> {
        self.fresh(addresses, 1)?;
        let programs: Vec<_> = self.plugins.iter().chain([&self.floor]).collect();
        let rows = interleaved(&programs, rounds)?;
        let adds: Vec<_> = rows.iter().map(|[add, ..]| add.median).collect();
        let (floor, adds) = adds.split_last().expect("the floor is there");
        Ok(adds.iter().map(|add| (*add, ratio(*add, *floor))).collect())
    }

    /// Measures ADD on smaller and larger nodes.
    fn growth(&self) -> io::Result<()> {
        println!("\ngrowth, ADD:              us   x floor");
        for (addresses, part) in [(28, 2), (4096, 4), (65_536, 20)] {
            let adds = self.adds(addresses, (self.rounds / part).max(5))?;
            for (Program { label, .. }, (add, beside)) in self.plugins.iter().zip(adds) {
                let add = add.as_micros();
                println!("  {addresses:>6} {label:<12} {add:>8} {beside:>9.2}");
            }
        }
        Ok(())
    }

    /// Measures ADD on a node with many links and routes, then on one with many results in libcni's cache.
    fn surroundings(&self) -> io::Result<()> {
        println!("\nsurroundings, ADD:                        x floor   x without");
        let adds = || self.adds(ORDINARY, (self.rounds / 2).max(1));
        let without = adds()?;
        let print_ratios = |what: &str| -> io::Result<()> {
            for ((plugin, (_, before)), (_, now)) in self.plugins.iter().zip(&without).zip(adds()?)
            {
                let label = &plugin.label;
                println!("  {what:<24} {label:<12} {now:>9.2} {:>11.2}", now / before);
            }
            Ok(())
        };
        shell(
            r#"for n in $(seq 0 249); do
                   echo "link add v$n type veth peer name w$n"; echo "link set v$n up"; echo "route add 10.239.0.$n/32 dev v$n"
               done | ip -batch -"#,
        )?;
        print_ratios("250 links and routes")?;
        shell("for n in $(seq 0 249); do echo link del v$n; done | ip -batch -")?;
        fs::create_dir_all("/var/lib/cni/results")?;
        for n in 0..10_000 {
            let (high, low) = (n >> 8 & 255, n & 255);
            let entry = format!(
                r#"{{"kind":"cniCacheV1","containerId":"{n:064x}","config":"e30=","ifName":"eth0","networkName":"other","result":{{"cniVersion":"0.3.0","ips":[{{"version":"4","address":"10.99.{high}.{low}/16"}}]}}}}"#
            );
            fs::write(format!("/var/lib/cni/results/other-{n:064x}-eth0"), entry)?;
        }
        print_ratios("10,000 cached results")?;
        fs::remove_dir_all("/var/lib/cni/results")
    }

    /// Measures many ADDs at once, and calls while the wire server is dead.
    fn crowds(&self) -> io::Result<()> {
        // The times of single bursts differ by a third.
        let times = (self.rounds / 10).max(1);
        println!(
            "\n{CROWD} ADDs at once, {times} times:    ms   x floor   slowest   user+sys ms   failed   twice"
        );
        for delay in [0, 50, 500] {
            let programs: Vec<_> = [&self.floor].into_iter().chain(&self.plugins).collect();
            print_bursts(&programs, times, &format!("after {delay} ms"), |program| {
                self.fresh(ORDINARY, 1)?;
                self.server
                    .set_answer(ORDINARY, Duration::from_millis(delay));
                burst(program, CROWD, &self.scratch)
            })?;
        }
        let plugins: Vec<_> = self.plugins.iter().collect();
        print_bursts(&plugins, 1, "dead, once", |plugin| {
            self.fresh(ORDINARY, 1)?;
            self.with_dead_server(|| burst(plugin, CROWD, &self.scratch))
        })?;
        println!("\n{CROWD} addresses held, wire server dead:       us   x alive");
        for plugin in &self.plugins {
            self.fresh(ORDINARY, CROWD)?;
            let rows = || interleaved(&[plugin], (self.rounds / 4).max(1));
            let alive = rows()?.remove(0);
            let dead = self.with_dead_server(rows)?.remove(0);
            for ((verb, dead), alive) in VERBS.into_iter().zip(dead).zip(alive) {
                println!(
                    "  {verb} {:<33} {:>8} {:>9.2}",
                    plugin.label,
                    dead.median.as_micros(),
                    ratio(dead.median, alive.median)
                );
            }
        }
        Ok(())
    }

    /// Runs `work` while all packets to the wire server are lost.
    fn with_dead_server<T>(&self, work: impl FnOnce() -> io::Result<T>) -> io::Result<T> {
        shell(
            "ip addr del 168.63.129.16/32 dev lo; ip route replace 168.63.129.16/32 dev eth0;
             ip neigh replace 168.63.129.16 lladdr 02:00:00:00:00:99 dev eth0 nud permanent",
        )?;
        let done = work()?;
        shell(
            "ip neigh del 168.63.129.16 dev eth0; ip route del 168.63.129.16/32 dev eth0;
             ip addr add 168.63.129.16/32 dev lo",
        )?;
        Ok(done)
    }
}

/// Measures bursts of the programs in turn, `times` times, and prints a line about each program.
fn print_bursts(
    programs: &[&Program],
    times: usize,
    what: &str,
    run: impl Fn(&Program) -> io::Result<Burst>,
) -> io::Result<()> {
    let mut bursts: Vec<Vec<Burst>> = programs.iter().map(|_| Vec::new()).collect();
    for _ in 0..times {
        for (program, bursts) in programs.iter().zip(&mut bursts) {
            bursts.push(run(program)?);
        }
    }
    let mut floor = None;
    for (Program { label, .. }, bursts) in programs.iter().zip(&bursts) {
        let total = median(bursts, |burst| burst.total);
        let beside = floor.map_or("-".to_owned(), |floor| {
            format!("{:.2}", ratio(total, floor))
        });
        let failed: usize = bursts.iter().map(|burst| burst.failed).sum();
        let is_floor = label == "floor";
        // The floor prints the same address in every call.
        let twice: usize = if is_floor {
            0
        } else {
            bursts.iter().map(|burst| burst.twice).sum()
        };
        println!(
            "  {what:<14} {label:<12} {:>8} {beside:>9} {:>9.2} {:>13} {failed:>8} {twice:>7}",
            total.as_millis(),
            ratio(median(bursts, |burst| burst.slowest), total),
            median(bursts, |burst| burst.processor).as_millis(),
        );
        if is_floor {
            floor = Some(total);
        }
    }
    Ok(())
}

/// Returns the median of a figure of all bursts.
fn median(bursts: &[Burst], figure: impl Fn(&Burst) -> Duration) -> Duration {
    let mut figures: Vec<Duration> = bursts.iter().map(figure).collect();
    figures.sort();
    figures[figures.len() / 2]
}
