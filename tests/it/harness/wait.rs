//! Waits with a deadline. The message of a failed wait names what it waited for.
//!
//! A child that outlives its deadline is killed with its process group, and the test fails. If the wait still does not end,
//! the whole test program ends, because a hanging test program reports nothing.

use std::fmt::Display;
use std::io;
use std::process::{Child, Command, ExitStatus, Output, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process_group};

/// The limit for waits of tests. It is far longer than any of them takes on a busy machine with one core. The longest
/// limit of the program itself is 30 s.
pub const LIMIT: Duration = Duration::from_secs(180);
/// How long a killed child may take to end.
const GRACE: Duration = Duration::from_secs(20);
const POLL: Duration = Duration::from_millis(2);

/// Waits until the condition holds. Fails the test after [`LIMIT`].
#[track_caller]
pub fn wait_until(what: impl Display, condition: impl FnMut() -> bool) {
    wait_until_within(LIMIT, what, condition);
}

/// Waits until the condition holds. Fails the test after this limit.
#[track_caller]
pub fn wait_until_within(limit: Duration, what: impl Display, mut condition: impl FnMut() -> bool) {
    let deadline = Instant::now() + limit;
    loop {
        // Asked first: the last look begins after the limit even if the machine stood still meanwhile.
        let is_over = Instant::now() >= deadline;
        if condition() {
            return;
        }
        assert!(
            !is_over,
            "timed out after {} s waiting for {what}",
            limit.as_secs()
        );
        thread::sleep(POLL);
    }
}

/// Sets a flag when it is dropped, also by a panic. Helper threads run until the flag is set.
pub struct SetOnDrop<'a>(pub &'a AtomicBool);

impl Drop for SetOnDrop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::SeqCst);
    }
}

/// Runs blocking work. Ends the test program when it takes longer than [`LIMIT`].
pub fn watched<T>(what: impl Display, work: impl FnOnce() -> T) -> T {
    watched_within(LIMIT, &what.to_string(), None, work)
}

/// Runs blocking work. After the limit, kills the process group that the work waits for and fails the test. Ends the
/// test program if the work still does not end.
#[track_caller]
fn watched_within<T>(
    limit: Duration,
    what: &str,
    group: Option<Pid>,
    work: impl FnOnce() -> T,
) -> T {
    let overdue = format!("timed out after {} s waiting for {what}", limit.as_secs());
    let (end, has_ended) = mpsc::channel::<()>();
    let (result, is_overdue) = thread::scope(|scope| {
        let overdue = &overdue;
        let watching = scope.spawn(move || {
            let is_over = |limit| has_ended.recv_timeout(limit) == Err(RecvTimeoutError::Timeout);
            let is_overdue = is_over(limit);
            if let Some(group) = group.filter(|_| is_overdue) {
                let _ = kill_process_group(group, Signal::KILL);
            }
            if is_overdue && (group.is_none() || is_over(GRACE)) {
                // Bypass the output capture of the test runner.
                let _ = io::Write::write_all(&mut io::stderr(), overdue.as_bytes());
                std::process::exit(101);
            }
            is_overdue
        });
        let result = work();
        drop(end);
        (result, watching.join().unwrap())
    });
    assert!(!is_overdue, "{overdue}");
    result
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

    /// Writes to the child's stdin and closes it. Some tests kill the child before it has read everything.
    pub fn write_stdin(&mut self, text: &str) {
        let mut stdin = self.child().stdin.take().unwrap();
        let what = format!("{} to read its input", self.what);
        let write = || drop(io::Write::write_all(&mut stdin, text.as_bytes()));
        watched_within(LIMIT, &what, self.group(), write);
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

    /// Waits for the child to end.
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
        let (group, child) = (self.group(), self.child.take().unwrap());
        watched_within(limit, &self.what, group, || wait(child).unwrap())
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
        // The background process keeps the pipes of the shell open.
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
