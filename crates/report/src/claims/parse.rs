// SPDX-License-Identifier: Apache-2.0 OR MIT
//! From text to [`Claim`].

use super::{
    Arithmetic, Claim, Expression, Function, Operator, Over, Pattern, Piece, Reference, Statistic,
};

/// Parentheses within parentheses, at most: the parser recurses.
const MOST_NESTED: usize = 32;
/// `*` in one name, at most: matching tries their lengths against each other.
const MOST_STARS: usize = 3;
/// Names that the braces of one name may expand to.
const MOST_CHOICES: usize = 1000;

/// Text that is not a claim.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[error("claim `{claim}`, column {column}: {problem}")]
pub struct ParseError {
    /// The whole text.
    pub claim: String,
    /// Where it goes wrong, in characters from 1.
    pub column: usize,
    /// The problem there.
    pub problem: Problem,
}

/// Problems of the text of a claim.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum Problem {
    /// Something else had to stand here.
    #[error("expected {wanted}, found {found}")]
    Expected {
        /// The text that may stand here.
        wanted: &'static str,
        /// The text found here.
        found: String,
    },
    /// The left side is a variant without a metric.
    #[error("the left side names a variant and a metric, such as `{0}/completion_s/1MB`")]
    NoMetric(String),
    /// A name with nothing between two slashes, or at an end.
    #[error("`{0}` has an empty part")]
    EmptyPart(String),
    /// A number with a unit.
    #[error("`{0}` is not a number: write it in the metric's own unit without a suffix, `0.110` for 110 ms")]
    Suffix(String),
    /// `%` after something else than a share.
    #[error("`{0}%` is no share: 0% to 100%, as in `95% of`")]
    Percent(String),
    /// `@` followed by something else than a statistic.
    #[error("`@{0}` is unknown: `@median`, `@mean`, `@min` and `@max` are there")]
    Statistic(String),
    /// A name followed by `(` that is no function.
    #[error("there is no function `{0}`: `min`, `max` and `best` are there")]
    Function(String),
    /// `{` without `}`, the reverse, or braces within braces.
    #[error("the braces of `{0}` do not match: a choice is written `{{100KB,1MB}}`")]
    Braces(String),
    /// Too many wildcards to match.
    #[error("`{0}` has too many wildcards: at most 3 `*` and 1000 choices in one name")]
    Wildcards(String),
    /// A wildcard on the right side with nothing on the left side to fill it.
    #[error(
        "`{0}` has a wildcard that none on the left side fills (to multiply, put a space on each side of `*`)"
    )]
    Unfilled(String),
    /// Some of the left side's wildcards are filled in on the right side, and some not.
    #[error(
        "`{shown}` has {has} of the left side's {of} wildcards: give it all of them, or the variant's name alone, which means the metric of the left side"
    )]
    Fewer {
        /// The name.
        shown: String,
        /// Its wildcards.
        has: usize,
        /// Those of the left side.
        of: usize,
    },
    /// Parentheses too deep.
    #[error("parentheses are nested more than 32 deep")]
    Nested,
}

impl Claim {
    /// Parses one claim.
    ///
    /// # Errors
    /// [`ParseError`] with the column and the right form.
    pub fn parse(text: &str) -> Result<Self, ParseError> {
        let text = text.trim();
        let mut parser = Parser {
            text,
            at: 0,
            nested: 0,
        };
        parser.claim().map_err(|(at, problem)| ParseError {
            claim: text.to_owned(),
            column: text[..at].chars().count() + 1,
            problem,
        })
    }
}

/// Byte offset and problem; the column is counted once, at the end.
type Parsed<T> = Result<T, (usize, Problem)>;

struct Parser<'a> {
    text: &'a str,
    /// Byte offset of the next character to read, always at a character's first byte.
    at: usize,
    nested: usize,
}

impl<'a> Parser<'a> {
    fn claim(&mut self) -> Parsed<Claim> {
        let over = self.over()?;
        let left = self.left()?;
        let operator = self.operator()?;
        let right = self.sum()?;
        if !self.rest().is_empty() {
            return Err(self.expected("the end of the claim, or an operator with spaces around it"));
        }
        check_filled(&right, &left)?;
        Ok(Claim {
            text: self.text.to_owned(),
            over,
            left,
            operator,
            right,
        })
    }

    /// `geomean of`, `N% of` or nothing.
    fn over(&mut self) -> Parsed<Over> {
        self.skip_space();
        let start = self.at;
        if self.take("geomean of ") {
            return Ok(Over::Geomean);
        }
        let Some((number, after)) = self.rest().split_once('%') else {
            return Ok(Over::Each);
        };
        let Some(after) = after.strip_prefix(" of ") else {
            return Ok(Over::Each);
        };
        match number.parse::<f64>() {
            Ok(percent) if (0.0..=100.0).contains(&percent) => {
                self.at = self.text.len() - after.len();
                Ok(Over::Share(percent / 100.0))
            }
            _ => Err((start, Problem::Percent(number.to_owned()))),
        }
    }

