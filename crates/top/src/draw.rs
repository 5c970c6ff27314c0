// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The screen of a [`View`], and of nothing else: the same view, the same screen.

use ratatui::layout::{Alignment, Constraint, Layout, Rect};
use ratatui::style::{Color, Modifier, Style, Stylize};
use ratatui::symbols::Marker;
use ratatui::text::{Line, Span};
use ratatui::widgets::{
    Axis, Block, Borders, Chart, Clear, Dataset, GraphType, Paragraph, Row as Cells, Table,
    TableState, Wrap,
};
use ratatui::Frame;

use super::history::Point;
use super::table::{Column, Pane, Row};
use super::view::View;
use paceline_terminal::{age, foreign};

/// Columns of text beyond the first are shown where this many characters are left for them.
const ROOM_FOR_WORDS: u16 = 40;
/// Lines below a table, for details of the chosen row.
const DETAIL_LINES: u16 = 6;
/// The same of a job, whose policy has a dozen keys.
const JOB_LINES: u16 = 12;
/// Lines that a table has at least, with its titles: in a low terminal words are cut.
const TABLE_LINES: u16 = 6;
/// The two first lines and the last one.
const OTHER_LINES: u16 = 3;
/// Groups that are listed above the charts; the others are scrolled to.
const GROUP_LINES: usize = 6;
const LEAST: Color = Color::Cyan;
const MOST: Color = Color::Yellow;
const TOTAL: Color = Color::Green;

const HELP: [&str; 13] = [
    "q, Esc, Ctrl-C    quit",
    "j, c, g, Tab      jobs, connections, groups",
    "s                 sort by the next column",
    "Up, Down, PageUp, PageDown, Home, End",
    "                  select a row",
    "",
    "RETR     segments retransmitted by the open connections",
    "INFL     in flight, segments; CWND: the base algorithm's cwnd",
    "WIND     effective cwnd: differs from CWND under a bound",
    "BIT/S    rate acknowledged by the peer since the last refresh",
    "LEAST, MOST, TOTAL    in flight of a group's streams, segments",
    "SLOWEST, FASTEST      acknowledged bytes of one stream so far",
    "RATIO    FASTEST to SLOWEST: 1 if all streams are equal",
];

/// Title, keys of the panes, lines of the gateway, the pane's table, what is below it, and the
/// last line.
struct Areas {
    title: Rect,
    panes: Rect,
    gateway: Rect,
    table: Rect,
    below: Rect,
    last: Rect,
}

impl Areas {
    fn of(area: Rect, pane: Pane, rows: usize, gateway: u16) -> Self {
        let groups = rows.clamp(1, GROUP_LINES) as u16;
        let body = match pane {
            // With the line of titles.
            Pane::Groups => [Constraint::Length(groups + 1), Constraint::Fill(1)],
            Pane::Jobs => {
                let room = area
                    .height
                    .saturating_sub(OTHER_LINES + gateway + TABLE_LINES);
                [Constraint::Fill(1), Constraint::Length(JOB_LINES.min(room))]
            }
            Pane::Connections => [Constraint::Fill(1), Constraint::Length(DETAIL_LINES)],
        };
        let one = Constraint::Length(1);
        let gateway = Constraint::Length(gateway);
        let [title, panes, gateway, table, below, last] =
            Layout::vertical([one, one, gateway, body[0], body[1], one]).areas(area);
        Self {
            title,
            panes,
            gateway,
            table,
            below,
            last,
        }
    }
}

/// Draws it, and returns how many rows the table shows at once.
pub fn draw(frame: &mut Frame, view: &View) -> usize {
    let (rows, chosen) = view.rows();
    let areas = Areas::of(
        frame.area(),
        view.pane,
        rows.len(),
        view.gateway.lines.len() as u16,
    );
    frame.render_widget(title(view), areas.title);
    frame.render_widget(panes(view.pane), areas.panes);
    frame.render_widget(last_line(view), areas.last);
    let gateway: Vec<Line> = view
        .gateway
        .lines
        .iter()
        .map(|line| line.as_str().into())
        .collect();
    frame.render_widget(Paragraph::new(gateway), areas.gateway);
    let page = usize::from(areas.table.height.saturating_sub(1)).max(1);
    if rows.is_empty() {
        let words = Paragraph::new(nothing(view)).wrap(Wrap { trim: true });
        frame.render_widget(words, areas.table);
    } else {
        table(frame, areas.table, view, &rows, chosen, page);
        match view.pane {
            Pane::Groups => charts(frame, areas.below, view, &rows[chosen]),
            _ => details(frame, areas.below, &rows[chosen]),
        }
    }
    if view.help {
        help(frame);
    }
    page
}

