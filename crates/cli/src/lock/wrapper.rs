//! One run under a lock: get in line, run the command, keep the lease, release.

use super::Lock;
use super::deadline::{Deadlines, now};
use super::descendants::Descendants;
use super::held::{AcquireOutcome, Held};
use super::messages::{CommandExit, EndedBy, ToGuard, ToWrapper};
use super::process::{Event, Process};
use super::signals::{CONTINUE, Signals, is_end};
use super::terminal::Terminal;
use crate::exit::{Exit, Problem};
use crate::stderr::eprint_line;
use rustix::process::{Signal, getpgrp, kill_current_process_group};
use rustix::termios::{isatty, tcgetpgrp};
use std::io::stdin;
use std::time::Duration;
use tokio::time::{MissedTickBehavior, interval};

/// How a run ended.
pub(super) enum RunOutcome {
    /// The exit code of the program.
    Done(Exit),
    /// The lock was lost, and the command with it.
    Lost {
        /// A signal that asked this program to terminate in the meantime.
        end_signal: Option<i32>,
    },
}

/// A deadline that moved by no more than this is not published again.
const SAME: Duration = Duration::from_millis(1);

/// Takes the lock and runs the command once.
pub(super) async fn run(lock: &Lock, signals: &mut Signals) -> Result<RunOutcome, Problem> {
    let held = match Held::take(lock, signals).await? {
        AcquireOutcome::Held(held) => held,
        AcquireOutcome::Interrupted(signal) => {
            return Ok(RunOutcome::Done(Exit::of_signal(signal)));
        }
    };
    held.print_ending();
    let lease = Deadlines::lease(lock.ttl, held.remaining());
    let deadlines = Deadlines::of(now() + held.remaining(), lease);
    let process = match Process::start(&lock.command, held.variables(), deadlines) {
        Ok(process) => process,
        Err(problem) => {
            held.release().await;
            return Err(problem);
        }
    };
    let terminal = Terminal::own();
    let keeper =
        Keeper { lock, held: &held, process, lease, deadlines, terminal, end_signal: None };
    match keeper.keep(signals).await {
        KeeperResult::Ended(exit) => {
            held.release().await;
            Ok(RunOutcome::Done(exit))
        }
        KeeperResult::Lost { why, left, end_signal } => {
            // A command that was cut short did not release: the lease runs out, and the next holder
            // learns of it.
            let cut_short = held.abandon(left.is_nothing(), signals).await;
            let lost = format!("lost {}: {why}", lock.shown());
            eprint_line!("holdfast: {lost}; {}", what_is_left(&left));
            if left.is_nothing() {
                let end_signal = end_signal.or(cut_short).or_else(|| signals.try_end());
                return Ok(RunOutcome::Lost { end_signal });
            }
            // The command must not run again beside them.
            Ok(RunOutcome::Done(Exit::Lost))
        }
    }
}

fn what_is_left(left: &Descendants) -> String {
    let pids: Vec<String> = left.pids.iter().map(i32::to_string).collect();
    match &left.unread {
        _ if !pids.is_empty() => {
            format!("these processes of the command could not be ended: {}", pids.join(", "))
        }
        Some(error) => format!("the command may still run: can't read all of /proc: {error}"),
        None => "the command was ended".to_owned(),
    }
}

enum KeeperResult {
    Ended(Exit),
    Lost {
        why: String,
        /// The command's processes that could not be killed.
        left: Descendants,
        /// A signal that asked this program to terminate before.
        end_signal: Option<i32>,
    },
}

/// Keeps the guard processes up to date until the command has ended.
struct Keeper<'a> {
    lock: &'a Lock,
    held: &'a Held,
    process: Process,
    /// The lease that the deadlines are computed from.
    lease: Duration,
    /// The deadlines that were last published.
    deadlines: Deadlines,
    terminal: Option<Terminal>,
    /// A signal after which the command must not be run again if the lock is lost.
    end_signal: Option<i32>,
}

