//! Waits with a deadline, whose message names what they waited for.
//!
//! A child that outlives its deadline is killed with its process group, and the test fails. If the wait still does not end,
//! the whole test program ends, because a hanging test program reports nothing.

use std::fmt::Display;
use std::io;
use std::process::{Child, Command, ExitStatus, Output, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, Once, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process_group};

/// Far longer than anything that a test waits for on a busy machine with one core. The longest limit of the program itself
/// is 30 s.
pub const LIMIT: Duration = Duration::from_secs(180);
/// How long a killed child may take to end.
const GRACE: Duration = Duration::from_secs(20);
const POLL: Duration = Duration::from_millis(2);

/// Waits until the condition holds. Fails the test after [`LIMIT`].
#[track_caller]
pub fn wait_until(what: impl Display, condition: impl FnMut() -> bool) {
    wait_until_within(LIMIT, what, condition);
}

/// The same with another limit.
#[track_caller]
pub fn wait_until_within(limit: Duration, what: impl Display, mut condition: impl FnMut() -> bool) {
    let deadline = Instant::now() + limit;
    while !condition() {
        assert!(
            Instant::now() < deadline,
            "timed out after {} s waiting for {what}",
            limit.as_secs()
        );
        thread::sleep(POLL);
    }
}

/// Sets a flag when it is dropped, also by a panic, for helper threads that run until the flag is set.
pub struct SetOnDrop<'a>(pub &'a AtomicBool);

impl Drop for SetOnDrop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::SeqCst);
    }
}

/// Runs blocking work. Ends the test program when it takes longer than [`LIMIT`].
pub fn watched<T>(what: impl Display, work: impl FnOnce() -> T) -> T {
    let watch = Watch::start(what.to_string(), LIMIT, None);
    let result = work();
    drop(watch);
    result
}

/// A wait that the watchdog supervises until it is dropped.
struct Watch {
    id: u64,
}

struct Entry {
    id: u64,
    what: String,
    limit: Duration,
    deadline: Instant,
    /// The process group to kill at the deadline.
    group: Option<Pid>,
    is_killed: bool,
}

struct Watchdog {
    next: u64,
    entries: Vec<Entry>,
}

static WATCHDOG: Mutex<Watchdog> = Mutex::new(Watchdog {
    next: 0,
    entries: Vec::new(),
});

fn watchdog() -> MutexGuard<'static, Watchdog> {
    WATCHDOG.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Watch {
    fn start(what: String, limit: Duration, group: Option<Pid>) -> Watch {
        static STARTED: Once = Once::new();
        STARTED.call_once(|| {
            thread::spawn(|| {
                loop {
                    thread::sleep(Duration::from_millis(100));
                    watchdog().look();
                }
            });
        });
        let mut watchdog = watchdog();
        let id = watchdog.next;
        watchdog.next += 1;
        let deadline = Instant::now() + limit;
        watchdog.entries.push(Entry {
            id,
            what,
            limit,
            deadline,
            group,
            is_killed: false,
        });
        Watch { id }
    }

    /// Ends the wait. Fails the test if the watchdog killed the child.
    #[track_caller]
    fn end(self) {
        let overdue = {
            let entries = &watchdog().entries;
            let entry = entries.iter().find(|entry| entry.id == self.id);
            entry.filter(|entry| entry.is_killed).map(Entry::to_string)
        };
        if let Some(overdue) = overdue {
            panic!("{overdue}");
        }
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        watchdog().entries.retain(|entry| entry.id != self.id);
    }
}

impl Watchdog {
    fn look(&mut self) {
        let now = Instant::now();
        for entry in self.entries.iter_mut().filter(|e| e.deadline <= now) {
            match entry.group.filter(|_| !entry.is_killed) {
                Some(group) => {
                    let _ = kill_process_group(group, Signal::KILL);
                    entry.is_killed = true;
                    entry.deadline = now + GRACE;
                }
                None => {
                    // Bypass the capture of the test runner.
                    let _ =
                        io::Write::write_all(&mut io::stderr(), format!("{entry}\n").as_bytes());
                    std::process::exit(101);
                }
            }
        }
    }
}

