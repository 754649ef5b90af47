//! Measures whole processes, from before their start to after their end.

use std::collections::{HashMap, HashSet};
use std::fs::{self, File};
use std::io;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{WaitOptions, wait};
use rustix::thread::{LinkNameSpaceType, UnshareFlags, move_into_link_name_space, unshare_unsafe};
use wait4::Wait4;

/// A plugin to be measured.
pub struct Program {
    /// The name in the tables.
    pub label: String,
    /// The executable.
    pub path: PathBuf,
    /// The file with its network configuration.
    pub conf: PathBuf,
    /// The mount namespace that it runs in.
    pub place: Place,
}

/// A mount namespace, in which one program has its own state and log.
pub struct Place(File);

impl Place {
    /// Creates a mount namespace, and enters it.
    pub fn new() -> io::Result<Place> {
        // SAFETY: only the mounts and folders of this thread become separate. File descriptors stay shared.
        unsafe { unshare_unsafe(UnshareFlags::NEWNS) }?;
        shell("for folder in /run /var/log; do mount -t tmpfs -o size=1g none $folder; done")?;
        Ok(Place(File::open("/proc/thread-self/ns/mnt")?))
    }

    /// Moves this thread into the namespace. The processes that it starts follow.
    pub fn enter(&self) -> io::Result<()> {
        Ok(move_into_link_name_space(
            self.0.as_fd(),
            Some(LinkNameSpaceType::Mount),
        )?)
    }
}

/// Runs a line of shell commands.
///
/// # Errors
/// One of them fails.
pub fn shell(line: &str) -> io::Result<()> {
    if Command::new("sh").args(["-ec", line]).status()?.success() {
        Ok(())
    } else {
        Err(io::Error::other(format!("failed: {line}")))
    }
}

/// The measurements of one verb of one program over all rounds.
#[derive(Default)]
pub struct Row {
    walls: Vec<Duration>,
    /// The median of the times.
    pub median: Duration,
    /// Peak memory in KiB.
    pub memory: u64,
    /// How many calls failed.
    pub failed: usize,
}

impl Program {
    fn command(&self, verb: &str, container: &str, stdout: Stdio) -> io::Result<Command> {
        let mut command = Command::new(&self.path);
        command
            .env_clear()
            .env("CNI_COMMAND", verb)
            .env("CNI_CONTAINERID", container)
            .env("CNI_NETNS", "/var/run/netns/x")
            .env("CNI_IFNAME", "eth0")
            .env("CNI_PATH", "/opt/cni/bin")
            .env("PATH", "/usr/bin:/bin")
            .stdin(File::open(&self.conf)?)
            .stdout(stdout)
            .stderr(Stdio::null());
        Ok(command)
    }

    /// Calls the program without measuring it.
    pub fn call(&self, verb: &str, container: &str) -> io::Result<()> {
        let output = self.command(verb, container, Stdio::piped())?.output()?;
        if output.status.success() {
            Ok(())
        } else {
            Err(io::Error::other(format!(
                "{}: {verb} failed: {}",
                self.label,
                String::from_utf8_lossy(&output.stdout)
            )))
        }
    }
}

/// The verbs that are measured.
pub const VERBS: [&str; 3] = ["ADD", "DEL", "VERSION"];

/// Measures the verbs of every program, `rounds` times in turn, so that disturbances of the machine affect all of them. The order changes
/// in each round: a program that runs after a large one finds the processor's caches filled by that.
pub fn interleaved(programs: &[&Program], rounds: usize) -> io::Result<Vec<[Row; VERBS.len()]>> {
    const WARM_UP: usize = 3;
    let mut rows: Vec<_> = programs
        .iter()
        .map(|_| <[Row; VERBS.len()]>::default())
        .collect();
    let mut order: Vec<_> = (0..programs.len()).collect();
    let mut random = 1;
    for round in 0..rounds + WARM_UP {
        shuffle(&mut order, &mut random);
        for &program in &order {
            programs[program].place.enter()?;
            for (verb, row) in VERBS.into_iter().zip(&mut rows[program]) {
                let start = Instant::now();
                let mut child = programs[program]
                    .command(verb, "bench0123456789abcdef", Stdio::null())?
                    .spawn()?;
                let used = child.wait4()?;
                let wall = start.elapsed();
                row.failed += usize::from(!used.status.success());
                if round >= WARM_UP {
                    row.walls.push(wall);
                    row.memory = row.memory.max(used.rusage.maxrss / 1024);
                }
            }
        }
    }
    for row in rows.iter_mut().flatten() {
        row.walls.sort();
        row.median = row.walls[row.walls.len() / 2];
    }
    Ok(rows)
}

fn shuffle<T>(items: &mut [T], random: &mut u64) {
    for n in (1..items.len()).rev() {
        *random = random.wrapping_mul(6364136223846793005).wrapping_add(1);
        items.swap(n, (*random >> 33) as usize % (n + 1));
    }
}

/// The measurements of many ADDs at once.
#[derive(Default)]
pub struct Burst {
    /// From the first start to the last end.
    pub total: Duration,
    /// The time of the slowest ADD.
    pub slowest: Duration,
    /// The processor time of all ADDs, in user mode and in the kernel. Its clock is coarse.
    pub processor: Duration,
    /// How many failed.
    pub failed: usize,
    /// How many were allocated an address that another ADD was allocated too.
    pub twice: usize,
}

/// Measures `count` ADDs of as many containers, all started at once.
pub fn burst(program: &Program, count: usize, scratch: &Path) -> io::Result<Burst> {
    let results = scratch.join("burst");
    fs::create_dir_all(&results)?;
    program.place.enter()?;
    let before = processor_of_children()?;
    let begin = Instant::now();
    let mut running = HashMap::new();
    for n in 0..count {
        let stdout = File::create(results.join(n.to_string()))?;
        let container = format!("burst{n:06}");
        let start = Instant::now();
        let child = program.command("ADD", &container, stdout.into())?.spawn()?;
        running.insert(child.id(), (n, start));
    }
    let mut burst = Burst::default();
    let mut allocated = HashSet::new();
    while !running.is_empty() {
        let (pid, status) = wait(WaitOptions::empty())?.expect("it waits");
        let pid = pid.as_raw_nonzero().get().cast_unsigned();
        let Some((n, start)) = running.remove(&pid) else {
            continue;
        };
        burst.slowest = burst.slowest.max(start.elapsed());
        let result = fs::read_to_string(results.join(n.to_string()))?;
        let address = result.split_once("\"address\"");
        match address.and_then(|(_, rest)| rest.split('"').nth(1)) {
            Some(address) if status.exit_status() == Some(0) => {
                burst.twice += usize::from(!allocated.insert(address.to_owned()));
            }
            _ => burst.failed += 1,
        }
    }
    burst.total = begin.elapsed();
    burst.processor = processor_of_children()?.saturating_sub(before);
    fs::remove_dir_all(results)?;
    Ok(burst)
}

/// Returns the processor time of the children that have ended.
fn processor_of_children() -> io::Result<Duration> {
    let stat = fs::read_to_string("/proc/self/stat")?;
    let fields = stat.rsplit(')').next().unwrap_or_default();
    // Fields 16 and 17 of proc(5), in hundredths of a second. The first two fields are before the bracket.
    let ticks: u64 = fields
        .split_ascii_whitespace()
        .skip(13)
        .take(2)
        .flat_map(str::parse::<u64>)
        .sum();
    Ok(Duration::from_millis(ticks * 10))
}
