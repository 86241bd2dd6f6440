//! SVG chart of a benchmark: totals as horizontal bars, then the queries as groups of vertical bars.

use std::fmt::Write;
use std::ops::RangeInclusive;

use serde_json::Value;

use super::report::CONFIGURATIONS_MAX;

/// Distinguishable with any kind of colour vision and on paper; after Okabe and Ito, "Color Universal Design"
/// (2008).
pub(super) const COLOURS: [&str; CONFIGURATIONS_MAX] =
    ["#0072b2", "#e69f00", "#009e73", "#cc79a7", "#56b4e9", "#d55e00", "#8a8a8a", "#b8a800"];

/// In pixels.
pub(super) const MARGIN: f64 = 24.0;
/// Top of the legend that [`begin`] draws, and height of its lines.
pub(super) const LEGEND_TOP: f64 = MARGIN + 46.0;
pub(super) const LEGEND_HEIGHT: f64 = 20.0;
const AXIS_WIDTH: f64 = 44.0;
const PLOT_HEIGHT: f64 = 260.0;
const TOTAL_HEIGHT: f64 = 20.0;
const BAR_WIDTH: f64 = 11.0;
const WIDTH_MIN: f64 = 720.0;
/// Average width of a character, estimated generously.
const CHARACTER_WIDTH: f64 = 6.6;

/// Figure that a chart shows for each query: its key in the JSON result, in seconds, and its label.
pub struct Figure {
    key: &'static str,
    words: &'static str,
    /// What has a group of bars.
    groups: &'static str,
}

impl Figure {
    pub const fn key(&self) -> &'static str {
        self.key
    }
}

pub const MEDIAN: Figure = Figure { key: "wall_s_median", words: "median", groups: "queries" };
pub const P99: Figure = Figure { key: "wall_s_p99", words: "99th percentile", groups: "queries" };
/// Processor time, of statements and of sets of them.
pub const CPU: Figure = Figure { key: "cpu_s_median", words: "median processor time", groups: "statements" };
pub const CPU_OF_SETS: Figure =
    Figure { key: "cpu_s_sum", words: "medians of processor time", groups: "sets" };

struct Series {
    name: String,
    engine: String,
    /// Sum over the queries that all configurations answered.
    total_s: f64,
    /// By query; `None` for one that failed.
    figures_s: Vec<(String, Option<f64>)>,
}

/// Draws a figure of the configurations of all `results`, in the form that `--json` writes.
///
/// Errors: an invalid result, or too many configurations.
pub fn svg(results: &[Value], figure: &Figure) -> Result<String, String> {
    let mut series: Vec<Series> = results
        .iter()
        .flat_map(|result| all(result, "configurations"))
        .map(|configuration| series(configuration, figure))
        .collect::<Result<_, _>>()?;
    if series.is_empty() || series.len() > CONFIGURATIONS_MAX {
        return Err(format!("a chart shows 1 to {CONFIGURATIONS_MAX} configurations, not {}", series.len()));
    }
    let mut queries: Vec<&str> = Vec::new();
    for (name, _) in series.iter().flat_map(|series| &series.figures_s) {
        if !queries.contains(&name.as_str()) {
            queries.push(name);
        }
    }
    let complete = |query: &&&str| series.iter().all(|series| series.figure_s(query).is_some());
    let complete: Vec<&str> = queries.iter().filter(complete).copied().collect();
    let totals_s: Vec<f64> = series
        .iter()
        .map(|series| complete.iter().filter_map(|query| series.figure_s(query)).sum())
        .collect();
    let first = &results[0];
    let title = format!(
        "{} at scale {}",
        first["title"].as_str().unwrap_or("Benchmark"),
        first["scale"].as_f64().unwrap_or_default()
    );
    let subtitle = format!(
        "seconds, {} of {} timed runs; total of {} {}; {}",
        figure.words,
        first["runs"],
        complete.len(),
        figure.groups,
        machine(first)
    );
    let queries: Vec<String> = queries.into_iter().map(str::to_owned).collect();
    for (series, total_s) in series.iter_mut().zip(totals_s) {
        series.total_s = total_s;
    }
    Ok(draw(&title, &subtitle, &series, &queries))
}

