//! Chart of a duel: CPU times of the statements of one set, or the sums of several sets.

use serde_json::{Value, json};

use crate::chart::{self, all};

/// Draws what `--json` wrote. Errors: a message about the result.
pub fn svg(result: &Value) -> Result<String, String> {
    let mut drawn = result.clone();
    match all(result, "sets") {
        [] => Err("a duel has sets".to_owned()),
        [one] => {
            drawn["title"] = one["title"].clone();
            drawn["configurations"] = one["configurations"].clone();
            chart::svg(&[drawn], &chart::CPU)
        }
        sets => {
            let mut configurations = sets[0]["configurations"].clone();
            for (at, configuration) in configurations.as_array_mut().into_iter().flatten().enumerate() {
                let sum = |set: &Value| {
                    let mut one = json!({ "query": set["set"] });
                    one[chart::CPU_OF_SETS.key()] = set["configurations"][at]["cpu_s_total"].clone();
                    one
                };
                configuration["queries"] = sets.iter().map(sum).collect();
            }
            drawn["configurations"] = configurations;
            chart::svg(&[drawn], &chart::CPU_OF_SETS)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_set_is_drawn_by_statement_and_several_by_their_sums() {
        let configuration = json!({
            "name": "embedded", "engine": "harrier 1", "cpu_s_total": 2.5,
            "queries": [{"query": "q01a", "cpu_s_median": 2.5}],
        });
        let set =
            |name: &str| json!({"set": name, "title": "Join orders", "configurations": [configuration]});
        let result = |sets: Value| json!({"title": "Duel", "scale": 1.0, "runs": 3, "sets": sets});
        let one = svg(&result(json!([set("joins")]))).unwrap();
        assert!(one.contains("Join orders at scale 1") && one.contains("q01a"), "{one}");
        let both = svg(&result(json!([set("joins"), set("tpch")]))).unwrap();
        assert!(
            both.contains("Duel at scale 1") && both.contains("tpch") && !both.contains("q01a"),
            "{both}"
        );
        assert!(svg(&result(json!([]))).is_err());
    }
}