    fn left(&mut self) -> Parsed<Reference> {
        self.skip_space();
        let start = self.at;
        let word = self.word();
        if word.is_empty() {
            return Err(self.expected("a reference such as `paceline/completion_s/1MB`"));
        }
        let reference = reference(word, start)?;
        if reference.metric.is_none() {
            return Err((start, Problem::NoMetric(word.to_owned())));
        }
        Ok(reference)
    }

    fn operator(&mut self) -> Parsed<Operator> {
        self.skip_space();
        for (sign, operator) in [
            ("<=", Operator::AtMost),
            (">=", Operator::AtLeast),
            ("<", Operator::Less),
            (">", Operator::Greater),
        ] {
            if self.take(sign) {
                return Ok(operator);
            }
        }
        Err(self.expected("`<=`, `<`, `>=` or `>`"))
    }

    fn sum(&mut self) -> Parsed<Expression> {
        let mut left = self.product()?;
        loop {
            let operator = if self.take("+") {
                Arithmetic::Add
            } else if self.take("-") {
                Arithmetic::Subtract
            } else {
                return Ok(left);
            };
            left = Expression::Arithmetic(Box::new(left), operator, Box::new(self.product()?));
        }
    }

    fn product(&mut self) -> Parsed<Expression> {
        let mut left = self.operand()?;
        loop {
            let operator = if self.take("*") {
                Arithmetic::Multiply
            } else if self.take("/") {
                Arithmetic::Divide
            } else {
                return Ok(left);
            };
            left = Expression::Arithmetic(Box::new(left), operator, Box::new(self.operand()?));
        }
    }

    fn operand(&mut self) -> Parsed<Expression> {
        self.skip_space();
        let start = self.at;
        if self.take("(") {
            let inner = self.within(Self::sum)?;
            self.close()?;
            return Ok(inner);
        }
        if let Some(number) = self.number()? {
            return Ok(Expression::Number(number));
        }
        let word = self.word();
        if word.is_empty() {
            return Err(self.expected("a number, `bound`, a variant, a reference or a function"));
        }
        if self.rest().starts_with('(') {
            let function = match word {
                "min" => Function::Min,
                "max" => Function::Max,
                "best" => Function::Best,
                _ => return Err((start, Problem::Function(word.to_owned()))),
            };
            self.at += 1;
            let arguments = self.within(Self::arguments)?;
            self.close()?;
            return Ok(Expression::Function(function, arguments));
        }
        Ok(Expression::Reference(reference(word, start)?))
    }

    fn arguments(&mut self) -> Parsed<Vec<Expression>> {
        let mut arguments = vec![self.sum()?];
        while self.take(",") {
            arguments.push(self.sum()?);
        }
        Ok(arguments)
    }

    fn within<T>(&mut self, inner: fn(&mut Self) -> Parsed<T>) -> Parsed<T> {
        if self.nested == MOST_NESTED {
            return Err((self.at, Problem::Nested));
        }
        self.nested += 1;
        let result = inner(self);
        self.nested -= 1;
        result
    }

    fn close(&mut self) -> Parsed<()> {
        if self.take(")") {
            Ok(())
        } else {
            Err(self.expected("`)`"))
        }
    }

    /// A number, unless what starts with a digit is a name (`16x32KB/round_s`).
    fn number(&mut self) -> Parsed<Option<f64>> {
        let rest = self.rest();
        if !rest.starts_with(|c: char| c.is_ascii_digit() || c == '.') {
            return Ok(None);
        }
        let digits =
            |text: &str| text.len() - text.trim_start_matches(|c: char| c.is_ascii_digit()).len();
        let mut length = digits(rest);
        if rest[length..].starts_with('.') {
            length += 1 + digits(&rest[length + 1..]);
        }
        if let Some(exponent) = rest[length..].strip_prefix(['e', 'E']) {
            let sign = usize::from(exponent.starts_with(['+', '-']));
            let power = digits(&exponent[sign..]);
            if power > 0 {
                length += 1 + sign + power;
            }
        }
        let start = self.at;
        let word = Parser {
            text: self.text,
            at: start,
            nested: 0,
        }
        .word();
        let multiplied = rest[length..].starts_with(['*', '/']);
        if word.len() > length && !multiplied {
            if word.contains('/') {
                return Ok(None);
            }
            return Err((start, Problem::Suffix(word.to_owned())));
        }
        match rest[..length].parse::<f64>() {
            Ok(number) if number.is_finite() => {
                self.at += length;
                Ok(Some(number))
            }
            _ => Err((start, Problem::Suffix(rest[..length].to_owned()))),
        }
    }