fn series(configuration: &Value, figure: &Figure) -> Result<Series, String> {
    let text = |key: &str| {
        configuration[key].as_str().map(str::to_owned).ok_or_else(|| format!("a configuration has no {key}"))
    };
    let figures_s: Vec<_> = all(configuration, "queries")
        .iter()
        .map(|query| (query["query"].as_str().unwrap_or_default().to_owned(), query[figure.key].as_f64()))
        .collect();
    Ok(Series { name: text("name")?, engine: text("engine")?, total_s: 0.0, figures_s })
}

impl Series {
    fn figure_s(&self, query: &str) -> Option<f64> {
        self.figures_s.iter().find(|(name, _)| name == query).and_then(|(_, figure_s)| *figure_s)
    }

    /// Avoids repeating the engine's name.
    fn label(&self) -> String {
        match self.engine.starts_with(&self.name) {
            true => self.engine.clone(),
            false => format!("{} ({})", self.name, self.engine),
        }
    }
}

pub(super) fn all<'a>(value: &'a Value, key: &str) -> &'a [Value] {
    value[key].as_array().map_or(&[], Vec::as_slice)
}

fn draw(title: &str, subtitle: &str, series: &[Series], queries: &[String]) -> String {
    let group_width = (series.len() as f64 * BAR_WIDTH + 12.0).max(30.0);
    let plot_width = (queries.len() as f64 * group_width).max(WIDTH_MIN - 2.0 * MARGIN - AXIS_WIDTH);
    let width = plot_width + AXIS_WIDTH + 2.0 * MARGIN;
    let totals_top = MARGIN + 52.0;
    let plot_top = totals_top + series.len() as f64 * TOTAL_HEIGHT + 34.0;
    let plot_bottom = plot_top + PLOT_HEIGHT;
    let height = plot_bottom + 24.0 + MARGIN;

    let mut out = String::new();
    open(&mut out, width, height);
    text(&mut out, MARGIN, MARGIN + 12.0, "font-size=\"17\" font-weight=\"600\"", title);
    text(&mut out, MARGIN, MARGIN + 32.0, "fill=\"#666\"", subtitle);
    totals(&mut out, series, totals_top, width);

    let left = MARGIN + AXIS_WIDTH;
    let longest_s = series
        .iter()
        .flat_map(|series| &series.figures_s)
        .filter_map(|(_, figure_s)| *figure_s)
        .fold(1e-9, f64::max);
    let step = step(longest_s);
    let top_s = (longest_s / step).ceil() * step;
    let y = |seconds: f64| plot_bottom - seconds / top_s * PLOT_HEIGHT;
    let decimals = (-step.log10().floor()).max(0.0) as usize;
    for tick in 0..=(top_s / step).round() as usize {
        let seconds = tick as f64 * step;
        let stroke = if tick == 0 { "#888" } else { "#e4e4e4" };
        let _ = writeln!(
            out,
            "<line x1=\"{left:.1}\" y1=\"{0:.1}\" x2=\"{1:.1}\" y2=\"{0:.1}\" stroke=\"{stroke}\"/>",
            y(seconds),
            left + plot_width
        );
        text(
            &mut out,
            left - 6.0,
            y(seconds) + 4.0,
            "text-anchor=\"end\" fill=\"#666\"",
            &format!("{seconds:.decimals$}"),
        );
    }
    let step_x = plot_width / queries.len().max(1) as f64;
    for (position, query) in queries.iter().enumerate() {
        let middle = left + (position as f64 + 0.5) * step_x;
        text(&mut out, middle, plot_bottom + 16.0, "text-anchor=\"middle\"", query);
        let bars_left = middle - series.len() as f64 * BAR_WIDTH / 2.0;
        for (index, series) in series.iter().enumerate() {
            let x = bars_left + index as f64 * BAR_WIDTH;
            let Some(seconds) = series.figure_s(query) else {
                continue;
            };
            let _ = writeln!(
                out,
                "<rect x=\"{x:.1}\" y=\"{:.1}\" width=\"{:.1}\" height=\"{:.1}\" fill=\"{}\"><title>{}</title></rect>",
                y(seconds),
                BAR_WIDTH - 1.0,
                plot_bottom - y(seconds),
                COLOURS[index],
                escape(&format!("{query}, {}: {seconds:.3} s", series.name)),
            );
        }
    }
    out.push_str("</svg>\n");
    out
}

