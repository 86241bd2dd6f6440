//! SVG chart of `bench primitives`: latency and bandwidth by size, both axes logarithmic, one line for each
//! primitive; below, the timelines of blocking and non-blocking O tasks.

use std::fmt::Write;

use serde_json::Value;

use super::report::size;
use crate::chart::{
    COLOURS, LEGEND_HEIGHT, LEGEND_TOP, MARGIN, all, begin, escape, grid, line, machine, powers, text,
};

/// In pixels.
const PANEL_WIDTH: f64 = 470.0;
const PANEL_HEIGHT: f64 = 260.0;
const AXIS_WIDTH: f64 = 56.0;
const PANEL_FOOT: f64 = 54.0;
const TASK_HEIGHT: f64 = 14.0;

const FIGURES: [(&str, &str); 2] = [
    ("half_round_trip_us_median", "latency: half of a round trip, µs"),
    ("mb_per_s_median", "bandwidth: 128 MiB in packets, MB/s"),
];

/// Draws a JSON result.
///
/// Errors: an invalid result, or too many configurations.
pub fn svg(result: &Value) -> Result<String, String> {
    let configurations = all(result, "configurations");
    let names: Vec<&str> =
        configurations.iter().filter_map(|configuration| configuration["name"].as_str()).collect();
    if names.is_empty() || names.len() > COLOURS.len() {
        return Err(format!("a chart shows 1 to {} configurations, not {}", COLOURS.len(), names.len()));
    }
    let panels_top = LEGEND_TOP + names.len() as f64 * LEGEND_HEIGHT + 34.0;
    let width = 2.0 * (MARGIN + AXIS_WIDTH + PANEL_WIDTH) + MARGIN;
    let tasks_top = panels_top + PANEL_HEIGHT + PANEL_FOOT + 10.0;
    let tasks = all(&result["blocking"], "styles").iter().map(|style| all(style, "spans").len()).max();
    let tasks_height = tasks.map_or(0.0, |tasks| tasks as f64 * TASK_HEIGHT + PANEL_FOOT);
    let mut out = String::new();
    let title = result["title"].as_str().unwrap_or("Benchmark");
    let subtitle = format!("median of {} interleaved runs; {}", result["runs"], machine(result));
    let legend = |(name, configuration): (&&str, &Value)| {
        let engine = configuration["engine"].as_str().unwrap_or_default();
        // The rest names the packager and the path.
        let engine = engine.split(['\n', '(']).next().unwrap_or_default();
        let engine = engine.split(", package").next().unwrap_or_default();
        format!("{name}: {engine}")
    };
    let legend: Vec<String> = names.iter().zip(configurations).map(legend).collect();
    begin(&mut out, (width, tasks_top + tasks_height + MARGIN), title, &subtitle, &legend);
    for (column, (key, words)) in FIGURES.iter().enumerate() {
        let left = MARGIN + AXIS_WIDTH + column as f64 * (MARGIN + AXIS_WIDTH + PANEL_WIDTH);
        lines(&mut out, result, key, words, &names, (left, panels_top));
    }
    for (column, style) in all(&result["blocking"], "styles").iter().enumerate() {
        let left = MARGIN + AXIS_WIDTH + column as f64 * (MARGIN + AXIS_WIDTH + PANEL_WIDTH);
        tasks_of(&mut out, &result["blocking"], style, COLOURS[column], (left, tasks_top));
    }
    out.push_str("</svg>\n");
    Ok(out)
}

