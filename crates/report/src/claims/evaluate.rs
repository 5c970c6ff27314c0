// SPDX-License-Identifier: Apache-2.0 OR MIT
//! From a [`Claim`] and results to the [`Hold`]s.

use indexmap::IndexMap;

use super::{
    Arithmetic, Claim, ClaimError, Expression, Function, Operator, Over, Pattern, Piece, Reference,
    Statistic,
};
use crate::results::{larger_is_better, Hold, Metric, Results};

/// Why a claim does not fit the results.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum EvaluateError {
    /// No variant of that name.
    #[error("claim `{claim}`: there is no variant `{variant}`; there are {known}")]
    NoVariant {
        /// The claim as written.
        claim: String,
        /// The name or pattern.
        variant: String,
        /// The variants there are.
        known: String,
    },
    /// The variant has no such metric.
    #[error("claim `{claim}`: the variant `{variant}` has no metric `{metric}`; it has {known}")]
    NoMetric {
        /// The claim as written.
        claim: String,
        /// The variant.
        variant: String,
        /// The name or pattern.
        metric: String,
        /// The metrics it has.
        known: String,
    },
    /// The metric has no bound.
    #[error("claim `{claim}`: there is no bound for `{metric}`; there are bounds for {known}")]
    NoBound {
        /// The claim as written.
        claim: String,
        /// The metric.
        metric: String,
        /// The metrics with a bound.
        known: String,
    },
    /// Division by zero, numbers past the range, or the geometric mean of negative ones.
    #[error("claim `{claim}`: the right side is {value} for `{subject}`, which nothing can be compared with")]
    NotFinite {
        /// The claim as written.
        claim: String,
        /// The reference on the left side, filled in.
        subject: String,
        /// Infinite or NaN.
        value: f64,
    },
}

/// Parses and judges `claims` one after the other.
///
/// # Errors
/// The first [`ClaimError`]: nothing is judged in part.
pub fn evaluate_all<S: AsRef<str>>(
    claims: &[S],
    results: &Results,
) -> Result<Vec<Hold>, ClaimError> {
    let mut holds = Vec::new();
    for text in claims {
        holds.extend(Claim::parse(text.as_ref())?.evaluate(results)?);
    }
    Ok(holds)
}

impl Claim {
    /// Judges the claim: one [`Hold`] per match of the wildcards on its left
    /// side, one in all if there are none, or if it is about all of them together.
    ///
    /// # Errors
    /// [`EvaluateError`] if a name, or a choice of a wildcard, is not in `results`.
    pub fn evaluate(&self, results: &Results) -> Result<Vec<Hold>, EvaluateError> {
        let judged = self.subjects(results)?.into_iter().map(|subject| {
            let judge = Judge {
                claim: self,
                results,
                subject,
            };
            judge.judge()
        });
        let judged = judged.collect::<Result<Vec<_>, _>>()?;
        let together = |value, pass| {
            let claim = self.text.clone();
            Ok(vec![Hold { claim, value, pass }])
        };
        match self.over {
            Over::Each => Ok(judged.into_iter().map(|judged| judged.hold).collect()),
            Over::Share(least) => {
                let held = judged.iter().filter(|judged| judged.hold.pass).count();
                let share = held as f64 / judged.len() as f64;
                together(share, share >= least)
            }
            Over::Geomean => {
                let value = geometric_mean(judged.iter().map(|judged| judged.hold.value));
                let limit = geometric_mean(judged.iter().map(|judged| judged.limit));
                if !(value.is_finite() && limit.is_finite()) {
                    return Err(EvaluateError::NotFinite {
                        claim: self.text.clone(),
                        subject: "geomean".to_owned(),
                        value: if value.is_finite() { limit } else { value },
                    });
                }
                together(value, self.operator.holds(value, limit))
            }
        }
    }

    /// The matches of the left side.
    fn subjects<'r>(&self, results: &'r Results) -> Result<Vec<Subject<'r>>, EvaluateError> {
        let pattern = self
            .left
            .metric
            .as_ref()
            .expect("the parser wants a metric on the left side");
        let mut subjects = Vec::new();
        for choice in choices(&self.left.variant) {
            let variants = matches(&choice, &results.variants);
            if variants.is_empty() {
                return Err(self.no_variant(&display(&choice), results));
            }
            for (variant, metrics, variant_captures) in variants {
                for choice in choices(pattern) {
                    let found = matches(&choice, metrics);
                    if found.is_empty() {
                        return Err(self.no_metric(variant, &display(&choice), metrics));
                    }
                    subjects.extend(found.into_iter().map(|(metric, value, metric_captures)| {
                        Subject {
                            variant,
                            metric,
                            value,
                            variant_captures: variant_captures.clone(),
                            metric_captures,
                        }
                    }));
                }
            }
        }
        Ok(subjects)
    }

    fn no_variant(&self, variant: &str, results: &Results) -> EvaluateError {
        EvaluateError::NoVariant {
            claim: self.text.clone(),
            variant: variant.to_owned(),
            known: list(results.variants.keys()),
        }
    }

    fn no_metric(
        &self,
        variant: &str,
        metric: &str,
        metrics: &IndexMap<String, Metric>,
    ) -> EvaluateError {
        EvaluateError::NoMetric {
            claim: self.text.clone(),
            variant: variant.to_owned(),
            metric: metric.to_owned(),
            known: list(metrics.keys()),
        }
    }
}

