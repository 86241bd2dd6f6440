//! Validator of the Trace Event Format as trace viewers read it, with ranks as processes.
//!
//! Perfetto's `trace_processor` is in no package registry, so its requirements are checked here: known event
//! kinds with their fields, names for every process and track, events on a track that nest or do not overlap,
//! and flow arrows whose two ends bind to events.
#![allow(dead_code)] // Each test program uses its own part.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

/// A track: process id and thread id.
type Track = (u64, u64);

/// Validates a whole trace. Errors: a description of the violation.
pub fn check(text: &str) -> Result<Vec<Value>, String> {
    let trace: Value = serde_json::from_str(text).map_err(|error| format!("no JSON: {error}"))?;
    let events = trace["traceEvents"].as_array().ok_or("no traceEvents")?.clone();
    let mut processes = BTreeMap::new();
    let mut tracks = BTreeMap::new();
    let mut spans: BTreeMap<Track, Vec<(f64, f64)>> = BTreeMap::new();
    let mut arrows: BTreeMap<u64, Vec<(String, Track, f64)>> = BTreeMap::new();
    for event in &events {
        let wrong = |what: &str| format!("{what} in {event}");
        let number = |key: &str| event[key].as_f64().filter(|number| *number >= 0.0 && number.is_finite());
        let track = (
            event["pid"].as_u64().filter(|pid| *pid > 0).ok_or_else(|| wrong("no pid"))?,
            event["tid"].as_u64().ok_or_else(|| wrong("no tid"))?,
        );
        let name = event["name"].as_str().filter(|name| !name.is_empty()).ok_or_else(|| wrong("no name"))?;
        match event["ph"].as_str().unwrap_or_default() {
            "M" if name == "process_name" => {
                let name = event["args"]["name"].as_str().ok_or_else(|| wrong("no name of the process"))?;
                if processes.insert(track.0, name.to_owned()).is_some() {
                    return Err(wrong("a second name of the process"));
                }
            }
            "M" if name == "thread_name" => {
                let name = event["args"]["name"].as_str().ok_or_else(|| wrong("no name of the track"))?;
                if tracks.insert(track, name.to_owned()).is_some() {
                    return Err(wrong("a second name of the track"));
                }
            }
            "M" => {}
            "X" => {
                let at = number("ts").ok_or_else(|| wrong("no ts"))?;
                let long = number("dur").ok_or_else(|| wrong("no dur"))?;
                event["args"].as_object().ok_or_else(|| wrong("no args"))?;
                spans.entry(track).or_default().push((at, at + long));
            }
            kind @ ("s" | "f") => {
                let id = event["id"].as_u64().ok_or_else(|| wrong("no id"))?;
                let at = number("ts").ok_or_else(|| wrong("no ts"))?;
                arrows.entry(id).or_default().push((kind.to_owned(), track, at));
            }
            other => return Err(wrong(&format!("unknown kind {other}"))),
        }
    }
    for (track, spans) in &mut spans {
        if !processes.contains_key(&track.0) || !tracks.contains_key(track) {
            return Err(format!("track {track:?} has no name"));
        }
        spans.sort_by(|one, other| one.0.total_cmp(&other.0).then(other.1.total_cmp(&one.1)));
        let mut open: Vec<f64> = Vec::new();
        for (at, until) in spans.iter() {
            open.retain(|open| open > at);
            if open.iter().any(|open| until > open) {
                return Err(format!("events overlap on track {track:?}: one from {at} to {until}"));
            }
            open.push(*until);
        }
    }
    for (id, ends) in &arrows {
        let [(start, from, leaves), (end, to, arrives)] = &ends[..] else {
            return Err(format!("arrow {id} has {} ends", ends.len()));
        };
        let hangs = |track: &Track, at: f64| {
            spans
                .get(track)
                .is_some_and(|spans| spans.iter().any(|(from, until)| (*from..*until).contains(&at)))
        };
        if (start.as_str(), end.as_str()) != ("s", "f") || leaves > arrives {
            return Err(format!("arrow {id} goes back"));
        }
        if !hangs(from, *leaves) || !hangs(to, *arrives) {
            return Err(format!("arrow {id} hangs on nothing"));
        }
    }
    Ok(events)
}

/// Process names.
pub fn processes(events: &[Value]) -> BTreeSet<String> {
    names(events, "process_name")
}

/// Track names of all processes.
pub fn tracks(events: &[Value]) -> BTreeSet<String> {
    names(events, "thread_name")
}

fn names(events: &[Value], kind: &str) -> BTreeSet<String> {
    let named = events.iter().filter(|event| event["name"] == kind);
    named.filter_map(|event| event["args"]["name"].as_str().map(str::to_owned)).collect()
}

/// Number of flow arrows.
pub fn arrows(events: &[Value]) -> usize {
    events.iter().filter(|event| event["ph"] == "s").count()
}
