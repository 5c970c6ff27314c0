// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A file's text, and places in it.
//!
//! A check names a place by its keys; lines and columns are looked up when there are problems
//! to report. So the types of a file need no positions in them.

use std::cell::RefCell;
use std::collections::HashSet;

use serde::Deserialize;
use toml::de::{DeTable, DeValue, Deserializer, Error};
use toml::{Spanned, Table};

use crate::problem::{dotted, Problem, Problems, Step};

/// The text of a file and its name for messages.
#[derive(Clone, Debug)]
pub struct Document {
    file: String,
    text: String,
}

/// A problem at a place was reported, so that the file is refused whatever else is returned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reported(());

/// A place in a document that is being checked: its root, or the value of a key.
#[derive(Clone, Debug)]
pub struct Place<'f> {
    findings: &'f RefCell<Vec<Finding>>,
    path: Vec<Step>,
}

/// A problem whose line and column are not known yet.
#[derive(Debug)]
pub(crate) struct Finding {
    path: Vec<Step>,
    at_key: bool,
    what: String,
}

impl<'f> Place<'f> {
    /// The value of a key of the table here. It need not be in the file: then a problem with
    /// it is located at the table.
    #[must_use]
    pub fn key(&self, key: &str) -> Place<'f> {
        self.then(Step::Key(key.to_owned()))
    }

    /// An item of the list here, from 0.
    #[must_use]
    pub fn item(&self, index: usize) -> Place<'f> {
        self.then(Step::Item(index))
    }

    fn then(&self, step: Step) -> Place<'f> {
        let mut path = self.path.clone();
        path.push(step);
        Place {
            findings: self.findings,
            path,
        }
    }

    pub(crate) fn is_root(&self) -> bool {
        self.path.is_empty()
    }

    /// The full key of this place.
    pub(crate) fn dotted(&self) -> String {
        dotted(&self.path)
    }

    /// Reports a problem with the value here: the problem, and the right form.
    pub fn wrong(&self, what: impl Into<String>) -> Reported {
        self.report(self.path.clone(), false, what.into())
    }

    /// Reports a problem with the key itself, which should not be there.
    pub fn wrong_key(&self, what: impl Into<String>) -> Reported {
        self.report(self.path.clone(), true, what.into())
    }

    /// Reports the problems of a document that is written inside of this one, here.
    pub fn adopt(&self, problems: &Problems) -> Reported {
        for problem in &problems.list {
            let path = [&self.path[..], &problem.path].concat();
            self.report(path, true, problem.what.clone());
        }
        Reported(())
    }

    fn report(&self, path: Vec<Step>, at_key: bool, what: String) -> Reported {
        self.findings
            .borrow_mut()
            .push(Finding { path, at_key, what });
        Reported(())
    }
}

impl Document {
    /// A text; `file` is its name for messages.
    pub fn new(file: impl Into<String>, text: impl Into<String>) -> Self {
        Document {
            file: file.into(),
            text: text.into(),
        }
    }

    /// Runs a check, which reports problems at places and may go on after one.
    ///
    /// # Errors
    /// All that were reported.
    pub fn check<R>(
        &self,
        check: impl FnOnce(&Place<'_>) -> Result<R, Reported>,
    ) -> Result<R, Problems> {
        let findings = RefCell::default();
        let result = check(&Place {
            findings: &findings,
            path: Vec::new(),
        });
        match (result, findings.into_inner()) {
            (Ok(value), findings) if findings.is_empty() => Ok(value),
            (_, findings) => Err(self.locate(findings)),
        }
    }

    /// The document as a table, without its places.
    ///
    /// # Errors
    /// The errors of its TOML.
    pub fn table(&self) -> Result<Table, Problems> {
        Table::deserialize(Deserializer::from(self.tree()?)).map_err(|error| self.misread(&error))
    }

    /// The document as a tree with positions.
    ///
    /// # Errors
    /// The errors of its TOML.
    pub(crate) fn tree(&self) -> Result<Spanned<DeTable<'_>>, Problems> {
        let (tree, errors) = DeTable::parse_recoverable(&self.text);
        if errors.is_empty() {
            return Ok(tree);
        }
        let mut list: Vec<Problem> = errors.iter().map(|error| self.syntax(error)).collect();
        list.sort_by_key(|problem| (problem.line, problem.column));
        // Later errors on the same line follow from the first one.
        list.dedup_by_key(|problem| problem.line);
        Err(self.problems(list))
    }

    fn syntax(&self, error: &Error) -> Problem {
        let span = error.span().unwrap_or(0..0);
        let message = error.message().trim_end().replace('\n', " ");
        let (key, what) = match message.as_str() {
            "duplicate key" => {
                let key = self.text.get(span.clone()).unwrap_or_default().trim();
                let what = "is given already: leave one of the two out";
                (key.to_owned(), what.to_owned())
            }
            _ => (String::new(), format!("not TOML: {message}")),
        };
        self.problem(span.start, key, what, Vec::new())
    }

    /// An error of a type's own reader, which knows no path.
    pub(crate) fn misread(&self, error: &Error) -> Problems {
        let at = error.span().map_or(0, |span| span.start);
        let what = error.message().trim_end().replace('\n', " ");
        self.problems(vec![self.problem(at, String::new(), what, Vec::new())])
    }

    fn locate(&self, findings: Vec<Finding>) -> Problems {
        let (tree, _) = DeTable::parse_recoverable(&self.text);
        let mut list: Vec<Problem> = findings
            .into_iter()
            .map(|finding| {
                let at = offset(tree.get_ref(), &finding);
                self.problem(at, dotted(&finding.path), finding.what, finding.path)
            })
            .collect();
        list.sort_by_key(|problem| (problem.line, problem.column));
        // A table that stands for two may have been checked twice.
        let mut seen = HashSet::new();
        list.retain(|problem| seen.insert(problem.to_string()));
        self.problems(list)
    }

    fn problems(&self, list: Vec<Problem>) -> Problems {
        Problems {
            file: self.file.clone(),
            list,
        }
    }

    fn problem(&self, at: usize, key: String, what: String, path: Vec<Step>) -> Problem {
        let before = self.text.get(..at).unwrap_or(&self.text);
        let line_start = before.rfind('\n').map_or(0, |newline| newline + 1);
        Problem {
            line: before.matches('\n').count() + 1,
            column: before[line_start..].chars().count() + 1,
            key,
            what,
            path,
        }
    }
}

/// Where a finding is, in bytes: at its key or value, or at the innermost table around it.
fn offset(root: &DeTable<'_>, finding: &Finding) -> usize {
    let mut at = 0;
    let mut table = Some(root);
    let mut list: &[Spanned<DeValue<'_>>] = &[];
    for (number, step) in (1..).zip(&finding.path) {
        let is_last = number == finding.path.len();
        let value = match step {
            Step::Key(key) => {
                let mut keys = table.into_iter().flat_map(|table| table.iter());
                let Some((found, value)) = keys.find(|(found, _)| found.get_ref() == key) else {
                    return at;
                };
                // The value of a table begins wherever its first key is.
                let is_table = value.get_ref().is_table();
                at = if is_table || is_last && finding.at_key {
                    found.span().start
                } else {
                    value.span().start
                };
                value
            }
            Step::Item(index) => {
                let Some(value) = list.get(*index) else {
                    return at;
                };
                at = value.span().start;
                value
            }
        };
        table = value.get_ref().as_table();
        list = value.get_ref().as_array().map_or(&[], |array| array);
    }
    at
}
