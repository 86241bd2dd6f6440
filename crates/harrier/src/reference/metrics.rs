//! Reference page of metrics, generated from the output of `/metrics`.

use harrier_server::metrics;

use super::page::{Page, code};

/// A metric family of the text format.
#[derive(Default)]
struct Family {
    name: String,
    kind: String,
    help: String,
    /// Label names, and the values of each.
    labels: Vec<(String, Vec<String>)>,
}

/// Labels with unbounded values, which are not listed.
const OPEN: [&str; 5] = ["rank", "host", "queue", "version", "le"];

/// Errors: the metrics cannot be rendered.
pub(super) fn page() -> Result<String, String> {
    let mut page = Page::new(
        "Metrics",
        "This page lists the metrics that `/metrics` of a server has, with their types, labels and meanings.",
    );
    page.paragraph(
        "The format is OpenMetrics text, which Prometheus reads; [Monitor a server](../how-to/monitoring.md) tells how \
         to collect it. A counter only grows while the server runs, a gauge goes up and down, and a histogram has \
         samples that end in `_bucket`, `_sum` and `_count`. Metrics of ranks are there while there is a gang.",
    );
    let text = metrics::sample().map_err(|error| error.to_string())?;
    let rows = families(&text).into_iter().map(|family| {
        let labels: Vec<String> = family.labels.iter().map(label).collect();
        let name = match family.kind.as_str() {
            "counter" => format!("{}_total", family.name),
            _ => family.name.clone(),
        };
        [code(&name), family.kind, labels.join("; "), family.help]
    });
    page.table(["metric", "type", "labels", "meaning"], rows.collect());
    Ok(page.finish())
}

fn label((name, values): &(String, Vec<String>)) -> String {
    match OPEN.contains(&name.as_str()) {
        true => code(name),
        false => format!("{}: {}", code(name), values.join(", ")),
    }
}

fn families(text: &str) -> Vec<Family> {
    let mut families: Vec<Family> = Vec::new();
    for line in text.lines() {
        if let Some(rest) = line.strip_prefix("# HELP ") {
            let (name, help) = rest.split_once(' ').unwrap_or((rest, ""));
            families.push(Family { name: name.to_string(), help: help.to_string(), ..Family::default() });
            continue;
        }
        let Some(family) = families.last_mut() else { continue };
        if let Some(rest) = line.strip_prefix("# TYPE ") {
            family.kind = rest.rsplit(' ').next().unwrap_or_default().to_string();
        } else if let Some((_, rest)) = line.split_once('{').filter(|_| !line.starts_with('#')) {
            let labels = rest.split_once('}').map_or("", |(labels, _)| labels);
            for (name, value) in labels.split(',').filter_map(|label| label.split_once('=')) {
                let value = value.trim_matches('"').to_string();
                match family.labels.iter_mut().find(|(known, _)| known == name) {
                    Some((_, values)) if values.contains(&value) => {}
                    Some((_, values)) => values.push(value),
                    None => family.labels.push((name.to_string(), vec![value])),
                }
            }
        }
    }
    families
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn families_have_their_labels() {
        let text = "# HELP a_b What.\n# TYPE a_b counter\na_b_total{x=\"1\",y=\"2\"} 0\na_b_total{x=\"3\",y=\"2\"} 0\n# EOF\n";
        let families = families(text);
        assert_eq!(families.len(), 1);
        let Family { name, kind, help, labels } = &families[0];
        assert_eq!((name.as_str(), kind.as_str(), help.as_str()), ("a_b", "counter", "What."));
        let texts = |values: &[&str]| values.iter().map(|value| value.to_string()).collect::<Vec<_>>();
        assert_eq!(labels[..], [("x".to_string(), texts(&["1", "3"])), ("y".to_string(), texts(&["2"]))]);
    }
}
