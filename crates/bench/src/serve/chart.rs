//! SVG chart of `bench serve`: for each kind of load a panel of throughput and one of latency below, by the
//! number of clients; a line for each server, all axes logarithmic. Latency is a solid line for the median
//! and a dashed one for the 99th percentile.

use std::fmt::Write;

use serde_json::Value;

use crate::chart::{COLOURS, MARGIN, all, escape, open, text};

/// In pixels.
const LEGEND_HEIGHT: f64 = 20.0;
const PANEL_WIDTH: f64 = 250.0;
const PANEL_HEIGHT: f64 = 180.0;
const AXIS_WIDTH: f64 = 52.0;
const PANEL_FOOT: f64 = 54.0;

/// A figure of one server by the number of clients.
type Line = Vec<(f64, f64)>;

/// Draws a JSON result.
///
/// Errors: an invalid result.
pub fn svg(result: &Value) -> Result<String, String> {
    let systems = all(result, "systems");
    let mut loads: Vec<&str> = Vec::new();
    for cell in all(result, "cells") {
        let title = cell["title"].as_str().unwrap_or_default();
        let is_line = all(result, "cells").iter().filter(|other| other["title"] == title).count() > 1;
        if is_line && !loads.contains(&title) {
            loads.push(title);
        }
    }
    if systems.is_empty() || systems.len() > COLOURS.len() || loads.is_empty() {
        return Err("a chart shows one server and one load with two numbers of clients at least".to_owned());
    }
    let legend_top = MARGIN + 46.0;
    let panels_top = legend_top + systems.len() as f64 * LEGEND_HEIGHT + 34.0;
    let width = (MARGIN + loads.len() as f64 * (MARGIN + AXIS_WIDTH + PANEL_WIDTH)).max(720.0);
    let height = panels_top + 2.0 * (PANEL_HEIGHT + PANEL_FOOT);
    let mut out = String::new();
    open(&mut out, width, height);
    let title = format!("{} at scale {}", result["title"].as_str().unwrap_or("Servers"), result["scale"]);
    text(&mut out, MARGIN, MARGIN + 12.0, "font-size=\"17\" font-weight=\"600\"", &title);
    let subtitle = format!(
        "median of {} interleaved rounds of {} s; {}, {} cores",
        result["rounds"],
        result["seconds"],
        result["machine"]["cpu"].as_str().unwrap_or("unknown processor"),
        result["machine"]["cores"]
    );
    text(&mut out, MARGIN, MARGIN + 32.0, "fill=\"#666\"", &subtitle);
    for (index, system) in systems.iter().enumerate() {
        let y = legend_top + index as f64 * LEGEND_HEIGHT;
        let colour = COLOURS[index];
        let top = y + 2.0;
        let _ = writeln!(
            out,
            "<rect x=\"{MARGIN:.1}\" y=\"{top:.1}\" width=\"12\" height=\"12\" fill=\"{colour}\"/>"
        );
        text(&mut out, MARGIN + 20.0, y + 12.0, "", system["engine"].as_str().unwrap_or_default());
    }
    for (column, load) in loads.iter().enumerate() {
        let left = MARGIN + AXIS_WIDTH + column as f64 * (MARGIN + AXIS_WIDTH + PANEL_WIDTH);
        let lines =
            |key: &str| (0..systems.len()).map(|system| line(result, load, system, key)).collect::<Vec<_>>();
        let throughput =
            Panel { left, top: panels_top, unit: "statements/s", sets: vec![(lines("throughput"), "")] };
        throughput.draw(&mut out, load);
        let top = panels_top + PANEL_HEIGHT + PANEL_FOOT;
        let sets = vec![(lines("p50_ms"), ""), (lines("p99_ms"), " stroke-dasharray=\"5 3\"")];
        Panel { left, top, unit: "ms, median and 99 %", sets }.draw(&mut out, load);
    }
    out.push_str("</svg>\n");
    Ok(out)
}

fn line(result: &Value, load: &str, system: usize, key: &str) -> Line {
    let of_load = all(result, "cells").iter().filter(|cell| cell["title"] == load);
    let mut points: Line = of_load
        .filter_map(|cell| {
            let value = all(cell, "systems").get(system)?[key].as_f64().filter(|value| *value > 0.0)?;
            Some((cell["clients"].as_f64()?, value))
        })
        .collect();
    points.sort_by(|a, b| a.0.total_cmp(&b.0));
    points
}

