//! The figures as tables, compared to each other, and as JSON.

use crate::stats::median;
use crate::table::{layout, plain, times};
use serde_json::{Map, Value, json};
use std::fmt::Write;

/// Whether a higher or a lower figure is better.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Better {
    Higher,
    Lower,
}

/// One measured quantity.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Figure {
    /// Includes the unit.
    name: &'static str,
    better: Better,
    /// The value from each round.
    rounds: Vec<f64>,
}

impl Figure {
    pub(crate) fn new(name: &'static str, better: Better, value: f64) -> Self {
        Self { name, better, rounds: vec![value] }
    }

    fn value(&self) -> f64 {
        median(&self.rounds).unwrap_or(0.0)
    }
}

/// The figures of one measurement of one setup.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Row {
    measure: &'static str,
    setup: String,
    /// The number of clients, kills or locks.
    with: String,
    figures: Vec<Figure>,
}

impl Row {
    pub(crate) fn new(
        measure: &'static str,
        setup: &str,
        with: String,
        figures: Vec<Figure>,
    ) -> Self {
        Self { measure, setup: setup.to_owned(), with, figures }
    }

    fn value(&self, name: &str) -> Option<f64> {
        self.figures.iter().find(|figure| figure.name == name).map(Figure::value)
    }

    fn is_again(&self, other: &Self) -> bool {
        (self.measure, &self.setup, &self.with) == (other.measure, &other.setup, &other.with)
    }

    /// Adds another round of the same measurement.
    fn add_round(&mut self, round: Self) {
        for figure in round.figures {
            match self.figures.iter_mut().find(|known| known.name == figure.name) {
                Some(known) => known.rounds.extend(figure.rounds),
                None => self.figures.push(figure),
            }
        }
    }

    fn is_holdfast(&self) -> bool {
        self.setup.starts_with("holdfast")
    }
}

/// All results of a run.
#[derive(Debug, Default)]
pub(crate) struct Report {
    rows: Vec<Row>,
    failures: Vec<(String, String)>,
}

impl Report {
    pub(crate) fn add(&mut self, rows: Vec<Row>) {
        for row in rows {
            match self.rows.iter_mut().find(|known| known.is_again(&row)) {
                Some(known) => known.add_round(row),
                None => self.rows.push(row),
            }
        }
    }

    /// Records a measurement that failed.
    pub(crate) fn fail(&mut self, what: String, why: String) {
        self.failures.push((what, why));
    }

    pub(crate) fn has_failures(&self) -> bool {
        !self.failures.is_empty()
    }

    pub(crate) fn to_json(&self, machine: Value) -> Value {
        let figures = |row: &Row, show: fn(&Figure) -> Value| {
            let named = row.figures.iter().map(|figure| (figure.name.to_owned(), show(figure)));
            named.collect::<Map<String, Value>>()
        };
        let row = |row: &Row| {
            json!({
                "measure": row.measure,
                "setup": row.setup,
                "with": row.with,
                "figures": figures(row, |figure| json!(figure.value())),
                "rounds": figures(row, |figure| json!(figure.rounds)),
            })
        };
        let ratio = |ratio: &Ratio| {
            json!({
                "measure": ratio.measure,
                "with": ratio.with,
                "holdfast": ratio.holdfast,
                "beside": ratio.beside,
                "ratios": ratio
                    .ratios
                    .iter()
                    .map(|(name, _, value)| ((*name).to_owned(), json!(value)))
                    .collect::<Map<String, Value>>(),
            })
        };
        let failure = |(what, why): &(String, String)| json!({ "what": what, "why": why });
        json!({
            "machine": machine,
            "rows": self.rows.iter().map(row).collect::<Vec<Value>>(),
            "ratios": self.ratios().iter().map(ratio).collect::<Vec<Value>>(),
            "failures": self.failures.iter().map(failure).collect::<Vec<Value>>(),
        })
    }

