//! `holdfast play`: a prompt that reads transcript lines and prints what happens.

use holdfast_play::{HELP, Play};
use std::io::{self, BufRead, IsTerminal, Write};

const WELCOME: &str = "\
A lock is a line of numbered tickets; the number being served is the fencing token. Try:
  ana: acquire seat-12A ttl=5s note=\"paid\"
  bo: acquire seat-12A
  tick 5s
`help` lists the verbs, `quit` or Ctrl-D leaves. Nothing is kept: this is one process's memory.
";

/// The longest line accepted: a name, a note and some options fit many times over.
const LINE_BYTES_MAX: u64 = 64 * 1024;

/// Plays lines from stdin until it ends.
pub(crate) fn run() -> io::Result<()> {
    let (mut input, mut output) = (io::stdin().lock(), io::stdout().lock());
    let prompts = io::stdin().is_terminal() && io::stdout().is_terminal();
    match play(&mut input, &mut output, prompts) {
        // The reader has had enough, as in `holdfast play | head`.
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        done => done,
    }
}

fn play(input: &mut impl BufRead, output: &mut impl Write, prompts: bool) -> io::Result<()> {
    let mut play = Play::default();
    if prompts {
        output.write_all(WELCOME.as_bytes())?;
    }
    loop {
        if prompts {
            output.write_all(b"> ")?;
            output.flush()?;
        }
        match read_line(input)? {
            InputLine::End => break,
            InputLine::TooLong => {
                writeln!(output, "error: a line has at most {LINE_BYTES_MAX} bytes")?
            }
            InputLine::Read(line) => match line.trim() {
                "quit" | "exit" => break,
                "help" => output.write_all(HELP.as_bytes())?,
                line => {
                    for told in play.line(line) {
                        writeln!(output, "{told}")?;
                    }
                }
            },
        }
    }
    output.flush()
}

enum InputLine {
    Read(String),
    TooLong,
    End,
}

/// Reads a line of bounded length. The rest of a longer one is skipped.
fn read_line(input: &mut impl BufRead) -> io::Result<InputLine> {
    let mut bytes = Vec::new();
    io::Read::take(&mut *input, LINE_BYTES_MAX).read_until(b'\n', &mut bytes)?;
    if bytes.is_empty() {
        return Ok(InputLine::End);
    }
    if bytes.len() as u64 == LINE_BYTES_MAX && bytes.last() != Some(&b'\n') {
        input.skip_until(b'\n')?;
        return Ok(InputLine::TooLong);
    }
    Ok(InputLine::Read(String::from_utf8_lossy(&bytes).into_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn played(input: &[u8]) -> String {
        let mut output = Vec::new();
        play(&mut &input[..], &mut output, false).unwrap();
        String::from_utf8(output).unwrap()
    }

    #[test]
    fn bad_lines_are_reported_and_skipped() {
        let told = played(b"ana: fly\nana: acquire\xff\n\nana: acquire a\n");
        let lines: Vec<&str> = told.lines().collect();
        assert_eq!(lines[0], "error: there is no verb fly: type help");
        assert!(lines[1].starts_with("error: there is no verb acquire"), "{told}");
        assert_eq!(lines[2], "ana: granted a token=1");
    }

    #[test]
    fn line_length_is_bounded() {
        let mut input = vec![b'x'; 200_000];
        input.extend(b"\nana: acquire a");
        assert_eq!(
            played(&input),
            "error: a line has at most 65536 bytes\nana: granted a token=1\n"
        );
    }

    #[test]
    fn quit_exits_and_help_lists_the_verbs() {
        assert_eq!(played(b"help\nquit\nana: acquire a\n"), HELP);
    }
}