fn title(view: &View) -> Paragraph<'static> {
    let seen = &view.seen;
    let groups = seen.groups.values();
    let text = format!(
        " paceline top    jobs {}   connections {}   groups {}    every {}, for {}",
        seen.jobs.len(),
        seen.connections().count(),
        groups.filter(|group| group.at == seen.at).count(),
        view.interval,
        age(seen.at.as_secs()),
    );
    Paragraph::new(text).reversed()
}

fn panes(shown: Pane) -> Paragraph<'static> {
    let mut spans = Vec::new();
    for (pane, name) in Pane::ALL
        .into_iter()
        .zip(["j jobs", "c connections", "g groups"])
    {
        let name = format!(" {name} ");
        spans.push(match pane == shown {
            true => Span::from(name).bold().underlined(),
            false => Span::from(name),
        });
    }
    Paragraph::new(Line::from(spans))
}

fn last_line(view: &View) -> Paragraph<'static> {
    match &view.problem {
        Some(problem) => {
            let words = format!(
                " no data since {}: {}",
                age(view.seen.at.as_secs()),
                foreign(problem)
            );
            Paragraph::new(words).fg(Color::Red).bold()
        }
        None => {
            let sort = view.pane.columns()[view.sort()].title.to_lowercase();
            let words = format!(" q quit, s sort: by {sort}, arrows select, Tab next view, ? help");
            Paragraph::new(words).dim()
        }
    }
}

/// Why there are no rows.
fn nothing(view: &View) -> &'static str {
    match view.pane {
        _ if view.seen.jobs.is_empty() => {
            "No job runs: paceline run or paceline attach starts one."
        }
        Pane::Groups => "No connection is in a group: paceline run --group NAME makes one.",
        _ => "The jobs have no connections.",
    }
}

fn table(frame: &mut Frame, area: Rect, view: &View, rows: &[Row], chosen: usize, page: usize) {
    let columns = view.pane.columns();
    let taken: u16 = columns.iter().map(|column| column.width + 1).sum();
    let has_words = area.width >= taken + 2 * ROOM_FOR_WORDS;
    let shown: Vec<(usize, &Column)> = columns
        .iter()
        .enumerate()
        .filter(|(at, column)| *at == 0 || column.width != 0 || has_words)
        .collect();
    let line = |column: &Column, text: &str| {
        let text = Line::from(text.to_owned());
        // Words of a given width are names, the rest are numbers.
        match column.width == 0 || matches!(column.title, "POLICY" | "CONTROL") {
            true => text,
            false => text.alignment(Alignment::Right),
        }
    };
    let titles = shown.iter().map(|(at, column)| {
        let title = line(column, column.title);
        match *at == view.sort() {
            true => title.bold().underlined(),
            false => title.bold(),
        }
    });
    // The chosen row is in the middle, as far as there are rows beyond it.
    let first = chosen
        .saturating_sub(page / 2)
        .min(rows.len().saturating_sub(page));
    let cells = rows.iter().map(|row| {
        let cells = shown.iter();
        Cells::new(cells.map(|(at, column)| line(column, &row.cells[*at].text)))
    });
    let widths = shown.iter().map(|(at, column)| match (column.width, *at) {
        (0, 0) => Constraint::Fill(2),
        (0, _) => Constraint::Fill(3),
        (width, _) => Constraint::Length(width),
    });
    let table = Table::new(cells, widths)
        .header(Cells::new(titles))
        .row_highlight_style(Modifier::REVERSED);
    let mut state = TableState::new()
        .with_offset(first)
        .with_selected(Some(chosen));
    frame.render_stateful_widget(table, area, &mut state);
}

fn details(frame: &mut Frame, area: Rect, row: &Row) {
    let lines: Vec<Line> = row
        .details
        .iter()
        .map(|line| Line::from(line.clone()))
        .collect();
    let words = Paragraph::new(lines)
        .wrap(Wrap { trim: true })
        .block(Block::new().borders(Borders::TOP));
    frame.render_widget(words, area);
}

/// The spread of a group's streams over time, and below it their total inflight.
fn charts(frame: &mut Frame, area: Rect, view: &View, row: &Row) {
    let Some(group) = row.group(&view.seen) else {
        return;
    };
    let [spread, total] = Layout::vertical([Constraint::Fill(3), Constraint::Fill(2)]).areas(area);
    let points = group.history.points();
    let line = |value: fn(&Point) -> f64| -> Vec<(f64, f64)> {
        points
            .iter()
            .map(|point| (point.at_s, value(point)))
            .collect()
    };
    let least = line(|point| point.least_segs.into());
    let most = line(|point| point.most_segs.into());
    let together = line(|point| point.total_segs as f64);
    let mut words: Vec<Span> = row.details.iter().map(Span::from).collect();
    words.extend([
        Span::from(", in flight, segments: "),
        Span::from("least").fg(LEAST).bold(),
        Span::from(" and "),
        Span::from("most ").fg(MOST).bold(),
    ]);
    let since = points.first().map_or(0.0, |point| point.at_s);
    let times = [since, view.seen.at.as_secs_f64()];
    let lines = [(&most, MOST), (&least, LEAST)];
    frame.render_widget(chart(Line::from(words), &lines, times), spread);
    let words = Line::from(Span::from("total ").fg(TOTAL).bold());
    frame.render_widget(chart(words, &[(&together, TOTAL)], times), total);
}

