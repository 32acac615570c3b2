//! Draws the state, in one column on narrow terminals and in two on wide ones.

use super::state::State;
use crate::commands::status::Member;
use crate::duration;
use crate::table::{clean, cut};
use crate::wall;
use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Color, Modifier, Style};
use ratatui::text::{Line, Span};
use ratatui::widgets::{Block, Borders, Cell, Paragraph, Row, Table};

/// From this width on there is room for two columns.
const WIDE: u16 = 120;

const GOOD: Style = Style::new().fg(Color::Green);
const WARN: Style = Style::new().fg(Color::Yellow);
const BAD: Style = Style::new().fg(Color::Red);
const DIM: Style = Style::new().add_modifier(Modifier::DIM);
const BOLD: Style = Style::new().add_modifier(Modifier::BOLD);

pub(super) fn view(frame: &mut Frame, state: &State) {
    let nodes = u16::try_from(state.nodes.len()).unwrap_or(9).clamp(1, 9) + 2;
    let [head, body, foot] =
        Layout::vertical([Constraint::Length(2), Constraint::Fill(1), Constraint::Length(1)])
            .areas(frame.area());
    draw_head(frame, head, state);
    draw_foot(frame, foot, state);
    let (lines, waits, deaths, cluster) = if frame.area().width >= WIDE {
        let [left, right] =
            Layout::horizontal([Constraint::Fill(1), Constraint::Fill(1)]).spacing(2).areas(body);
        let [lines, deaths] =
            Layout::vertical([Constraint::Fill(2), Constraint::Fill(1)]).areas(left);
        let [cluster, waits] =
            Layout::vertical([Constraint::Length(nodes), Constraint::Fill(1)]).areas(right);
        (lines, waits, deaths, cluster)
    } else {
        let parts = [
            Constraint::Length(nodes),
            Constraint::Fill(2),
            Constraint::Fill(2),
            Constraint::Fill(1),
        ];
        let [cluster, lines, waits, deaths] = Layout::vertical(parts).areas(body);
        (lines, waits, deaths, cluster)
    };
    draw_cluster(frame, cluster, state);
    draw_lines(frame, lines, state);
    draw_waits(frame, waits, state);
    draw_deaths(frame, deaths, state);
}

fn draw_head(frame: &mut Frame, area: Rect, state: &State) {
    let leader = match state.leader {
        Some(id) => Span::styled(format!("leader {id}"), GOOD),
        None => Span::styled("no leader", BAD),
    };
    let answering = state.nodes.iter().filter(|node| node.answers).count();
    let all = state.nodes.len();
    let nodes_style = if answering < all { WARN } else { Style::new() };
    let rate =
        state.grants_per_second.map_or(String::new(), |rate| format!(", {rate:.0} grants/s"));
    let first = Line::from(vec![
        Span::styled("Holdfast  ", BOLD),
        leader,
        Span::raw(format!(", term {}  ", state.term)),
        Span::styled(format!("{answering} of {all} nodes answer"), nodes_style),
    ]);
    let second = Line::from(format!(
        "{} locks, {} held, {} waits, {} sessions{rate}",
        state.locks, state.holders, state.waiters, state.sessions
    ));
    frame.render_widget(Paragraph::new(vec![first, second]), area);
}

fn draw_foot(frame: &mut Frame, area: Rect, state: &State) {
    let line = match (&state.trouble, state.wall_ms) {
        (Some(trouble), _) => {
            let said = format!("trying again: {}", clean(trouble));
            Line::styled(cut(&said, usize::from(area.width)), BAD)
        }
        (None, 0) => Line::styled("asking...", DIM),
        (None, ms) => {
            let more =
                if state.more { "; there are more locks than are shown: use --prefix" } else { "" };
            Line::styled(format!("{} UTC  q quits{more}", wall::time(ms)), DIM)
        }
    };
    frame.render_widget(Paragraph::new(line), area);
}

