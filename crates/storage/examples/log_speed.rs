//! How many appends a second the log makes durable, and how long it takes to open a long one.
//!
//! Each append is one entry of 4 KiB, followed by its sync, in three ways: into a file that grows,
//! into allocated space, and into allocated space that is written with zeros ahead, as the log
//! does by default. The ways take turns, because a machine's disk is not equally fast all the
//! time; the table tells the middle round and the best one.
//!
//! `cargo run --release -p holdfast-storage --example log_speed [-- --json] [--folder PATH]`

#![allow(
    clippy::disallowed_types,
    clippy::disallowed_methods,
    clippy::print_stdout,
    reason = "a measuring program needs a clock and files, and prints"
)]

use holdfast_storage::{Disk, Log, LogEntry, Options, RealDisk};
use rustix::fs::{Advice, fadvise};
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// As in the server. Most of opening a log is getting memory for its entries.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// An odd number, so that one is the middle.
const ROUNDS: usize = 5;
const APPENDS: u64 = 600;
const APPEND_BYTES: usize = 4 << 10;

/// What a long log holds.
const LONG_BYTES: usize = 1 << 30;
const BATCH_BYTES: usize = 1 << 20;

/// A disk that never allocates: its files grow with each write.
#[derive(Debug, Clone)]
struct Growing(RealDisk);

impl Disk for Growing {
    type File = File;

    fn list(&self) -> io::Result<Vec<String>> {
        self.0.list()
    }

    fn create(&self, name: &str) -> io::Result<File> {
        self.0.create(name)
    }

    fn open(&self, name: &str) -> io::Result<File> {
        Disk::open(&self.0, name)
    }

    fn size(&self, file: &File) -> io::Result<u64> {
        self.0.size(file)
    }

    fn read_at(&self, file: &File, offset: u64, buffer: &mut [u8]) -> io::Result<()> {
        self.0.read_at(file, offset, buffer)
    }

    fn preallocate(&self, _: &File, _: u64) -> io::Result<()> {
        Ok(())
    }

    fn write_at(&self, file: &File, offset: u64, bytes: &[u8]) -> io::Result<()> {
        self.0.write_at(file, offset, bytes)
    }

    fn sync(&self, file: &File) -> io::Result<()> {
        self.0.sync(file)
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        self.0.rename(from, to)
    }

    fn delete(&self, name: &str) -> io::Result<()> {
        self.0.delete(name)
    }

    fn sync_dir(&self) -> io::Result<()> {
        self.0.sync_dir()
    }

    fn lock(&self) -> io::Result<()> {
        self.0.lock()
    }
}

/// Of a line: for programs, for people.
type Name = (&'static str, &'static str);

/// One line of the table.
struct Row {
    key: &'static str,
    what: &'static str,
    unit: &'static str,
    middle: f64,
    best: f64,
}

fn main() {
    let mut json = false;
    let mut folder = std::env::temp_dir();
    let mut arguments = std::env::args().skip(1);
    while let Some(argument) = arguments.next() {
        match argument.as_str() {
            "--json" => json = true,
            "--folder" => folder = arguments.next().map(PathBuf::from).expect("a path"),
            other => panic!("unknown argument {other}: [--json] [--folder PATH]"),
        }
    }
    let mut rows = append_rows(&folder);
    let warm = ("open_4k_warm", "open 1 GiB in entries of 4 KiB");
    rows.extend(open_rows(&folder, warm, ("open_4k_cold", "... from the disk"), 4 << 10));
    let warm = ("open_256_warm", "open 1 GiB in entries of 256 B");
    rows.extend(open_rows(&folder, warm, ("open_256_cold", "... from the disk"), 256));
    if json { print_json(&rows) } else { print_table(&rows) }
}

