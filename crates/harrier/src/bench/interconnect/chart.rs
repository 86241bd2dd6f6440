//! The chart of `bench interconnect` as SVG: for each table throughput on the left and processor time on the right, one line
//! for each configuration, both axes logarithmic.

use std::fmt::Write;

use serde_json::Value;

use super::report::size;
use crate::bench::chart::{COLOURS, MARGIN, all, escape, open, text};

/// Pixels.
const LEGEND_HEIGHT: f64 = 20.0;
const PANEL_WIDTH: f64 = 420.0;
const PANEL_HEIGHT: f64 = 170.0;
const AXIS_WIDTH: f64 = 52.0;
const PANEL_FOOT: f64 = 54.0;

/// What a panel shows: key of a cell, and words.
const FIGURES: [(&str, &str); 2] =
    [("gb_per_s_median", "GB/s"), ("cpu_s_per_gb_median", "processor seconds for each GB")];

/// Draws what `--json` wrote.
///
/// Errors: it is no such result, or has too many configurations.
pub fn svg(result: &Value) -> Result<String, String> {
    let names: Vec<&str> = all(result, "configurations")
        .iter()
        .filter_map(|configuration| configuration["name"].as_str())
        .collect();
    if names.is_empty() || names.len() > COLOURS.len() {
        return Err(format!("a chart shows 1 to {} configurations, not {}", COLOURS.len(), names.len()));
    }
    let tables = all(result, "tables");
    let legend_top = MARGIN + 46.0;
    let panels_top = legend_top + names.len() as f64 * LEGEND_HEIGHT + 30.0;
    let width = 2.0 * (MARGIN + AXIS_WIDTH + PANEL_WIDTH);
    let height = panels_top + tables.len() as f64 * (PANEL_HEIGHT + PANEL_FOOT) + MARGIN;
    let mut out = String::new();
    open(&mut out, width, height);
    let title = result["title"].as_str().unwrap_or("Benchmark");
    text(&mut out, MARGIN, MARGIN + 12.0, "font-size=\"17\" font-weight=\"600\"", title);
    let subtitle = format!(
        "median of {} interleaved runs; {}, {} cores",
        result["runs"],
        result["machine"]["cpu"].as_str().unwrap_or("unknown processor"),
        result["machine"]["cores"]
    );
    text(&mut out, MARGIN, MARGIN + 32.0, "fill=\"#666\"", &subtitle);
    for (index, name) in names.iter().enumerate() {
        let y = legend_top + index as f64 * LEGEND_HEIGHT;
        let _ = writeln!(
            out,
            "<rect x=\"{MARGIN:.1}\" y=\"{:.1}\" width=\"12\" height=\"12\" fill=\"{}\"/>",
            y + 2.0,
            COLOURS[index]
        );
        text(&mut out, MARGIN + 20.0, y + 12.0, "", name);
    }
    for (row, table) in tables.iter().enumerate() {
        let top = panels_top + row as f64 * (PANEL_HEIGHT + PANEL_FOOT);
        for (column, figure) in FIGURES.iter().enumerate() {
            let left = MARGIN + AXIS_WIDTH + column as f64 * (MARGIN + AXIS_WIDTH + PANEL_WIDTH);
            Panel { table, figure, left, top }.draw(&mut out, &names);
        }
    }
    out.push_str("</svg>\n");
    Ok(out)
}

struct Panel<'a> {
    table: &'a Value,
    figure: &'a (&'static str, &'static str),
    left: f64,
    top: f64,
}