/// One match of the left side.
struct Subject<'r> {
    variant: &'r str,
    metric: &'r str,
    value: &'r Metric,
    variant_captures: Vec<String>,
    metric_captures: Vec<String>,
}

/// The form of the right side, for the reported ratio.
#[derive(Clone, Copy)]
enum Shape {
    Constant,
    /// A number times this quantity.
    Scaled(f64),
    Mixed,
}

/// The verdict about one subject.
struct Judged {
    hold: Hold,
    /// The limit of the hold's value.
    limit: f64,
}

/// A claim about one subject.
struct Judge<'a> {
    claim: &'a Claim,
    results: &'a Results,
    subject: Subject<'a>,
}

impl Judge<'_> {
    fn judge(&self) -> Result<Judged, EvaluateError> {
        let left = statistic(self.subject.value, self.claim.left.statistic);
        let (right, shape) = self.value(&self.claim.right)?;
        if !right.is_finite() {
            return Err(EvaluateError::NotFinite {
                claim: self.claim.text.clone(),
                subject: format!("{}/{}", self.subject.variant, self.subject.metric),
                value: right,
            });
        }
        let quantity = match shape {
            Shape::Constant => 1.0,
            Shape::Scaled(quantity) => quantity,
            Shape::Mixed => right,
        };
        let (value, limit) = match left / quantity {
            ratio if ratio.is_finite() => (ratio, right / quantity),
            _ => (left, right),
        };
        let hold = Hold {
            claim: self.filled_in(),
            value,
            pass: Operator::holds(self.claim.operator, left, right),
        };
        Ok(Judged { hold, limit })
    }

    fn value(&self, expression: &Expression) -> Result<(f64, Shape), EvaluateError> {
        Ok(match expression {
            Expression::Number(number) => (*number, Shape::Constant),
            Expression::Reference(reference) => {
                let quantity = self.look_up(reference)?;
                (quantity, Shape::Scaled(quantity))
            }
            Expression::Arithmetic(a, operator, b) => {
                let ((a, a_shape), (b, b_shape)) = (self.value(a)?, self.value(b)?);
                let value = match operator {
                    Arithmetic::Add => a + b,
                    Arithmetic::Subtract => a - b,
                    Arithmetic::Multiply => a * b,
                    Arithmetic::Divide => a / b,
                };
                let shape = match (a_shape, operator, b_shape) {
                    (Shape::Constant, _, Shape::Constant) => Shape::Constant,
                    (
                        scaled @ Shape::Scaled(_),
                        Arithmetic::Multiply | Arithmetic::Divide,
                        Shape::Constant,
                    )
                    | (Shape::Constant, Arithmetic::Multiply, scaled @ Shape::Scaled(_)) => scaled,
                    _ => Shape::Mixed,
                };
                (value, shape)
            }
            Expression::Function(function, arguments) => {
                let values = arguments
                    .iter()
                    .map(|argument| self.value(argument))
                    .collect::<Result<Vec<_>, _>>()?;
                let greatest = match function {
                    Function::Min => false,
                    Function::Max => true,
                    Function::Best => larger_is_better(self.subject.metric),
                };
                let pick = if greatest { f64::max } else { f64::min };
                let value = values
                    .iter()
                    .map(|(value, _)| *value)
                    .reduce(pick)
                    .expect("one argument or more");
                let shape = match values.as_slice() {
                    [(_, only)] => *only,
                    all if all.iter().all(|(_, s)| matches!(s, Shape::Constant)) => Shape::Constant,
                    all if all
                        .iter()
                        .all(|(v, s)| matches!(s, Shape::Scaled(q) if q == v)) =>
                    {
                        Shape::Scaled(value)
                    }
                    _ => Shape::Mixed,
                };
                (value, shape)
            }
        })
    }

    fn look_up(&self, reference: &Reference) -> Result<f64, EvaluateError> {
        let (variant, metric) = self.names(reference);
        if variant == "bound" {
            return self.results.bounds.get(&metric).copied().ok_or_else(|| {
                EvaluateError::NoBound {
                    claim: self.claim.text.clone(),
                    metric,
                    known: list(self.results.bounds.keys()),
                }
            });
        }
        let metrics = self
            .results
            .variants
            .get(&variant)
            .ok_or_else(|| self.claim.no_variant(&variant, self.results))?;
        let found = metrics
            .get(&metric)
            .ok_or_else(|| self.claim.no_metric(&variant, &metric, metrics))?;
        Ok(statistic(found, reference.statistic))
    }

    /// Variant and metric that a reference on the right side means here.
    fn names(&self, reference: &Reference) -> (String, String) {
        let variant = reference.variant.fill(&self.subject.variant_captures);
        let metric = match &reference.metric {
            Some(metric) => metric.fill(&self.subject.metric_captures),
            None => self.subject.metric.to_owned(),
        };
        (variant, metric)
    }

    /// The claim's text with its wildcards replaced.
    fn filled_in(&self) -> String {
        let mut references = vec![(&self.claim.left, self.subject.variant.to_owned(), {
            Some(self.subject.metric.to_owned())
        })];
        collect(&self.claim.right, &mut |reference| {
            let (variant, metric) = self.names(reference);
            references.push((
                reference,
                variant,
                reference.metric.as_ref().map(|_| metric),
            ));
        });
        let mut text = String::new();
        let mut copied = 0;
        for (reference, variant, metric) in references {
            text.push_str(&self.claim.text[copied..reference.span.start]);
            text.push_str(&variant);
            if let Some(metric) = metric {
                text.push('/');
                text.push_str(&metric);
            }
            text.push_str(match reference.statistic {
                None => "",
                Some(Statistic::Median) => "@median",
                Some(Statistic::Min) => "@min",
                Some(Statistic::Max) => "@max",
                Some(Statistic::Mean) => "@mean",
            });
            copied = reference.span.end;
        }
        text.push_str(&self.claim.text[copied..]);
        text
    }
}