impl Keeper<'_> {
    async fn keep(mut self, signals: &mut Signals) -> KeeperResult {
        let held = self.held;
        let mut lost = std::pin::pin!(held.lost());
        let mut asked = std::pin::pin!(held.asked_to_let_go());
        let mut was_asked = false;
        let every =
            (self.lock.ttl / 40).clamp(Duration::from_millis(10), Duration::from_millis(250));
        let mut looking = interval(every);
        looking.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut line = Vec::new();
        loop {
            tokio::select! {
                // Losing the lock takes precedence over everything else.
                biased;
                why = &mut lost => return self.lose(why).await,
                event = self.process.next(&mut line) => match event {
                    Event::Message(word) => {
                        if let Some(end) = self.handle(word).await {
                            return end;
                        }
                    }
                    Event::ChildEnded => drop(self.process.reap()),
                },
                asked = &mut asked, if !was_asked => {
                    was_asked = true;
                    eprint_line!(
                        "holdfast: {} asks to let go of {} within {} s: {}",
                        String::from_utf8_lossy(&asked.by),
                        self.lock.shown(),
                        asked.within.as_secs(),
                        String::from_utf8_lossy(&asked.reason)
                    );
                    self.process.send_message(ToGuard::Signal(Signal::TERM.as_raw())).await;
                }
                signal = signals.next() => self.pass_on(signal).await,
                _ = looking.tick() => self.send_deadlines(),
            }
        }
    }

    async fn handle(&mut self, word: Option<ToWrapper>) -> Option<KeeperResult> {
        match word {
            Some(ToWrapper::Started(_)) => {
                self.give_terminal();
                None
            }
            Some(ToWrapper::NotStarted(code, why)) => {
                eprint_line!("holdfast: {why}");
                Some(KeeperResult::Ended(Exit::Child(code)))
            }
            Some(ToWrapper::Stopped(signal)) => {
                self.stop(signal).await;
                None
            }
            Some(ToWrapper::Ended { how, by: EndedBy::Itself }) => {
                self.take_terminal_back(matches!(how, CommandExit::Killed(_)));
                Some(KeeperResult::Ended(match how {
                    CommandExit::Exited(code) => Exit::Child(u8::try_from(code).unwrap_or(u8::MAX)),
                    CommandExit::Killed(signal) => Exit::of_signal(signal),
                }))
            }
            Some(ToWrapper::Ended { by: EndedBy::Lease, .. } | ToWrapper::TooLate) => {
                Some(self.lose("it could not be renewed in time".to_owned()).await)
            }
            Some(ToWrapper::Ended { by: EndedBy::Guard, .. }) | None => {
                Some(self.lose("a process that guards the command was killed".to_owned()).await)
            }
        }
    }

    /// Kills the command without waiting for the guards: they may be stopped.
    async fn lose(&mut self, why: String) -> KeeperResult {
        let left = self.process.end_all().await;
        self.take_terminal_back(true);
        KeeperResult::Lost { why, left, end_signal: self.end_signal }
    }

    /// The command was stopped: from the keyboard, or because it used a terminal it is not in the
    /// foreground of.
    async fn stop(&mut self, signal: i32) {
        let signal = Signal::from_named_raw(signal).unwrap_or(Signal::STOP);
        let wants_terminal = matches!(signal, Signal::TTIN | Signal::TTOU);
        let in_front = tcgetpgrp(stdin())
            .is_ok_and(|group| group == getpgrp() || Some(group) == self.process.group());
        if wants_terminal && in_front {
            self.give_terminal();
            self.process.send_message(ToGuard::Signal(CONTINUE)).await;
        } else if isatty(stdin()) && signal != Signal::STOP {
            // The shell must see its job stopped. The lease keeps running out.
            let _ = kill_current_process_group(signal);
        }
    }

    fn give_terminal(&mut self) {
        if let (Some(terminal), Some(group)) = (&mut self.terminal, self.process.group()) {
            terminal.give(group);
        }
    }

    fn take_terminal_back(&mut self, tidy: bool) {
        if let Some(terminal) = &mut self.terminal {
            terminal.take_back(tidy);
        }
    }

    async fn pass_on(&mut self, signal: i32) {
        if signal == CONTINUE {
            // The shell's `fg` put this process in the foreground: pass that on to the command.
            self.terminal = self.terminal.take().or_else(Terminal::own);
            if tcgetpgrp(stdin()).is_ok_and(|group| group == getpgrp()) {
                self.give_terminal();
            }
        }
        // A service may survive some of them, such as SIGHUP, but not while it is being terminated.
        if signal == Signal::TERM.as_raw() || is_end(signal) && now() >= self.deadlines.ask_at {
            self.end_signal = Some(signal);
        }
        self.process.send_message(ToGuard::Signal(signal)).await;
    }

    fn send_deadlines(&mut self) {
        // Read the clock first: if this process is stopped in between, the deadline is too early,
        // never too late.
        let now = now();
        let deadlines = Deadlines::of(now + self.held.remaining(), self.lease);
        // If it can't be written the old one stays in force, and the command ends by it.
        if deadlines.kill_at > self.deadlines.kill_at + SAME
            && self.process.renewed(deadlines).is_ok()
        {
            self.deadlines = deadlines;
        }
    }
}