impl Panel<'_> {
    fn draw(&self, out: &mut String, names: &[&str]) {
        let (key, words) = self.figure;
        let cases = all(self.table, "cases");
        let value = |case: &Value, index: usize| {
            case["configurations"][index][key].as_f64().filter(|value| *value > 0.0)
        };
        let values =
            || cases.iter().flat_map(|case| (0..names.len()).filter_map(move |index| value(case, index)));
        let lowest = values().fold(f64::INFINITY, f64::min);
        let highest = values().fold(0.0, f64::max);
        let title = format!("{}: {words}", self.table["title"].as_str().unwrap_or_default());
        text(out, self.left, self.top - 8.0, "font-weight=\"600\"", &title);
        if highest == 0.0 {
            return;
        }
        let (bottom_power, top_power) = powers(lowest, highest);
        let bottom = self.top + PANEL_HEIGHT;
        let y =
            |value: f64| bottom - (value.log10() - bottom_power) / (top_power - bottom_power) * PANEL_HEIGHT;
        for power in bottom_power as i32..=top_power as i32 {
            let tick = 10f64.powi(power);
            let _ = writeln!(
                out,
                "<line x1=\"{0:.1}\" y1=\"{1:.1}\" x2=\"{2:.1}\" y2=\"{1:.1}\" stroke=\"#e4e4e4\"/>",
                self.left,
                y(tick),
                self.left + PANEL_WIDTH
            );
            let decimals = (-power).max(0) as usize;
            text(
                out,
                self.left - 6.0,
                y(tick) + 4.0,
                "text-anchor=\"end\" fill=\"#666\"",
                &format!("{tick:.decimals$}"),
            );
        }
        let x = |position: usize| self.left + (position as f64 + 0.5) * PANEL_WIDTH / cases.len() as f64;
        let by_streams = self.table["by"] == "streams";
        let label = |case: &Value| match by_streams {
            true => format!("{} streams", case["streams"]),
            false => size(case["payload_bytes"].as_u64().unwrap_or_default()),
        };
        for (position, case) in cases.iter().enumerate() {
            text(out, x(position), bottom + 16.0, "text-anchor=\"middle\"", &label(case));
        }
        for (index, name) in names.iter().enumerate() {
            let points: Vec<(usize, &Value, f64)> = cases
                .iter()
                .enumerate()
                .filter_map(|(position, case)| Some((position, case, value(case, index)?)))
                .collect();
            let line: Vec<String> = points
                .iter()
                .map(|(position, _, value)| format!("{:.1},{:.1}", x(*position), y(*value)))
                .collect();
            let colour = COLOURS[index];
            let _ = writeln!(
                out,
                "<polyline points=\"{}\" fill=\"none\" stroke=\"{colour}\" stroke-width=\"2\"/>",
                line.join(" ")
            );
            for (position, case, value) in points {
                let _ = writeln!(
                    out,
                    "<circle cx=\"{:.1}\" cy=\"{:.1}\" r=\"3\" fill=\"{colour}\"><title>{}</title></circle>",
                    x(position),
                    y(value),
                    escape(&format!("{name}, {}: {value:.3}", label(case)))
                );
            }
        }
    }
}

/// The powers of ten below and above; never the same.
fn powers(lowest: f64, highest: f64) -> (f64, f64) {
    let bottom = lowest.log10().floor();
    (bottom, highest.log10().ceil().max(bottom + 1.0))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn every_table_has_two_panels() {
        let cell = |gb_per_s: f64| json!({"gb_per_s_median": gb_per_s, "cpu_s_per_gb_median": 0.5});
        let failed = json!({"gb_per_s_median": null, "cpu_s_per_gb_median": null});
        let result = json!({
            "title": "Blocks between ranks", "runs": 3, "machine": {"cpu": "A & B", "cores": 2},
            "configurations": [{"name": "memcpy"}, {"name": "mpi:env.A=<b>"}],
            "tables": [{"title": "one-to-one", "by": "payload_bytes", "cases": [
                {"payload_bytes": 1024, "streams": 2, "configurations": [cell(8.0), cell(0.5)]},
                {"payload_bytes": 4096, "streams": 2, "configurations": [cell(9.0), failed]},
            ]}],
        });
        let svg = svg(&result).unwrap();
        assert!(svg.starts_with("<svg ") && svg.ends_with("</svg>\n"));
        assert_eq!((svg.matches("<polyline").count(), svg.matches("<circle").count()), (4, 6));
        assert!(svg.contains("mpi:env.A=&lt;b&gt;") && svg.contains("4 KiB"));
        assert!(super::svg(&json!({})).is_err());
    }

    #[test]
    fn axes_end_at_powers_of_ten() {
        assert_eq!(powers(0.02, 7.0), (-2.0, 1.0));
        assert_eq!(powers(1.0, 1.0), (0.0, 1.0));
    }
}