impl Display for Entry {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (limit, what) = (self.limit.as_secs(), &self.what);
        write!(f, "timed out after {limit} s waiting for {what}")
    }
}

/// The command line, shortened for messages.
fn describe(command: &Command) -> String {
    let args = command.get_args().map(|a| a.to_string_lossy());
    let program = command.get_program().to_string_lossy();
    let words = [program].into_iter().chain(args);
    let text: String = words.collect::<Vec<_>>().join(" ");
    text.chars().take(300).collect()
}

/// A child in its own process group. The whole group is killed when this is dropped early.
pub struct Process {
    child: Option<Child>,
    what: String,
}

impl Process {
    /// Starts the command.
    #[track_caller]
    pub fn start(command: &mut Command) -> Process {
        use std::os::unix::process::CommandExt;
        let what = describe(command);
        let child = command.process_group(0).spawn();
        let child = child.unwrap_or_else(|e| panic!("failed to start {what}: {e}"));
        Process {
            child: Some(child),
            what,
        }
    }

    /// Starts the command with piped streams.
    #[track_caller]
    pub fn start_piped(command: &mut Command) -> Process {
        let command = command.stdin(Stdio::piped());
        Process::start(command.stdout(Stdio::piped()).stderr(Stdio::piped()))
    }

    pub fn child(&mut self) -> &mut Child {
        self.child.as_mut().unwrap()
    }

    pub fn id(&self) -> u32 {
        self.child.as_ref().unwrap().id()
    }

    pub fn is_running(&mut self) -> bool {
        self.child().try_wait().unwrap().is_none()
    }

    /// Writes to the child's stdin and closes it. Some tests end the child before it has read everything.
    pub fn write_stdin(&mut self, text: &str) {
        let mut stdin = self.child().stdin.take().unwrap();
        let what = format!("{} to read its input", self.what);
        let _watch = Watch::start(what, LIMIT, self.group());
        let _ = io::Write::write_all(&mut stdin, text.as_bytes());
    }

    fn group(&self) -> Option<Pid> {
        Pid::from_raw(i32::try_from(self.id()).unwrap())
    }

    /// Waits for the child and its output to end.
    #[track_caller]
    pub fn output(self) -> Output {
        self.output_within(LIMIT)
    }

    #[track_caller]
    pub fn output_within(mut self, limit: Duration) -> Output {
        self.wait_within(limit, Child::wait_with_output)
    }

    /// Waits for its end.
    #[track_caller]
    pub fn status(self) -> ExitStatus {
        self.status_within(LIMIT)
    }

    #[track_caller]
    pub fn status_within(mut self, limit: Duration) -> ExitStatus {
        self.wait_within(limit, |mut child| child.wait())
    }

    #[track_caller]
    fn wait_within<T>(&mut self, limit: Duration, wait: impl FnOnce(Child) -> io::Result<T>) -> T {
        let watch = Watch::start(self.what.clone(), limit, self.group());
        let ended = wait(self.child.take().unwrap()).unwrap();
        watch.end();
        ended
    }

    /// Kills the child with its process group.
    pub fn kill(mut self) {
        self.end();
    }

    fn end(&mut self) {
        let group = self.child.as_ref().and_then(|_| self.group());
        if let (Some(mut child), Some(group)) = (self.child.take(), group) {
            let _ = kill_process_group(group, Signal::KILL);
            let _ = watched(format!("the end of {}", self.what), || child.wait());
        }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.end();
    }
}

/// Runs a command without input, and returns its output.
#[track_caller]
pub fn output(command: &mut Command) -> Output {
    let command = command.stdin(Stdio::null());
    Process::start(command.stdout(Stdio::piped()).stderr(Stdio::piped())).output()
}

#[test]
fn child_past_its_deadline_is_killed_and_named() {
    let caught = std::panic::catch_unwind(|| {
        // The second holds the pipes of the first.
        let mut command = Command::new("sh");
        command.args(["-c", "sleep 1000 & sleep 1000"]);
        Process::start_piped(&mut command).output_within(Duration::from_millis(50))
    });
    let message = caught.unwrap_err();
    let message = message.downcast_ref::<String>().unwrap();
    assert!(
        message.contains("waiting for sh -c sleep 1000 & sleep 1000"),
        "{message}"
    );
}