fn lines(out: &mut String, result: &Value, key: &str, words: &str, names: &[&str], (left, top): (f64, f64)) {
    let cases = all(result, "cases");
    let value =
        |case: &Value, index: usize| case["configurations"][index][key].as_f64().filter(|value| *value > 0.0);
    let values =
        || cases.iter().flat_map(|case| (0..names.len()).filter_map(move |index| value(case, index)));
    text(out, left, top - 8.0, "font-weight=\"600\"", words);
    let (lowest, highest) = (values().fold(f64::INFINITY, f64::min), values().fold(0.0, f64::max));
    if highest == 0.0 {
        return;
    }
    let (bottom_power, top_power) = powers(lowest, highest);
    let bottom = top + PANEL_HEIGHT;
    let y = |value: f64| bottom - (value.log10() - bottom_power) / (top_power - bottom_power) * PANEL_HEIGHT;
    grid(out, (left, PANEL_WIDTH), bottom_power as i32..=top_power as i32, None, y);
    let x = |position: usize| left + (position as f64 + 0.5) * PANEL_WIDTH / cases.len() as f64;
    let label = |case: &Value| size(case["bytes"].as_u64().unwrap_or_default() as usize);
    // Every second label, so that they do not overlap.
    for (position, case) in cases.iter().enumerate().step_by(2) {
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

/// Draws a line for each O task, from its begin to its end; both styles on one scale.
fn tasks_of(out: &mut String, blocking: &Value, style: &Value, colour: &str, (left, top): (f64, f64)) {
    let ends = all(blocking, "styles").iter().flat_map(|style| all(style, "spans"));
    let longest_s = ends.filter_map(|span| span["end_s"].as_f64()).fold(1e-9, f64::max);
    let x = |seconds: f64| left + seconds / longest_s * PANEL_WIDTH;
    let name = style["name"].as_str().unwrap_or_default();
    let title =
        format!("O tasks, {name}: {:.2} s (median)", style["o_s_median"].as_f64().unwrap_or_default());
    text(out, left, top - 8.0, "font-weight=\"600\"", &title);
    let spans = all(style, "spans");
    for (row, span) in spans.iter().enumerate() {
        let (begin_s, end_s) =
            (span["begin_s"].as_f64().unwrap_or_default(), span["end_s"].as_f64().unwrap_or_default());
        let y = top + row as f64 * TASK_HEIGHT;
        let label = format!("task {}", span["task"]);
        text(out, left - 6.0, y + 10.0, "text-anchor=\"end\" fill=\"#666\" font-size=\"10\"", &label);
        let _ = writeln!(
            out,
            "<rect x=\"{:.1}\" y=\"{:.1}\" width=\"{:.1}\" height=\"{:.1}\" fill=\"{colour}\"><title>{}</title></rect>",
            x(begin_s),
            y + 1.0,
            (x(end_s) - x(begin_s)).max(1.0),
            TASK_HEIGHT - 3.0,
            escape(&format!("task {} on rank {}: {begin_s:.3} to {end_s:.3} s", span["task"], span["rank"]))
        );
    }
    let bottom = top + spans.len() as f64 * TASK_HEIGHT + 4.0;
    let _ = writeln!(
        out,
        "<line x1=\"{left:.1}\" y1=\"{bottom:.1}\" x2=\"{:.1}\" y2=\"{bottom:.1}\" stroke=\"#888\"/>",
        left + PANEL_WIDTH
    );
    for part in 0..=4 {
        let seconds = longest_s * f64::from(part) / 4.0;
        let attributes = "text-anchor=\"middle\" fill=\"#666\"";
        text(out, x(seconds), bottom + 16.0, attributes, &format!("{seconds:.2} s"));
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn two_panels_of_lines_and_two_of_tasks() {
        let cell = |us: f64| json!({"half_round_trip_us_median": us, "mb_per_s_median": 5.0});
        let failed = json!({"half_round_trip_us_median": null, "mb_per_s_median": null});
        let style = |name: &str| {
            let spans = json!([{"task": 0, "rank": 0, "begin_s": 0.0, "end_s": 2.0}]);
            json!({"name": name, "o_s_median": 2.0, "spans": spans})
        };
        let result = json!({
            "title": "Bytes", "runs": 3, "machine": {"cpu": "A & B", "cores": 2},
            "configurations": [{"name": "mpi", "engine": "Open MPI"}, {"name": "grpc", "engine": "<gRPC>"}],
            "cases": [
                {"bytes": 1, "configurations": [cell(2.0), cell(90.0)]},
                {"bytes": 4, "configurations": [cell(2.0), failed]},
            ],
            "blocking": {"styles": [style("blocking"), style("non-blocking")]},
        });
        let drawn = svg(&result).unwrap();
        assert!(drawn.starts_with("<svg ") && drawn.ends_with("</svg>\n"));
        assert_eq!((drawn.matches("<polyline").count(), drawn.matches("<circle").count()), (4, 6));
        // The background, two squares of the legend, two tasks.
        assert_eq!(drawn.matches("<rect").count(), 5);
        assert!(drawn.contains("grpc: &lt;gRPC&gt;") && drawn.contains("O tasks, non-blocking: 2.00 s"));
        assert!(svg(&json!({})).is_err());
    }
}