    /// The longest run of characters that names and wildcards are made of.
    fn word(&mut self) -> &'a str {
        let rest = self.rest();
        let mut in_braces = false;
        let end = rest
            .find(|c: char| {
                match c {
                    '{' => in_braces = true,
                    '}' => in_braces = false,
                    ',' => return !in_braces,
                    _ => return !(c.is_alphanumeric() || "_.-+/*@#".contains(c)),
                }
                false
            })
            .unwrap_or(rest.len());
        self.at += end;
        &rest[..end]
    }

    fn rest(&self) -> &'a str {
        &self.text[self.at..]
    }

    fn skip_space(&mut self) {
        self.at = self.text.len() - self.rest().trim_start().len();
    }

    /// Skips space, then `sign` and the space after it, if it is there.
    fn take(&mut self, sign: &str) -> bool {
        self.skip_space();
        let there = self.rest().starts_with(sign);
        if there {
            self.at += sign.len();
            self.skip_space();
        }
        there
    }

    fn expected(&self, wanted: &'static str) -> (usize, Problem) {
        let found = match self.rest().split_whitespace().next() {
            Some(word) => format!("`{word}`"),
            None => "the end".to_owned(),
        };
        (self.at, Problem::Expected { wanted, found })
    }
}

/// Takes `word`, which stands at byte `start`, apart.
fn reference(word: &str, start: usize) -> Parsed<Reference> {
    let (path, statistic) = match word.split_once('@') {
        None => (word, None),
        Some((path, name)) => {
            let statistic = match name {
                "median" => Statistic::Median,
                "min" => Statistic::Min,
                "max" => Statistic::Max,
                "mean" => Statistic::Mean,
                _ => return Err((start + path.len(), Problem::Statistic(name.to_owned()))),
            };
            (path, Some(statistic))
        }
    };
    if path.split('/').any(str::is_empty) {
        return Err((start, Problem::EmptyPart(word.to_owned())));
    }
    let (variant, metric) = match path.split_once('/') {
        Some((variant, metric)) => (variant, Some(metric)),
        None => (path, None),
    };
    Ok(Reference {
        span: start..start + word.len(),
        variant: pattern(variant, start)?,
        metric: match metric {
            Some(metric) => Some(pattern(metric, start + variant.len() + 1)?),
            None => None,
        },
        statistic,
    })
}

/// Finds the wildcards in `name`, which stands at byte `start`.
fn pattern(name: &str, start: usize) -> Parsed<Pattern> {
    let braces = || (start, Problem::Braces(name.to_owned()));
    let mut pieces = Vec::new();
    let mut rest = name;
    while let Some(first) = rest.chars().next() {
        match first {
            '*' => {
                pieces.push(Piece::Any);
                rest = &rest[1..];
            }
            '{' => {
                let (inside, after) = rest[1..].split_once('}').ok_or_else(braces)?;
                if inside.contains(['{', '*']) || inside.split(',').any(str::is_empty) {
                    return Err(braces());
                }
                pieces.push(Piece::OneOf(inside.split(',').map(str::to_owned).collect()));
                rest = after;
            }
            '}' => return Err(braces()),
            _ => {
                let end = rest.find(['*', '{', '}']).unwrap_or(rest.len());
                pieces.push(Piece::Literal(rest[..end].to_owned()));
                rest = &rest[end..];
            }
        }
    }
    let stars = pieces
        .iter()
        .filter(|piece| matches!(piece, Piece::Any))
        .count();
    let choices = pieces.iter().fold(1usize, |product, piece| match piece {
        Piece::OneOf(choices) => product.saturating_mul(choices.len()),
        _ => product,
    });
    if stars > MOST_STARS || choices > MOST_CHOICES {
        return Err((start, Problem::Wildcards(name.to_owned())));
    }
    Ok(Pattern(pieces))
}

/// Checks that the left side fills every wildcard of the right side.
fn check_filled(expression: &Expression, left: &Reference) -> Parsed<()> {
    match expression {
        Expression::Number(_) => Ok(()),
        Expression::Arithmetic(a, _, b) => {
            check_filled(a, left).and_then(|()| check_filled(b, left))
        }
        Expression::Function(_, arguments) => arguments
            .iter()
            .try_for_each(|argument| check_filled(argument, left)),
        Expression::Reference(reference) => {
            let metric = |reference: &Reference| {
                let metric = reference.metric.as_ref();
                metric.map_or(0, Pattern::wildcards)
            };
            let of_variant = (reference.variant.wildcards(), left.variant.wildcards());
            for (has, of) in [of_variant, (metric(reference), metric(left))] {
                let shown = || reference.shown();
                if has > of {
                    return Err((reference.span.start, Problem::Unfilled(shown())));
                }
                if (1..of).contains(&has) {
                    let shown = shown();
                    return Err((reference.span.start, Problem::Fewer { shown, has, of }));
                }
            }
            Ok(())
        }
    }
}

impl Reference {
    /// The names as they were written, for messages.
    fn shown(&self) -> String {
        match &self.metric {
            Some(metric) => format!("{}/{}", self.variant.shown(), metric.shown()),
            None => self.variant.shown(),
        }
    }
}

impl Pattern {
    fn shown(&self) -> String {
        let shown = self.0.iter().map(|piece| match piece {
            Piece::Literal(literal) => literal.clone(),
            Piece::Any => "*".to_owned(),
            Piece::OneOf(choices) => format!("{{{}}}", choices.join(",")),
        });
        shown.collect()
    }
}