/// A table with a title and a header row.
fn draw(
    frame: &mut Frame,
    area: Rect,
    title: &'static str,
    head: &[&'static str],
    rows: Vec<Row<'_>>,
    widths: &[Constraint],
) {
    let block =
        Block::new().borders(Borders::TOP).title(Span::styled(title, BOLD)).border_style(DIM);
    let head = Row::new(head.iter().map(|name| Cell::from(*name))).style(DIM);
    let table = Table::new(rows, widths).header(head).column_spacing(2).block(block);
    frame.render_widget(table, area);
}

/// Other people's text, escaped, and cut to `width` if it does not fit.
fn fit(text: &str, width: u16) -> String {
    cut(&clean(text), usize::from(width))
}

fn right(text: impl ToString, width: u16) -> String {
    format!("{:>width$}", text.to_string(), width = usize::from(width))
}

fn draw_cluster(frame: &mut Frame, area: Rect, state: &State) {
    let furthest = state.nodes.iter().filter_map(|node| node.applied).max().unwrap_or(0);
    let row = |node: &Member| {
        let style = match (node.answers, node.role.as_str()) {
            (false, _) => BAD,
            (true, "leader") => GOOD,
            (true, "learner") => WARN,
            (true, _) => Style::new(),
        };
        let behind = match (node.applied, node.answers) {
            (_, false) => "no answer".to_owned(),
            (Some(applied), true) => (furthest - applied).to_string(),
            (None, true) => String::new(),
        };
        Row::new([
            right(node.id, 4),
            node.role.clone(),
            fit(node.http.as_deref().unwrap_or("-"), 28),
            right(node.applied.map_or("-".to_owned(), |applied| applied.to_string()), 10),
            right(behind, 9),
        ])
        .style(style)
    };
    let rows = state.nodes.iter().map(row).collect();
    let widths = [4, 8, 28, 10, 9].map(Constraint::Length);
    draw(
        frame,
        area,
        "Nodes ",
        &["NODE", "ROLE", "HTTP", "   APPLIED", "   BEHIND"],
        rows,
        &widths,
    );
}

fn draw_lines(frame: &mut Frame, area: Rect, state: &State) {
    // What the numbers and gaps leave.
    let left = area.width.saturating_sub(7 + 10 + 7 + 4 * 2);
    let (name, who) = (left - left / 2, left / 2);
    let rows = state.lines.iter().map(|line| {
        let style = if line.waiting > 0 { WARN } else { Style::new() };
        Row::new([
            Cell::from(right(line.waiting, 7)).style(style),
            Cell::from(fit(&line.name, name)),
            Cell::from(right(line.token.map_or("-".to_owned(), |token| token.to_string()), 10)),
            Cell::from(fit(&line.holder, who)),
            Cell::from(right(duration::show(line.held_ms), 7)),
        ])
    });
    let widths = [7, name, 10, who, 7].map(Constraint::Length);
    let head = ["WAITING", "NAME", "     TOKEN", "HOLDER", "   HELD"];
    draw(frame, area, "Busiest lines ", &head, rows.collect(), &widths);
}

fn draw_waits(frame: &mut Frame, area: Rect, state: &State) {
    let left = area.width.saturating_sub(7 + 5 + 3 * 2);
    let (name, who) = (left - left / 2, left / 2);
    let rows = state.waits.iter().map(|wait| {
        Row::new([
            right(duration::show(wait.waited_ms), 7),
            fit(&wait.name, name),
            right(wait.place, 5),
            fit(&wait.who, who),
        ])
    });
    let widths = [7, name, 5, who].map(Constraint::Length);
    let head = [" WAITED", "NAME", "PLACE", "WHO"];
    draw(frame, area, "Longest waits ", &head, rows.collect(), &widths);
}

fn draw_deaths(frame: &mut Frame, area: Rect, state: &State) {
    let left = area.width.saturating_sub(10 + 8 + 4 * 2);
    let third = left / 3;
    let name = left - 2 * third;
    let rows = state.deaths.iter().map(|death| {
        Row::new([
            Cell::from(right(death.token, 10)),
            Cell::from(fit(&death.how, 8)).style(BAD),
            Cell::from(fit(&death.name, name)),
            Cell::from(fit(&death.who, third)),
            Cell::from(fit(&death.note, third)),
        ])
    });
    let widths = [10, 8, name, third, third].map(Constraint::Length);
    let head = ["     TOKEN", "HOW", "NAME", "WHO", "NOTE"];
    draw(frame, area, "Recent deaths ", &head, rows.collect(), &widths);
}

#[cfg(test)]
mod tests {
    use super::super::state::State;
    use super::*;
    use crate::commands::status::Cluster;
    use ratatui::Terminal;
    use ratatui::backend::TestBackend;
    use serde_json::json;

    fn state() -> State {
        let node = |id, role: &str, answers| Member {
            id,
            role: role.to_owned(),
            http: Some(format!("http://10.0.0.{id}:7400")),
            peer: String::new(),
            applied: Some(100 - id),
            answers,
            disk_full: false,
        };
        let best = json!({ "term": 7, "locks": 2, "holders": 2, "waiters": 3, "sessions": 4 });
        let nodes = vec![node(1, "leader", true), node(2, "follower", false)];
        let cluster = Cluster { leader: Some(1), nodes, best };
        let ticket = |token: u64, label: &str, for_ms: u64| json!({ "token": token, "label": label, "for_ms": for_ms });
        let locks = [
            json!({ "name": "quiet", "holders": [ticket(5, "ana", 1_000)], "waiting": 0, "waiters": [],
                "needs_recovery": { "token": 3, "how": "expired", "label": "old", "note": "page 3" } }),
            json!({ "name": "busy", "holders": [ticket(6, "bo", 9_000)], "waiting": 3,
                "waiters": [ticket(7, "cy", 2_000), ticket(8, "di\x1b[2J", 5_000)] }),
        ];
        State { wall_ms: 1_000, ..State::of(&cluster, &locks) }
    }

    fn drawn(state: &State, width: u16, height: u16) -> Vec<String> {
        let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
        terminal.draw(|frame| view(frame, state)).unwrap();
        let buffer = terminal.backend().buffer().clone();
        let row = |y| (0..width).map(|x| buffer[(x, y)].symbol()).collect::<String>();
        (0..height).map(|y| row(y).trim_end().to_owned()).collect()
    }

    fn at(screen: &[String], what: &str) -> usize {
        let found = screen.iter().position(|line| line.contains(what));
        found.unwrap_or_else(|| panic!("{what} is not on the screen:\n{}", screen.join("\n")))
    }

    #[test]
    fn narrow_terminals_show_one_column_longest_first() {
        let screen = drawn(&state(), 80, 24);
        assert!(
            screen[0].contains("leader 1, term 7") && screen[0].contains("1 of 2 nodes answer")
        );
        assert!(at(&screen, "no answer") < at(&screen, "Busiest lines"));
        let lines = at(&screen, "Busiest lines");
        assert!(screen[lines + 2].contains("busy") && screen[lines + 3].contains("quiet"));
        let waits = at(&screen, "Longest waits");
        assert!(screen[waits + 2].contains("5.0s") && screen[waits + 3].contains("2.0s"));
        assert!(at(&screen, "page 3") > at(&screen, "Recent deaths"));
    }

    #[test]
    fn wide_terminals_show_two_columns() {
        let screen = drawn(&state(), 160, 40);
        let both = &screen[at(&screen, "Busiest lines")];
        assert!(both.contains("Nodes"), "{both}");
    }

    #[test]
    fn drawing_stays_inside_the_terminal() {
        for (width, height) in [(1, 1), (20, 5), (79, 12), (120, 10), (300, 100)] {
            drawn(&state(), width, height);
            drawn(&State::default(), width, height);
        }
    }

    #[test]
    fn control_characters_in_names_are_escaped() {
        let screen = drawn(&state(), 160, 40).join("\n");
        assert!(screen.contains("di\\u{1b}[2J"), "{screen}");
    }

    #[test]
    fn errors_are_shown_beside_the_last_known_state() {
        let trouble = Some("no server answers at http://a".to_owned());
        let screen = drawn(&State { trouble, ..state() }, 80, 24);
        assert!(screen[23].contains("no server answers") && screen[23].contains("trying again"));
        at(&screen, "busy");
    }
}