struct Panel<'a> {
    left: f64,
    top: f64,
    unit: &'a str,
    /// Lines by server, and their style.
    sets: Vec<(Vec<Line>, &'a str)>,
}

impl Panel<'_> {
    fn draw(&self, out: &mut String, title: &str) {
        let heading = format!("{title}, {}", self.unit);
        text(out, self.left, self.top - 10.0, "font-weight=\"600\"", &heading);
        let points = || self.sets.iter().flat_map(|(lines, _)| lines).flatten();
        let least = points().map(|point| point.1).fold(f64::INFINITY, f64::min);
        let most = points().map(|point| point.1).fold(0.0, f64::max);
        if !(least.is_finite() && most > 0.0) {
            return;
        }
        let (low, high) = (least.log10().floor(), (most * 1.0001).log10().ceil());
        let clients = points().map(|point| point.0).fold(2.0, f64::max);
        let bottom = self.top + PANEL_HEIGHT;
        let y = |value: f64| bottom - (value.log10() - low) / (high - low).max(1.0) * PANEL_HEIGHT;
        let x = |count: f64| self.left + 10.0 + count.log2() / clients.log2() * (PANEL_WIDTH - 20.0);
        for power in low as i32..=high as i32 {
            let tick = 10f64.powi(power);
            let stroke = if power == low as i32 { "#888" } else { "#e4e4e4" };
            let (from, to, at) = (self.left, self.left + PANEL_WIDTH, y(tick));
            let _ = writeln!(
                out,
                "<line x1=\"{from:.1}\" y1=\"{at:.1}\" x2=\"{to:.1}\" y2=\"{at:.1}\" stroke=\"{stroke}\"/>"
            );
            let decimals = (-power).max(0) as usize;
            text(
                out,
                self.left - 6.0,
                at + 4.0,
                "text-anchor=\"end\" fill=\"#666\"",
                &format!("{tick:.decimals$}"),
            );
        }
        let mut counts: Vec<f64> = points().map(|point| point.0).collect();
        counts.sort_by(f64::total_cmp);
        counts.dedup();
        for count in counts {
            text(out, x(count), bottom + 16.0, "text-anchor=\"middle\"", &format!("{count:.0}"));
        }
        let middle = self.left + PANEL_WIDTH / 2.0;
        text(out, middle, bottom + 32.0, "text-anchor=\"middle\" fill=\"#666\"", "clients");
        for (lines, style) in &self.sets {
            for (index, line) in lines.iter().enumerate() {
                let colour = COLOURS[index];
                let path: Vec<String> =
                    line.iter().map(|(count, value)| format!("{:.1},{:.1}", x(*count), y(*value))).collect();
                let _ = writeln!(
                    out,
                    "<polyline points=\"{}\" fill=\"none\" stroke=\"{colour}\" stroke-width=\"2\"{style}/>",
                    path.join(" ")
                );
                for (count, value) in line {
                    let (at, up) = (x(*count), y(*value));
                    let name = escape(&format!("{count:.0} clients: {value:.2} {}", self.unit));
                    let _ = writeln!(
                        out,
                        "<circle cx=\"{at:.1}\" cy=\"{up:.1}\" r=\"3\" fill=\"{colour}\"><title>{name}</title></circle>"
                    );
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn every_load_has_two_panels() {
        let figures = |value: f64| json!({"throughput": value, "p50_ms": value, "p99_ms": value * 3.0});
        let cell = |clients: u32| {
            json!({
                "title": "Point lookup", "clients": clients,
                "systems": [figures(f64::from(clients)), {"throughput": null}],
            })
        };
        let result = json!({
            "title": "Servers", "scale": 0.1, "rounds": 3, "seconds": 2.0, "machine": {"cpu": "A", "cores": 2},
            "systems": [{"engine": "harrier 0.1.0"}, {"engine": "<other>"}],
            "cells": [cell(1), cell(8), {"title": "Alone", "clients": 1, "systems": [figures(1.0)]}],
        });
        let svg = svg(&result).unwrap();
        assert!(svg.starts_with("<svg ") && svg.ends_with("</svg>\n"));
        // Two lines of throughput, four of latency; the load with a single number of clients has none.
        assert_eq!(svg.matches("<polyline").count(), 6);
        assert_eq!(svg.matches("<circle").count(), 6);
        assert!(svg.contains("&lt;other&gt;") && !svg.contains("Alone"));
    }

    #[test]
    fn other_values_are_refused() {
        assert!(svg(&json!({})).is_err());
    }
}