/// Opens the drawing: root element and background.
pub(super) fn open(out: &mut String, width: f64, height: f64) {
    let _ = writeln!(
        out,
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{width:.0}\" height=\"{height:.0}\" viewBox=\"0 0 {width:.0} {height:.0}\" \
         font-family=\"system-ui, 'Segoe UI', 'DejaVu Sans', sans-serif\" font-size=\"12\" fill=\"#222\">\n\
         <rect width=\"100%\" height=\"100%\" fill=\"#fff\"/>"
    );
}

/// Describes the machine of a result.
pub(super) fn machine(result: &Value) -> String {
    let cpu = result["machine"]["cpu"].as_str().unwrap_or("unknown processor");
    format!("{cpu}, {} cores", result["machine"]["cores"])
}

/// Begins a line chart: title, subtitle, and a legend of the lines' names and colours.
pub(super) fn begin(
    out: &mut String,
    (width, height): (f64, f64),
    title: &str,
    subtitle: &str,
    names: &[impl AsRef<str>],
) {
    open(out, width, height);
    text(out, MARGIN, MARGIN + 12.0, "font-size=\"17\" font-weight=\"600\"", title);
    text(out, MARGIN, MARGIN + 32.0, "fill=\"#666\"", subtitle);
    for (index, name) in names.iter().enumerate() {
        let y = LEGEND_TOP + index as f64 * LEGEND_HEIGHT;
        let _ = writeln!(
            out,
            "<rect x=\"{MARGIN:.1}\" y=\"{:.1}\" width=\"12\" height=\"12\" fill=\"{}\"/>",
            y + 2.0,
            COLOURS[index]
        );
        text(out, MARGIN + 20.0, y + 12.0, "", name.as_ref());
    }
}

/// Returns the powers of ten below and above; always distinct.
pub(super) fn powers(lowest: f64, highest: f64) -> (f64, f64) {
    let bottom = lowest.log10().floor();
    (bottom, highest.log10().ceil().max(bottom + 1.0))
}

/// Draws horizontal grid lines at powers of ten, with labels; that of `base` is darker.
pub(super) fn grid(
    out: &mut String,
    (left, width): (f64, f64),
    powers: RangeInclusive<i32>,
    base: Option<i32>,
    y: impl Fn(f64) -> f64,
) {
    for power in powers {
        let tick = 10f64.powi(power);
        let stroke = if base == Some(power) { "#888" } else { "#e4e4e4" };
        let _ = writeln!(
            out,
            "<line x1=\"{left:.1}\" y1=\"{0:.1}\" x2=\"{1:.1}\" y2=\"{0:.1}\" stroke=\"{stroke}\"/>",
            y(tick),
            left + width
        );
        let decimals = (-power).max(0) as usize;
        let attributes = "text-anchor=\"end\" fill=\"#666\"";
        text(out, left - 6.0, y(tick) + 4.0, attributes, &format!("{tick:.decimals$}"));
    }
}

/// Draws a line through points, each with a tooltip.
pub(super) fn line(out: &mut String, colour: &str, points: &[(f64, f64, String)]) {
    let places: Vec<String> = points.iter().map(|(x, y, _)| format!("{x:.1},{y:.1}")).collect();
    let _ = writeln!(
        out,
        "<polyline points=\"{}\" fill=\"none\" stroke=\"{colour}\" stroke-width=\"2\"/>",
        places.join(" ")
    );
    for (x, y, tooltip) in points {
        let _ = writeln!(
            out,
            "<circle cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"3\" fill=\"{colour}\"><title>{}</title></circle>",
            escape(tooltip)
        );
    }
}