/// Calls `visit` with every reference, in the order of the text.
fn collect<'e>(expression: &'e Expression, visit: &mut dyn FnMut(&'e Reference)) {
    match expression {
        Expression::Number(_) => {}
        Expression::Reference(reference) => visit(reference),
        Expression::Arithmetic(a, _, b) => {
            collect(a, visit);
            collect(b, visit);
        }
        Expression::Function(_, arguments) => {
            arguments
                .iter()
                .for_each(|argument| collect(argument, visit));
        }
    }
}

/// Of no negative numbers: zero if one of them is; else NaN.
fn geometric_mean(numbers: impl ExactSizeIterator<Item = f64>) -> f64 {
    let count = numbers.len() as f64;
    (numbers.map(f64::ln).sum::<f64>() / count).exp()
}

fn statistic(metric: &Metric, statistic: Option<Statistic>) -> f64 {
    match statistic.unwrap_or(Statistic::Median) {
        Statistic::Median => metric.median,
        Statistic::Min => metric.min,
        Statistic::Max => metric.max,
        Statistic::Mean => metric.runs.iter().sum::<f64>() / metric.runs.len() as f64,
    }
}

/// A piece of a pattern whose choices are made.
#[derive(Clone)]
enum Chosen<'p> {
    Literal(&'p str),
    Choice(&'p str),
    Any,
}

/// Every way to make the choices of `pattern`, in the order written.
fn choices(pattern: &Pattern) -> Vec<Vec<Chosen<'_>>> {
    let mut all = vec![Vec::new()];
    for piece in &pattern.0 {
        let options: Vec<Chosen> = match piece {
            Piece::Literal(text) => vec![Chosen::Literal(text)],
            Piece::Any => vec![Chosen::Any],
            Piece::OneOf(choices) => choices.iter().map(|text| Chosen::Choice(text)).collect(),
        };
        all = all
            .into_iter()
            .flat_map(|chosen| {
                options
                    .iter()
                    .map(move |option| [chosen.as_slice(), std::slice::from_ref(option)].concat())
            })
            .collect();
    }
    all
}

fn display(chosen: &[Chosen]) -> String {
    chosen
        .iter()
        .map(|piece| match piece {
            Chosen::Literal(text) | Chosen::Choice(text) => text,
            Chosen::Any => "*",
        })
        .collect()
}

/// The entries whose key `chosen` matches, with the texts of its wildcards.
fn matches<'m, T>(
    chosen: &[Chosen],
    map: &'m IndexMap<String, T>,
) -> Vec<(&'m str, &'m T, Vec<String>)> {
    map.iter()
        .filter_map(|(key, value)| {
            let mut captures = Vec::new();
            matches_text(chosen, key, &mut captures).then_some((key.as_str(), value, captures))
        })
        .collect()
}

fn matches_text(chosen: &[Chosen], text: &str, captures: &mut Vec<String>) -> bool {
    let Some((first, others)) = chosen.split_first() else {
        return text.is_empty();
    };
    let mut go_on = |length: usize, capture: bool| {
        let depth = captures.len();
        if capture {
            captures.push(text[..length].to_owned());
        }
        let matched = matches_text(others, &text[length..], captures);
        if !matched {
            captures.truncate(depth);
        }
        matched
    };
    match first {
        Chosen::Literal(literal) => text.starts_with(literal) && go_on(literal.len(), false),
        Chosen::Choice(choice) => text.starts_with(choice) && go_on(choice.len(), true),
        Chosen::Any => text
            .char_indices()
            .any(|(index, c)| go_on(index + c.len_utf8(), true)),
    }
}

fn list<'n>(names: impl Iterator<Item = &'n String>) -> String {
    let names: Vec<String> = names.map(|name| format!("`{name}`")).collect();
    if names.is_empty() {
        "none".to_owned()
    } else {
        names.join(", ")
    }
}
