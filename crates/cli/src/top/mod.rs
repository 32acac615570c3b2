//! `holdfast top`: a live view of the cluster, for a terminal.
//!
//! A thread polls the servers once a second (`poll.rs`); the replies become a `State` (`state.rs`),
//! which is drawn (`view.rs`). Drawing makes no requests.

mod poll;
mod state;
mod view;

use crate::exit::{Exit, Problem};
use crate::server_flags::ServerFlags;
use clap::Args;
use ratatui::crossterm::event::{self, Event, KeyCode, KeyModifiers};
use state::State;
use std::io::IsTerminal;
use std::sync::mpsc;
use std::time::Duration;

/// How long to wait for a key before checking for a new state.
const KEY_TIMEOUT: Duration = Duration::from_millis(100);

/// The busiest lines, the longest waits, recent deaths, and how the nodes are. `q` leaves.
#[derive(Debug, Args)]
#[command(after_help = "\
Example:
  holdfast top --prefix shop/")]
pub(crate) struct Top {
    /// Only locks with this prefix
    #[arg(long, default_value = "")]
    prefix: String,
    #[command(flatten)]
    server: ServerFlags,
}

impl Top {
    pub(crate) fn run(self) -> Result<Exit, Problem> {
        if !std::io::stdout().is_terminal() || !std::io::stdin().is_terminal() {
            return Err(Problem::usage("top needs a terminal")
                .hint("`holdfast ls --json` and `holdfast status --json` are for programs"));
        }
        let http = self.server.http()?;
        // The sender blocks until the previous state has been taken: nothing piles up.
        let (told, news) = mpsc::sync_channel(1);
        std::thread::spawn(move || poll::poll(&http, &self.prefix, &told));
        let mut terminal = ratatui::try_init()?;
        let ended = show(&mut terminal, &news);
        ratatui::restore();
        ended.map(|()| Exit::Success).map_err(Problem::from)
    }
}

fn show(
    terminal: &mut ratatui::DefaultTerminal,
    news: &mpsc::Receiver<State>,
) -> std::io::Result<()> {
    let mut state = State::default();
    loop {
        terminal.draw(|frame| view::view(frame, &state))?;
        // Any key, or a resize, makes it redraw.
        if event::poll(KEY_TIMEOUT)?
            && let Event::Key(key) = event::read()?
        {
            let interrupt =
                key.code == KeyCode::Char('c') && key.modifiers.contains(KeyModifiers::CONTROL);
            if interrupt || matches!(key.code, KeyCode::Char('q') | KeyCode::Esc) {
                return Ok(());
            }
        }
        if let Ok(newer) = news.try_recv() {
            state = newer;
        }
    }
}
