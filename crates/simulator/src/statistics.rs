// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Means over seeds, and how sure they are.

/// Two-sided 95 % quantiles of Student's t for 1 to 30 degrees of freedom.
const T95: [f64; 30] = [
    12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179, 2.160,
    2.145, 2.131, 2.120, 2.110, 2.101, 2.093, 2.086, 2.080, 2.074, 2.069, 2.064, 2.060, 2.056,
    2.052, 2.048, 2.045, 2.042,
];

/// A mean, and the half width of its 95 % confidence interval.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Mean {
    /// The mean.
    pub mean: f64,
    /// Half the width; 0 for one value, of which nothing can be said.
    pub half_width: f64,
    /// Values.
    pub count: usize,
}

impl Mean {
    /// Of values that are taken to be normally distributed, as means over a run are.
    /// `None` without any.
    pub fn of(values: &[f64]) -> Option<Self> {
        let count = values.len();
        if count == 0 {
            return None;
        }
        let n = count as f64;
        let mean = values.iter().sum::<f64>() / n;
        let half_width = if count == 1 {
            0.0
        } else {
            let squares = values.iter().map(|value| (value - mean).powi(2));
            let deviation = (squares.sum::<f64>() / (n - 1.0)).sqrt();
            let t = T95.get(count - 2).copied().unwrap_or(1.96);
            t * deviation / n.sqrt()
        };
        Some(Mean {
            mean,
            half_width,
            count,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn five_values() {
        let mean = Mean::of(&[1.0, 2.0, 3.0, 4.0, 5.0]).expect("values");
        assert_eq!((mean.mean, mean.count), (3.0, 5));
        // t = 2.776, s = 1.5811, sqrt(5) = 2.2361.
        assert!((mean.half_width - 1.963).abs() < 1e-3);
        assert_eq!(Mean::of(&[7.0]).expect("one").half_width, 0.0);
    }
}
