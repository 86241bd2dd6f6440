//! SVG chart of `bench commit`, in the style of its source: time relative to the direct way, by the number of
//! files; a panel for each store, a line for each way, both axes logarithmic.

use serde_json::Value;

use crate::chart::{COLOURS, LEGEND_HEIGHT, LEGEND_TOP, MARGIN, all, begin, grid, line, machine, text};

/// In pixels.
const PANEL_WIDTH: f64 = 360.0;
const PANEL_HEIGHT: f64 = 220.0;
const AXIS_WIDTH: f64 = 48.0;
const PANEL_FOOT: f64 = 60.0;

/// A measured point: number of files, time relative to the direct way, and tooltip.
type Point = (f64, f64, String);

/// Draws a JSON result.
///
/// Errors: an invalid result.
pub fn svg(result: &Value) -> Result<String, String> {
    let ways: Vec<&str> = all(result, "ways").iter().filter_map(Value::as_str).collect();
    let stores: Vec<&str> = all(result, "stores").iter().filter_map(Value::as_str).collect();
    if ways.is_empty() || ways.len() > COLOURS.len() || stores.is_empty() {
        return Err("a chart shows one store and one way at least".to_owned());
    }
    let panels_top = LEGEND_TOP + ways.len() as f64 * LEGEND_HEIGHT + 34.0;
    let width = MARGIN + stores.len() as f64 * (MARGIN + AXIS_WIDTH + PANEL_WIDTH);
    let height = panels_top + PANEL_HEIGHT + PANEL_FOOT;
    let mut out = String::new();
    let title = format!("{}: time against the direct way", result["title"].as_str().unwrap_or("Commits"));
    let subtitle = format!(
        "scale {}; median of {} interleaved runs; {}",
        result["scale"],
        result["runs"],
        machine(result)
    );
    begin(&mut out, (width.max(720.0), height), &title, &subtitle, &ways);
    let highest = stores
        .iter()
        .flat_map(|store| (1..ways.len()).flat_map(|way| points(result, store, way)))
        .map(|(_, ratio, _)| ratio)
        .fold(10.0, f64::max);
    for (column, store) in stores.iter().enumerate() {
        let left = MARGIN + AXIS_WIDTH + column as f64 * (MARGIN + AXIS_WIDTH + PANEL_WIDTH);
        let panel = Panel { left, top: panels_top, highest };
        panel.draw(
            &mut out,
            store,
            &(0..ways.len()).map(|way| points(result, store, way)).collect::<Vec<_>>(),
        );
    }
    out.push_str("</svg>\n");
    Ok(out)
}

fn points(result: &Value, store: &str, way: usize) -> Vec<Point> {
    let mut points: Vec<Point> = all(result, "cases")
        .iter()
        .filter(|case| case["store"] == store)
        .filter_map(|case| {
            let files = case["partitions"].as_f64()? * case["files_each"].as_f64()?;
            let wall_s = |way: usize| case["ways"][way]["wall_s_median"].as_f64();
            let ratio = wall_s(way)? / wall_s(0)?;
            let name =
                format!("{} partitions of {} files: {ratio:.2}", case["partitions"], case["files_each"]);
            Some((files, ratio, name))
        })
        .collect();
    points.sort_by(|a, b| a.0.total_cmp(&b.0));
    points
}

struct Panel {
    left: f64,
    top: f64,
    highest: f64,
}

impl Panel {
    fn draw(&self, out: &mut String, store: &str, ways: &[Vec<Point>]) {
        text(out, self.left, self.top - 10.0, "font-weight=\"600\"", store);
        let most = ways.iter().flatten().map(|point| point.0).fold(10.0, f64::max);
        let bottom = self.top + PANEL_HEIGHT;
        // The axis starts at a tenth of the direct way's time.
        let powers = (-1, self.highest.log10().ceil() as i32);
        let span = f64::from(powers.1 - powers.0);
        let y = |ratio: f64| bottom - (ratio.max(0.1).log10() + 1.0) / span * PANEL_HEIGHT;
        let decades = most.log10().ceil().max(1.0);
        let x = |files: f64| self.left + 10.0 + files.log10() / decades * (PANEL_WIDTH - 20.0);
        grid(out, (self.left, PANEL_WIDTH), powers.0..=powers.1, Some(0), y);
        for power in 0..=decades as i32 {
            let files = 10f64.powi(power);
            text(out, x(files), bottom + 16.0, "text-anchor=\"middle\"", &format!("{files:.0}"));
        }
        text(
            out,
            self.left + PANEL_WIDTH / 2.0,
            bottom + 36.0,
            "text-anchor=\"middle\" fill=\"#666\"",
            "files written",
        );
        for (way, points) in ways.iter().enumerate() {
            let points: Vec<(f64, f64, String)> = points
                .iter()
                .map(|(files, ratio, tooltip)| (x(*files), y(*ratio), tooltip.clone()))
                .collect();
            line(out, COLOURS[way], &points);
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn every_store_has_a_panel_and_every_way_a_line() {
        let way = |wall_s: f64| json!({"wall_s_median": wall_s});
        let case = |store: &str, partitions: u64| {
            json!({
                "store": store, "partitions": partitions, "files_each": 10,
                "ways": [way(1.0), way(20.0), json!({"wall_s_median": null})],
            })
        };
        let result = json!({
            "title": "T", "scale": 1.0, "runs": 3, "machine": {"cpu": "A & B", "cores": 2},
            "stores": ["local", "s3"], "ways": ["direct", "staged", "<spark>"],
            "cases": [case("local", 1), case("local", 10), case("s3", 1)],
        });
        let svg = svg(&result).unwrap();
        assert!(svg.starts_with("<svg ") && svg.ends_with("</svg>\n"));
        assert_eq!((svg.matches("<polyline").count(), svg.matches("<circle").count()), (6, 6));
        assert!(svg.contains("&lt;spark&gt;") && svg.contains("10 partitions of 10 files: 20.00"));
        assert!(super::svg(&json!({})).is_err());
    }
}