fn append_rows(folder: &Path) -> Vec<Row> {
    let mut rates: [Vec<f64>; 3] = Default::default();
    for _ in 0..ROUNDS {
        let no_zeros = Options { zero_ahead_bytes: 0, ..Options::default() };
        let [growing, allocated, zeroed] = &mut rates;
        growing.push(appends_per_second(folder, Growing, &no_zeros));
        allocated.push(appends_per_second(folder, |disk| disk, &no_zeros));
        zeroed.push(appends_per_second(folder, |disk| disk, &Options::default()));
    }
    let names = [
        ("growing", "4 KiB append + sync, growing file"),
        ("allocated", "4 KiB append + sync, allocated"),
        ("zeroed", "4 KiB append + sync, allocated, zeros ahead"),
    ];
    let rows = names.into_iter().zip(rates);
    rows.map(|((key, what), mut rates)| {
        rates.sort_by(f64::total_cmp);
        Row { key, what, unit: "/s", middle: rates[ROUNDS / 2], best: rates[ROUNDS - 1] }
    })
    .collect()
}

fn appends_per_second<D: Disk>(
    folder: &Path,
    wrap: impl Fn(RealDisk) -> D,
    options: &Options,
) -> f64 {
    let folder = tempfile::tempdir_in(folder).expect("a temporary folder");
    let disk = wrap(RealDisk::open(folder.path()).expect("a folder"));
    let (mut log, _) = Log::open(&disk, options.clone()).expect("a new log");
    let bytes = vec![7; APPEND_BYTES];
    let start = Instant::now();
    for index in 1..=APPENDS {
        log.append(&[LogEntry::batch(index, 1, &bytes)], None).expect("an append");
        log.sync().expect("a sync");
    }
    APPENDS as f64 / start.elapsed().as_secs_f64()
}

/// Opening a long log, from the system's memory and from the disk.
fn open_rows(folder: &Path, warm: Name, cold: Name, entry_bytes: usize) -> [Row; 2] {
    let folder = tempfile::tempdir_in(folder).expect("a temporary folder");
    let disk = RealDisk::open(folder.path()).expect("a folder");
    write_long_log(&disk, entry_bytes);
    drop_cache(&disk);
    let first = time_open(&disk);
    let mut times: Vec<f64> = (0..ROUNDS).map(|_| time_open(&disk)).collect();
    times.sort_by(f64::total_cmp);
    let row = |(key, what), middle, best| Row { key, what, unit: "s", middle, best };
    [row(warm, times[ROUNDS / 2], times[0]), row(cold, first, first)]
}

fn write_long_log(disk: &RealDisk, entry_bytes: usize) {
    let (mut log, _) = Log::open(disk, Options::default()).expect("a new log");
    let bytes = vec![7; entry_bytes];
    let mut index = 0;
    for _ in 0..LONG_BYTES / BATCH_BYTES {
        let batch: Vec<LogEntry> = (1..=(BATCH_BYTES / entry_bytes) as u64)
            .map(|place| LogEntry::batch(index + place, 1, &bytes))
            .collect();
        index += batch.len() as u64;
        log.append(&batch, None).expect("an append");
    }
    log.close().expect("a close");
}

fn drop_cache(disk: &RealDisk) {
    for name in disk.list().expect("a list") {
        let file = Disk::open(disk, &name).expect("a file");
        fadvise(&file, 0, None, Advice::DontNeed).expect("advice");
    }
}

fn time_open(disk: &RealDisk) -> f64 {
    let start = Instant::now();
    let (log, recovered) = Log::open(disk, Options::default()).expect("a log");
    let elapsed: Duration = start.elapsed();
    assert_eq!(recovered.last_index(), log.last_index());
    assert!(recovered.cut.is_none());
    elapsed.as_secs_f64()
}

fn print_table(rows: &[Row]) {
    println!("{:46} {:>12} {:>12}", "", "middle", "best");
    for Row { what, unit, middle, best, .. } in rows {
        if *unit == "s" {
            println!("{what:46} {middle:>10.2} s {best:>10.2} s");
        } else {
            println!("{what:46} {middle:>10.0}/s {best:>10.0}/s");
        }
    }
}

fn print_json(rows: &[Row]) {
    let field = |Row { key, unit, middle, best, .. }: &Row| {
        let unit = if *unit == "s" { "s" } else { "per_s" };
        format!("\"{key}_{unit}\":{{\"middle\":{middle:.3},\"best\":{best:.3}}}")
    };
    println!("{{{}}}", rows.iter().map(field).collect::<Vec<_>>().join(","));
}
