//! What was measured many times, and what is said of it.

use std::time::Duration;

use serde::Serialize;

/// Measured values of one kind.
#[derive(Clone, Debug, Default)]
pub(crate) struct Samples(Vec<f64>);

/// Measured times, in short.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(crate) struct Times {
    pub(crate) p50_ms: f64,
    pub(crate) p90_ms: f64,
    pub(crate) p99_ms: f64,
    pub(crate) samples: usize,
}

impl Samples {
    /// Adds a time, in milliseconds.
    pub(crate) fn add_time(&mut self, time: Duration) {
        self.add(time.as_secs_f64() * 1_000.0);
    }

    /// Adds a value.
    pub(crate) fn add(&mut self, value: f64) {
        self.0.push(value);
    }

    /// The least value that so many percent do not exceed; nothing of nothing.
    pub(crate) fn percentile(&self, percent: usize) -> Option<f64> {
        let mut values = self.0.clone();
        values.sort_by(f64::total_cmp);
        let place = (values.len() * percent).div_ceil(100).max(1) - 1;
        values.get(place).copied()
    }

    /// The median.
    pub(crate) fn median(&self) -> Option<f64> {
        self.percentile(50)
    }

    /// What is said of times.
    pub(crate) fn times(&self) -> Option<Times> {
        let at = |percent| self.percentile(percent).map(|value| rounded(value, 3));
        Some(Times { p50_ms: at(50)?, p90_ms: at(90)?, p99_ms: at(99)?, samples: self.0.len() })
    }

    /// All values, as they came.
    pub(crate) fn values(&self) -> &[f64] {
        &self.0
    }
}

/// A value with so many digits behind the point: more would be noise.
pub(crate) fn rounded(value: f64, digits: i32) -> f64 {
    let scale = 10_f64.powi(digits);
    (value * scale).round() / scale
}

#[cfg(test)]
mod tests {
    use super::*;

    fn samples(values: &[f64]) -> Samples {
        Samples(values.to_vec())
    }

    #[test]
    fn percentiles_are_values_that_were_measured() {
        let hundred: Vec<f64> = (1..=100).rev().map(f64::from).collect();
        let hundred = samples(&hundred);
        assert_eq!(
            (hundred.median(), hundred.percentile(90), hundred.percentile(99)),
            (Some(50.0), Some(90.0), Some(99.0))
        );
        assert_eq!(samples(&[3.0, 1.0, 2.0]).median(), Some(2.0));
        assert_eq!(samples(&[7.0]).percentile(99), Some(7.0));
        assert_eq!(samples(&[]).median(), None);
        assert!(samples(&[]).times().is_none());
    }

    #[test]
    fn times_are_in_milliseconds() {
        let mut times = Samples::default();
        times.add_time(Duration::from_micros(1_234_567));
        assert_eq!(
            times.times().unwrap(),
            Times { p50_ms: 1_234.567, p90_ms: 1_234.567, p99_ms: 1_234.567, samples: 1 }
        );
    }
}