    /// Markdown tables, to paste into a document.
    pub(crate) fn to_text(&self, machine: &str) -> String {
        let mut text = format!("{machine}\n");
        for measure in self.measures() {
            let _ = write!(text, "\n{measure}\n\n{}", self.table(measure));
            if let Some(table) = self.ratio_table(measure) {
                let _ = write!(text, "\nHoldfast's figure divided by the other's\n\n{table}");
            }
        }
        for (what, why) in &self.failures {
            let _ = writeln!(text, "\nfailed: {what}: {why}");
        }
        text
    }

    fn measures(&self) -> Vec<&'static str> {
        let mut measures = Vec::new();
        for row in &self.rows {
            if !measures.contains(&row.measure) {
                measures.push(row.measure);
            }
        }
        measures
    }

    fn table(&self, measure: &str) -> String {
        let rows: Vec<&Row> = self.rows.iter().filter(|row| row.measure == measure).collect();
        let mut names = Vec::new();
        for figure in rows.iter().flat_map(|row| &row.figures) {
            if !names.contains(&figure.name) {
                names.push(figure.name);
            }
        }
        let line = |row: &Row| {
            let values = names.iter().map(|name| row.value(name).map_or("-".to_owned(), plain));
            [row.setup.clone(), row.with.clone()].into_iter().chain(values).collect()
        };
        let names = names.iter().map(|name| (*name).to_owned());
        let mut lines =
            vec![["servers", "with"].map(str::to_owned).into_iter().chain(names).collect()];
        lines.extend(rows.iter().map(|row| line(row)));
        layout(&lines, 2)
    }

    /// `None` if there is nothing to compare.
    fn ratio_table(&self, measure: &str) -> Option<String> {
        let ratios = self.ratios();
        let ratios: Vec<&Ratio> = ratios.iter().filter(|ratio| ratio.measure == measure).collect();
        let names = ratios.first()?.ratios.iter().map(|(name, better, _)| match better {
            Better::Higher => format!("{name}, more is better"),
            Better::Lower => format!("{name}, less is better"),
        });
        let head = ["holdfast", "beside", "with"].map(str::to_owned).into_iter();
        let mut lines = vec![head.chain(names).collect()];
        for ratio in ratios {
            let words = [ratio.holdfast.clone(), ratio.beside.clone(), ratio.with.clone()];
            let values = ratio.ratios.iter();
            let values = values.map(|(_, _, value)| value.map_or("-".to_owned(), times));
            lines.push(words.into_iter().chain(values).collect());
        }
        Some(layout(&lines, 3))
    }

    /// Holdfast's figures compared to everybody else's in the same measurement.
    fn ratios(&self) -> Vec<Ratio> {
        let mut all = Vec::new();
        for other in self.rows.iter().filter(|row| !row.is_holdfast()) {
            let same = |row: &&Row| {
                row.is_holdfast() && row.measure == other.measure && row.with == other.with
            };
            for holdfast in self.rows.iter().filter(same) {
                let ratio = |figure: &Figure| {
                    let beside = other.value(figure.name).filter(|value| *value > 0.0);
                    (figure.name, figure.better, beside.map(|beside| figure.value() / beside))
                };
                all.push(Ratio {
                    measure: holdfast.measure,
                    with: holdfast.with.clone(),
                    holdfast: holdfast.setup.clone(),
                    beside: other.setup.clone(),
                    ratios: holdfast.figures.iter().map(ratio).collect(),
                });
            }
        }
        all
    }
}

#[derive(Debug, PartialEq)]
struct Ratio {
    measure: &'static str,
    with: String,
    holdfast: String,
    beside: String,
    /// `None` where the other's figure is 0 or missing.
    ratios: Vec<(&'static str, Better, Option<f64>)>,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(setup: &str, with: &str, pairs: f64, cpu: f64) -> Row {
        let figures = vec![
            Figure::new("pairs/s", Better::Higher, pairs),
            Figure::new("CPU us", Better::Lower, cpu),
        ];
        Row::new("pairs", setup, with.to_owned(), figures)
    }

