//! The metrics of operations.

use std::time::Duration;

use super::page::Page;
use crate::cni::Verb;
use crate::events::{DURATION_BOUNDS, Durations, Totals};

/// In alphabetical order: the verbs whose figures are there before anything was counted, so that the first failure shows as
/// an increase. STATUS is not counted: runtimes ask for it every few seconds.
const VERBS: [Verb; 4] = [Verb::Add, Verb::Check, Verb::Del, Verb::Gc];

/// Operations have two labels whose values are known in advance, so that every figure is there from the start, and no code
/// has to be known to tell failures. Codes are counted apart: as a third label they would split what is mostly added up, and
/// a figure that first appears with a failure shows no increase.
pub fn print(page: &mut Page, totals: &Totals) {
    locks(page, totals);
    durations(page, &totals.durations());
    let mut sums = Vec::new();
    for verb in VERBS {
        sums.extend(["error", "ok"].map(|result| ((verb.as_str(), result), 0_u64)));
    }
    page.counter(
        "operation_errors_total",
        "Failed operations, by error code.",
    );
    for (verb, code, count) in totals.operations() {
        let result = if code == 0 { "ok" } else { "error" };
        let of = (verb, result);
        let place = sums.partition_point(|(known, _)| *known < of);
        match sums.get_mut(place) {
            Some((known, sum)) if *known == of => *sum = sum.saturating_add(count),
            _ => sums.insert(place, (of, count)),
        }
        if code != 0 {
            page.sample(&[("verb", verb), ("code", &code.to_string())], &count);
        }
    }
    page.counter(
        "operations_total",
        "Operations except STATUS and VERSION, by result.",
    );
    for ((verb, result), count) in sums {
        page.sample(&[("verb", verb), ("result", result)], &count);
    }
}

fn locks(page: &mut Page, totals: &Totals) {
    page.counter(
        "lock_wait_seconds_total",
        "Time that operations waited for the lock on the state.",
    );
    page.sample(&[], &seconds(totals.lock_microseconds));
    page.counter(
        "lock_waits_total",
        "Operations that waited for the lock on the state, for a millisecond at least.",
    );
    page.sample(&[], &totals.lock_waits);
}

fn durations(page: &mut Page, all: &[Durations]) {
    page.histogram(
        "operation_duration_seconds",
        "Duration of ADD and DEL, also of failed ones, with the query of the source and the wait for the lock.",
    );
    for durations in all {
        let verb = ("verb", durations.verb.as_str());
        let counts = durations.cumulative();
        let bounds = DURATION_BOUNDS.iter().map(|bound| decimal(*bound));
        let bounds = bounds.chain(["+Inf".to_owned()]);
        for (bound, count) in bounds.zip(counts) {
            page.part("_bucket", &[verb, ("le", &bound)], &count);
        }
        page.part("_sum", &[verb], &seconds(durations.microseconds));
        let all = counts.last().copied().unwrap_or(0);
        page.part("_count", &[verb], &all);
    }
}

/// Microseconds as seconds with six decimals.
fn seconds(microseconds: u64) -> String {
    let duration = Duration::from_micros(microseconds);
    format!("{}.{:06}", duration.as_secs(), duration.subsec_micros())
}

/// Microseconds as seconds with as few decimals as needed.
fn decimal(microseconds: u64) -> String {
    let text = seconds(microseconds);
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buckets_are_cumulative_and_end_with_all() {
        let totals: Totals = serde_json::from_str(
            r#"{"durations": [{"verb": "DEL", "buckets": [1, 0, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 4], "microseconds": 61000007}]}"#,
        )
        .unwrap();
        let mut page = Page::new("x");
        durations(&mut page, &totals.durations());
        let lines: Vec<_> = page.text.lines().collect();
        assert_eq!(lines.len(), 2 + 2 * 16);
        assert_eq!(lines[1], "# TYPE x_operation_duration_seconds histogram");
        for line in [
            r#"x_operation_duration_seconds_bucket{verb="ADD",le="+Inf"} 0"#,
            r#"x_operation_duration_seconds_count{verb="ADD"} 0"#,
            r#"x_operation_duration_seconds_bucket{verb="DEL",le="0.001"} 1"#,
            r#"x_operation_duration_seconds_bucket{verb="DEL",le="0.0025"} 1"#,
            r#"x_operation_duration_seconds_bucket{verb="DEL",le="0.005"} 3"#,
            r#"x_operation_duration_seconds_bucket{verb="DEL",le="1"} 3"#,
            r#"x_operation_duration_seconds_bucket{verb="DEL",le="30"} 3"#,
            r#"x_operation_duration_seconds_bucket{verb="DEL",le="+Inf"} 7"#,
            r#"x_operation_duration_seconds_sum{verb="DEL"} 61.000007"#,
            r#"x_operation_duration_seconds_count{verb="DEL"} 7"#,
        ] {
            assert!(lines.contains(&line), "{line}\n{}", page.text);
        }
    }
}