fn chart<'a>(
    title: Line<'a>,
    lines: &[(&'a Vec<(f64, f64)>, Color)],
    times: [f64; 2],
) -> Chart<'a> {
    let values = lines.iter().flat_map(|(line, _)| line.iter());
    let top = values.fold(1.0, |top: f64, (_, value)| top.max(*value));
    let sets = lines.iter().map(|(line, color)| {
        Dataset::default()
            .data(line)
            .marker(Marker::Braille)
            .graph_type(GraphType::Line)
            .style(Style::new().fg(*color))
    });
    let end = times[1].max(times[0] + 1.0);
    // Of one width, so that charts above each other have the same times above each other.
    let label = |value: f64| format!("{value:>7.0}");
    Chart::new(sets.collect())
        .block(Block::new().borders(Borders::TOP).title(title))
        .x_axis(
            Axis::default()
                .bounds([times[0], end])
                .labels(times.map(|time| age(time as u64))),
        )
        .y_axis(
            Axis::default()
                .bounds([0.0, top])
                .labels([label(0.0), label(top)]),
        )
        .legend_position(None)
}

fn help(frame: &mut Frame) {
    let area = frame.area();
    let lines = HELP.len() as u16 + 2;
    let columns = HELP.iter().map(|line| line.len()).max().unwrap_or(0) as u16 + 4;
    let area = area.centered(
        Constraint::Length(columns.min(area.width)),
        Constraint::Length(lines.min(area.height)),
    );
    let words = HELP.map(|line| Line::from(format!(" {line}")));
    let block = Block::bordered().title(" paceline top: any key returns ");
    frame.render_widget(Clear, area);
    frame.render_widget(Paragraph::new(words.to_vec()).block(block), area);
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use crossterm::event::{KeyCode, KeyEvent, KeyModifiers};
    use paceline_input::units::Time;
    use ratatui::backend::TestBackend;
    use ratatui::Terminal;

    use super::super::seen::tests as example;
    use super::*;

    /// Ten looks at a job of `connections` connections and its group.
    fn view(connections: u8) -> View {
        let mut view = View::new(Time::from_micros(1_000_000));
        for look in 0..10u32 {
            let bytes = u64::from(look) * 1_000_000;
            let all = (1..=connections).map(|number| example::connection(number, bytes));
            let most = 20 + look;
            let group = example::group("bulk", (5, most, u64::from(3 * most)));
            let status = example::status(vec![example::job(all.collect())], vec![group]);
            view.seen.add(Duration::from_secs(look.into()), status);
        }
        view
    }

    fn empty() -> View {
        let mut view = View::new(Time::from_micros(250_000));
        let nothing = example::status(Vec::new(), Vec::new());
        view.seen.add(Duration::ZERO, nothing);
        view
    }

    fn screen(view: &View, width: u16, height: u16) -> Vec<String> {
        let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
        let draw = |frame: &mut Frame| assert!(draw(frame, view) >= 1);
        terminal.draw(draw).unwrap();
        let buffer = terminal.backend().buffer().clone();
        buffer
            .content
            .chunks(width.into())
            .map(|line| line.iter().map(|cell| cell.symbol()).collect())
            .collect()
    }

    #[test]
    fn a_gateway_has_its_lines_above_the_table() {
        let mut view = view(2);
        let without = screen(&view, 160, 24);
        let peers = [("far", Some((1, "tcp"))), ("gone", None)];
        let status = super::super::gateway::tests::status(&peers);
        view.gateway.see(Duration::from_secs(10), Some(status));
        let with = screen(&view, 160, 24);
        assert!(
            with[2].starts_with(" gateway near  far: 3 connections by TCP"),
            "{with:?}"
        );
        assert!(
            with[3].starts_with(" gateway near  gone: not connected"),
            "{with:?}"
        );
        assert_eq!(
            (&with[4], &with[5]),
            (&without[2], &without[3]),
            "the table"
        );
        assert_eq!(with.last(), without.last());
    }

    fn press(view: &mut View, code: KeyCode) {
        view.press(KeyEvent::new(code, KeyModifiers::NONE));
    }

    fn line<'a>(screen: &'a [String], part: &str) -> &'a str {
        let mut lines = screen.iter().filter(|line| line.contains(part));
        lines
            .next()
            .unwrap_or_else(|| panic!("no {part}:\n{}", screen.join("\n")))
    }

    #[test]
    fn eighty_columns_hold_a_connection_and_why_it_is_as_it_is() {
        let screen = screen(&view(3), 80, 24);
        let words = |line: &str| {
            let words = line.split_whitespace().map(str::to_owned);
            words.collect::<Vec<_>>().join(" ")
        };
        assert!(
            screen[0].contains("jobs 1   connections 3   groups 1"),
            "{screen:?}"
        );
        assert_eq!(
            words(line(&screen, "PEER")),
            "PEER CONTROL INFL CWND WIND SRTT MS BIT/S RETR"
        );
        assert_eq!(
            words(line(&screen, "10.0.0.2:5001")),
            "10.0.0.2:5001 paceline_cubic 12 40 40 40.2 8.0M 2"
        );
        line(
            &screen,
            "10.0.0.1:40000 to 10.0.0.1:5001, established, policy lfn",
        );
        line(&screen, "3 paced starts, the last at 20.0 Mbit/s");
        line(&screen, "by bit/s");
    }

    #[test]
    fn a_wide_screen_shows_the_reason_for_each() {
        let screen = screen(&view(3), 160, 24);
        let lines = screen.iter().filter(|line| line.contains("3 paced starts"));
        assert_eq!(lines.count(), 3 + 1);
    }

    #[test]
    fn the_chosen_row_is_always_on_the_screen() {
        let mut view = view(200);
        for (code, peer) in [
            (KeyCode::End, "10.0.0.200:5001 "),
            (KeyCode::Up, "10.0.0.199:5001 "),
            (KeyCode::Home, "10.0.0.1:5001 "),
        ] {
            press(&mut view, code);
            line(&screen(&view, 80, 24), peer);
        }
    }

    #[test]
    fn a_job_shows_its_policy_and_the_changes_of_it() {
        let mut view = view(2);
        press(&mut view, KeyCode::Char('j'));
        let screen = screen(&view, 80, 24);
        assert!(line(&screen, "lfn").contains("bulk"));
        line(&screen, "/sys/fs/cgroup/user/paceline.99.0");
        line(&screen, "changes to each connection: minimum RTO 8 ms");
        line(&screen, "connections that still have an earlier policy: 2");
        line(&screen, "set 1 min ago: ack.delay=12ms");
        line(&screen, "preset 1 min ago: base=cubic, rto.least=tick");
        line(&screen, "5 connections under the policy so far, 0 refused");
    }

    #[test]
    fn a_low_screen_still_has_the_jobs() {
        let mut view = view(2);
        press(&mut view, KeyCode::Char('j'));
        for height in [12, 16] {
            let screen = screen(&view, 80, height);
            assert!(line(&screen, "lfn").contains("bulk"));
        }
    }

    #[test]
    fn a_group_has_its_spread_over_time() {
        let mut view = view(3);
        press(&mut view, KeyCode::Char('g'));
        let screen = screen(&view, 80, 24);
        let group = line(&screen, "2.50");
        for part in ["bulk", "87", "2.0MB", "5.0MB"] {
            assert!(group.contains(part), "{group}");
        }
        line(
            &screen,
            "bulk: 1 of 3 bounded, in flight, segments: least and most",
        );
        line(&screen, "29│");
        line(&screen, "87│");
        let drawn = |line: &&String| line.chars().any(|c| ('\u{2801}'..='\u{28ff}').contains(&c));
        assert!(screen.iter().filter(drawn).count() >= 6, "{screen:#?}");
        assert!(screen[22].contains("9 s"), "{screen:#?}");
    }

    #[test]
    fn a_screen_shows_that_there_are_no_jobs_or_that_a_look_failed() {
        let mut view = empty();
        line(&screen(&view, 80, 24), "No job runs:");
        view.problem = Some("the kernel refused".to_owned());
        line(&screen(&view, 80, 24), "the kernel refused");
    }

    #[test]
    fn every_pane_fits_every_screen() {
        for mut view in [view(3), view(0), empty()] {
            for code in ['j', 'c', 'g', '?'] {
                press(&mut view, KeyCode::Char(code));
                for (width, height) in [(1, 1), (3, 2), (20, 5), (80, 24), (500, 200)] {
                    screen(&view, width, height);
                }
            }
        }
        let mut view = view(3);
        press(&mut view, KeyCode::Char('?'));
        line(&screen(&view, 80, 24), "any key returns");
    }
}
