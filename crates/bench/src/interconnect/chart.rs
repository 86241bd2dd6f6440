//! SVG chart of `bench interconnect`: for each table throughput on the left and CPU time on the right, one
//! line for each configuration, both axes logarithmic.

use serde_json::Value;

use super::report::size;
use crate::chart::{
    COLOURS, LEGEND_HEIGHT, LEGEND_TOP, MARGIN, all, begin, grid, line, machine, powers, text,
};

/// In pixels.
const PANEL_WIDTH: f64 = 420.0;
const PANEL_HEIGHT: f64 = 170.0;
const AXIS_WIDTH: f64 = 52.0;
const PANEL_FOOT: f64 = 54.0;

/// Figures of the panels: key of a cell, and label.
const FIGURES: [(&str, &str); 2] =
    [("gb_per_s_median", "GB/s"), ("cpu_s_per_gb_median", "processor seconds for each GB")];

/// Draws a JSON result.
///
/// Errors: an invalid result, or too many configurations.
pub fn svg(result: &Value) -> Result<String, String> {
    let names: Vec<&str> = all(result, "configurations")
        .iter()
        .filter_map(|configuration| configuration["name"].as_str())
        .collect();
    if names.is_empty() || names.len() > COLOURS.len() {
        return Err(format!("a chart shows 1 to {} configurations, not {}", COLOURS.len(), names.len()));
    }
    let tables = all(result, "tables");
    let panels_top = LEGEND_TOP + names.len() as f64 * LEGEND_HEIGHT + 30.0;
    let width = 2.0 * (MARGIN + AXIS_WIDTH + PANEL_WIDTH);
    let height = panels_top + tables.len() as f64 * (PANEL_HEIGHT + PANEL_FOOT) + MARGIN;
    let mut out = String::new();
    let title = result["title"].as_str().unwrap_or("Benchmark");
    let subtitle = format!("median of {} interleaved runs; {}", result["runs"], machine(result));
    begin(&mut out, (width, height), title, &subtitle, &names);
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
        grid(out, (self.left, PANEL_WIDTH), bottom_power as i32..=top_power as i32, None, y);
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
            let points: Vec<(f64, f64, String)> = cases
                .iter()
                .enumerate()
                .filter_map(|(position, case)| {
                    let value = value(case, index)?;
                    Some((x(position), y(value), format!("{name}, {}: {value:.3}", label(case))))
                })
                .collect();
            line(out, COLOURS[index], &points);
        }
    }
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
}
