//! Random pairs of signals to random pairs of the processes of `holdfast lock`.
//!
//! `HOLDFAST_ATTACK_SECONDS=600` runs longer, `HOLDFAST_ATTACK_SEED=7` in another order.

use crate::cli::{Shell, descendants, parent, try_kill};
use crate::support::{eventually, measured};
use rustix::process::Signal;
use std::fs;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

const SIGNALS: [Signal; 6] =
    [Signal::STOP, Signal::CONT, Signal::KILL, Signal::TERM, Signal::INT, Signal::HUP];

/// Concurrent rounds: they mostly wait.
const AT_ONCE: u64 = 4;

/// The command, a child that left its process group and one that was reparented all write. The
/// command ends by itself only when all of them have ended.
const WORK: &str = "
    (setsid sh -c 'echo $$ > grandchild
        while [ ! -e stop ]; do echo s >> writes; sleep 0.02; done' &)
    timeout 30 sh -c 'while [ ! -e stop ]; do echo t >> writes; sleep 0.02; done' &
    until [ -s grandchild ]; do sleep 0.01; done
    echo $$ > command
    while [ ! -e stop ]; do echo x >> writes; sleep 0.02; done
    wait
    while [ -e /proc/$(cat grandchild) ]; do sleep 0.02; done";

/// The next holder: how many bytes are written while it holds the lock.
const NEXT: &str = "touch writes; a=$(wc -c < writes); sleep 0.5; b=$(wc -c < writes)
    echo $((b - a)) > written";

/// Pseudorandom numbers, the same in each run.
struct Numbers(u64);

impl Numbers {
    fn below(&mut self, end: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        usize::try_from(self.0 >> 33).expect("31 bits") % end
    }

    fn pause(&mut self, ms_max: usize) {
        let ms = u64::try_from(self.below(ms_max)).expect("a small number");
        std::thread::sleep(Duration::from_millis(ms));
    }
}

fn setting(name: &str, usual: u64) -> u64 {
    std::env::var(name).map_or(usual, |value| value.parse().expect("a number"))
}

/// One wrapper, two signals, and the next holder. Returns what was attacked if anything was written
/// under the next holder.
fn round(shell: &Shell, name: &str, numbers: &mut Numbers) -> Option<String> {
    fs::create_dir(shell.file(name)).expect("a folder can be made");
    let file = |file: &str| format!("{name}/{file}");
    let wrapper = shell.lock(&format!("{name} --ttl 2s"), &format!("cd {name}; {WORK}"));
    let early = numbers.below(5) == 0;
    let processes = if early {
        // Whatever exists by now: the command may not have been started yet.
        numbers.pause(60);
        let mut found = descendants(wrapper.id());
        found.push(wrapper.id());
        found
    } else {
        let command = shell.read_pid(&file("command"));
        let (inner, grandchild) = (parent(command), shell.read_pid(&file("grandchild")));
        vec![wrapper.id(), parent(inner), inner, command, grandchild]
    };
    let next = shell.lock(&format!("{name} --ttl 2s"), &format!("cd {name}; {NEXT}"));
    let mut attacked = format!("early: {early}");
    for _ in 0..2 {
        if numbers.below(3) > 0 {
            numbers.pause(if early { 50 } else { 700 });
        }
        let (at, signal) = (numbers.below(processes.len()), SIGNALS[numbers.below(SIGNALS.len())]);
        attacked += &format!(", {signal:?} to {at} of {}", processes.len());
        try_kill(processes[at], signal);
    }
    // A wrapper that lost its lock has noticed by then; one that did not is told to terminate.
    let until = Instant::now() + Duration::from_millis(2_800);
    while !next.has_ended() && Instant::now() < until {
        std::thread::sleep(Duration::from_millis(20));
    }
    if !next.has_ended() {
        shell.touch(&file("stop"));
        for pid in &processes {
            try_kill(*pid, Signal::CONT);
        }
    }
    let printed = next.ended();
    assert_eq!(printed.code, Some(0), "{attacked}: {printed:?}");
    let written = shell.read(&file("written"));
    shell.touch(&file("stop"));
    eventually("an attacked wrapper ends", || {
        try_kill(wrapper.id(), Signal::CONT);
        wrapper.has_ended().then_some(())
    });
    (written != "0\n").then(|| format!("{attacked}: {} bytes", written.trim()))
}

/// Attacks wrappers for a while. Anything written under the next holder is a failure.
pub(crate) fn attack(shell: &Shell) {
    let until = Instant::now() + Duration::from_secs(setting("HOLDFAST_ATTACK_SECONDS", 25));
    let seed = setting("HOLDFAST_ATTACK_SEED", 1);
    let rounds = AtomicUsize::new(0);
    let attack = |thread: u64| {
        let mut numbers = Numbers(seed * AT_ONCE + thread);
        let mut found = Vec::new();
        for at in 0.. {
            if Instant::now() > until {
                break;
            }
            found.extend(round(shell, &format!("attack-{thread}-{at}"), &mut numbers));
            rounds.fetch_add(1, Ordering::Relaxed);
        }
        found
    };
    let found: Vec<String> = std::thread::scope(|scope| {
        let attack = &attack;
        let threads: Vec<_> =
            (0..AT_ONCE).map(|thread| scope.spawn(move || attack(thread))).collect();
        threads.into_iter().flat_map(|thread| thread.join().expect("it does not panic")).collect()
    });
    let rounds = rounds.into_inner();
    measured(&format!("{rounds} pairs of signals to a wrapper, {} violations", found.len()));
    assert!(found.is_empty(), "written under the next holder: {found:#?}");
}