/// Draws the legend: each configuration's sum as a bar, with its ratio to the first.
fn totals(out: &mut String, series: &[Series], top: f64, width: f64) {
    let label_width = series.iter().map(|series| series.label().chars().count()).max().unwrap_or(0) as f64
        * CHARACTER_WIDTH;
    let bar_left = MARGIN + 20.0 + label_width + 8.0;
    // Room for "123.45 s, 0.98 of the first" at the end of the longest bar.
    let bar_width_max = (width - MARGIN - bar_left - 190.0).max(60.0);
    let longest_s = series.iter().map(|series| series.total_s).fold(1e-9, f64::max);
    for (index, one) in series.iter().enumerate() {
        let y = top + index as f64 * TOTAL_HEIGHT;
        let bar_width = one.total_s / longest_s * bar_width_max;
        let _ = writeln!(
            out,
            "<rect x=\"{MARGIN:.1}\" y=\"{0:.1}\" width=\"12\" height=\"12\" fill=\"{1}\"/>\n\
             <rect x=\"{bar_left:.1}\" y=\"{0:.1}\" width=\"{bar_width:.1}\" height=\"12\" fill=\"{1}\"/>",
            y + 2.0,
            COLOURS[index]
        );
        text(out, MARGIN + 20.0, y + 12.0, "", &one.label());
        let mut total = format!("{:.2} s", one.total_s);
        if index > 0 && series[0].total_s > 0.0 {
            let _ = write!(total, ", {:.2} of the first", one.total_s / series[0].total_s);
        }
        text(out, bar_left + bar_width + 6.0, y + 12.0, "", &total);
    }
}

/// Spacing of the grid lines: 1, 2 or 5 times a power of ten, for four to ten lines.
fn step(longest: f64) -> f64 {
    let power = 10f64.powf((longest / 4.0).log10().floor());
    [5.0, 2.0, 1.0]
        .into_iter()
        .map(|factor| factor * power)
        .find(|step| longest / step >= 4.0)
        .unwrap_or(power)
}

pub(super) fn text(out: &mut String, x: f64, y: f64, attributes: &str, text: &str) {
    let _ = writeln!(out, "<text x=\"{x:.1}\" y=\"{y:.1}\" {attributes}>{}</text>", escape(text));
}

pub(super) fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn result(name: &str) -> Value {
        json!({
            "title": "TPC-H", "scale": 1.0, "runs": 3, "machine": {"cpu": "A & B", "cores": 2},
            "configurations": [{
                "name": name, "engine": "harrier 0.1.0",
                "queries": [{"query": "q01", "wall_s_median": 0.5}, {"query": "q02", "wall_s_median": null}],
            }],
        })
    }

    #[test]
    fn results_of_several_files_are_drawn_together() {
        let svg = svg(&[result("first"), result("<second>")], &MEDIAN).unwrap();
        assert!(svg.starts_with("<svg ") && svg.ends_with("</svg>\n"));
        // Two squares of the legend, two totals, two bars, and the background.
        assert_eq!(svg.matches("<rect").count(), 7);
        assert!(svg.contains("&lt;second&gt; (harrier 0.1.0)"));
        assert!(svg.contains("total of 1 queries; A &amp; B, 2 cores"));
        assert!(svg.contains("1.00 of the first"));
    }

    #[test]
    fn other_values_are_refused() {
        assert!(svg(&[json!({})], &MEDIAN).is_err());
        assert!(svg(&[json!({"configurations": [{}]})], &MEDIAN).is_err());
    }

    #[test]
    fn axes_end_at_powers_of_ten() {
        assert_eq!(powers(0.02, 7.0), (-2.0, 1.0));
        assert_eq!(powers(1.0, 1.0), (0.0, 1.0));
    }

    #[test]
    fn grid_lines_are_round_numbers() {
        for (longest, expected) in [(1.0, 0.2), (0.9, 0.2), (4.0, 1.0), (7.9, 1.0), (31.0, 5.0), (0.05, 0.01)]
        {
            assert!((step(longest) - expected).abs() < 1e-12, "{longest}: {}", step(longest));
        }
    }
}