    fn report() -> Report {
        let mut report = Report::default();
        report.add(vec![row("holdfast, 3 nodes", "64 clients", 40_000.0, 20.0)]);
        report.add(vec![row("holdfast, 3 nodes", "1 client", 1_000.0, 50.0)]);
        report.add(vec![row("etcd, 3 nodes", "64 clients", 4_000.0, 400.0)]);
        report
    }

    #[test]
    fn only_equal_measurements_are_compared() {
        let ratios = report().ratios();
        let [only] = ratios.as_slice() else { panic!("one ratio: {ratios:?}") };
        assert_eq!(
            (only.holdfast.as_str(), only.beside.as_str()),
            ("holdfast, 3 nodes", "etcd, 3 nodes")
        );
        assert_eq!(only.with, "64 clients");
        assert_eq!(
            only.ratios,
            [("pairs/s", Better::Higher, Some(10.0)), ("CPU us", Better::Lower, Some(0.05))]
        );
    }

    #[test]
    fn zero_figures_have_no_ratio() {
        let mut report = report();
        report.add(vec![row("zookeeper, 3 nodes", "64 clients", 5_000.0, 0.0)]);
        let ratios = report.ratios();
        let zookeeper = ratios.iter().find(|ratio| ratio.beside.starts_with("zookeeper"));
        let cpu = zookeeper.and_then(|ratio| ratio.ratios.last());
        assert_eq!(cpu, Some(&("CPU us", Better::Lower, None)));
    }

    #[test]
    fn table_is_valid_markdown() {
        let table = report().table("pairs");
        let expected = "\
| servers           | with       | pairs/s | CPU us |
| ----------------- | ---------- | ------: | -----: |
| holdfast, 3 nodes | 64 clients |   40000 |   20.0 |
| holdfast, 3 nodes | 1 client   |    1000 |   50.0 |
| etcd, 3 nodes     | 64 clients |    4000 |    400 |
";
        assert_eq!(table, expected);
    }

    #[test]
    fn ratio_table_says_which_direction_is_better() {
        let table = report().ratio_table("pairs");
        let expected = "\
| holdfast          | beside        | with       | pairs/s, more is better | CPU us, less is better |
| ----------------- | ------------- | ---------- | ----------------------: | ---------------------: |
| holdfast, 3 nodes | etcd, 3 nodes | 64 clients |                   10.0x |                0.0500x |
";
        assert_eq!(table.as_deref(), Some(expected));
        assert_eq!(report().ratio_table("held"), None);
    }

    #[test]
    fn median_of_several_rounds_is_reported() {
        let mut report = report();
        for (pairs, cpu) in [(90_000.0, 5.0), (30_000.0, 25.0)] {
            report.add(vec![row("holdfast, 3 nodes", "64 clients", pairs, cpu)]);
        }
        let json = report.to_json(json!({}));
        assert_eq!(json["rows"].as_array().map(Vec::len), Some(3));
        assert_eq!(json["rows"][0]["figures"], json!({ "pairs/s": 40_000.0, "CPU us": 20.0 }));
        assert_eq!(json["rows"][0]["rounds"]["CPU us"], json!([20.0, 5.0, 25.0]));
        assert_eq!(report.ratios()[0].ratios[0].2, Some(10.0));
    }

    #[test]
    fn failures_are_reported() {
        let mut report = report();
        report.fail("pairs of redis".to_owned(), "redis-server is missing".to_owned());
        assert!(report.has_failures());
        assert!(report.to_text("here").contains("failed: pairs of redis: redis-server is missing"));
        let json = report.to_json(json!({}));
        assert_eq!(json["failures"][0]["why"], "redis-server is missing");
        assert_eq!(json["rows"][0]["figures"]["pairs/s"], 40_000.0);
        assert_eq!(json["ratios"][0]["ratios"]["CPU us"], 0.05);
    }
}
