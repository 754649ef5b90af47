//! The text format of Prometheus.

use std::fmt::Display;
use std::mem;
use std::time::Duration;

/// The text printed so far.
#[derive(Default)]
pub struct Page {
    /// The text.
    pub text: String,
    /// The prefix of every name.
    prefix: String,
    /// The full name of the current metric.
    name: String,
    /// HELP and TYPE of the current metric, until its first sample is printed.
    heading: String,
}

impl Page {
    /// Creates an empty page. The names begin with that of the program, as one collector may read the metrics of both names, and
    /// refuses what is there twice.
    pub fn new(program: &str) -> Page {
        Page {
            prefix: program.replace('-', "_"),
            ..Page::default()
        }
    }

    /// Begins a histogram.
    pub fn histogram(&mut self, name: &str, help: &str) {
        self.head("histogram", name, help);
    }

    /// Begins a gauge.
    pub fn gauge(&mut self, name: &str, help: &str) {
        self.head("gauge", name, help);
    }

    /// Begins a counter.
    pub fn counter(&mut self, name: &str, help: &str) {
        self.head("counter", name, help);
    }

    fn head(&mut self, kind: &str, name: &str, help: &str) {
        self.name = format!("{}_{name}", self.prefix);
        let name = &self.name;
        self.heading = format!("# HELP {name} {help}\n# TYPE {name} {kind}\n");
    }

    /// Prints a value of the current metric.
    pub fn sample(&mut self, labels: &[(&str, &str)], value: &dyn Display) {
        self.part("", labels, value);
    }

    /// Prints a value of one part of the current metric, such as a bucket of a histogram.
    pub fn part(&mut self, suffix: &str, labels: &[(&str, &str)], value: &dyn Display) {
        self.text += &mem::take(&mut self.heading);
        self.text += &self.name;
        self.text += suffix;
        for (n, (label, text)) in labels.iter().enumerate() {
            self.text.push(if n == 0 { '{' } else { ',' });
            self.text += label;
            self.text += "=\"";
            for c in text.chars() {
                match c {
                    '\n' => self.text += "\\n",
                    '"' | '\\' => self.text.extend(['\\', c]),
                    c => self.text.push(c),
                }
            }
            self.text.push('"');
        }
        if !labels.is_empty() {
            self.text.push('}');
        }
        self.text += &format!(" {value}\n");
    }
}

/// Seconds with three decimals.
pub fn seconds(duration: Duration) -> String {
    format!("{}.{:03}", duration.as_secs(), duration.subsec_millis())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_are_escaped() {
        let mut page = Page::new("azure-vnet-ipam");
        page.gauge("x", "X.");
        page.sample(&[("a", "1\\2\"3\n4"), ("b", "")], &5);
        let line = page.text.lines().last().unwrap();
        assert_eq!(line, r#"azure_vnet_ipam_x{a="1\\2\"3\n4",b=""} 5"#);
    }
}
