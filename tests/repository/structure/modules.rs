// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Which modules of a crate name which others, read from the source's tokens: comments and
//! strings say nothing, and what a macro is given counts as well.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use proc_macro2::{Delimiter, TokenStream, TokenTree};

/// A file of a crate.
pub struct Source<'a> {
    /// Below `src`.
    pub place: &'a Path,
    /// What is in it.
    pub text: &'a str,
}

/// The segments of a path, from the crate's root.
type Name = Vec<String>;

/// What a file says of others.
#[derive(Debug, Default)]
struct Module {
    /// Paths that it names, with the module that it names them in: an inline one is below
    /// the file's own.
    named: Vec<(Name, Name)>,
    /// What it imports at its top, by the name that it has there: others may take it from
    /// here, and mean where it comes from.
    imported: BTreeMap<String, Name>,
}

/// Crates of the workspace that a file's tokens name, without `paceline_`.
pub fn named_crates(text: &str) -> Vec<String> {
    let mut idents = Vec::new();
    collect_idents(parse(text), &mut idents);
    let own = idents.iter().filter_map(|ident| match ident.as_str() {
        // The phase library's crate has a name of its own.
        "paceline" => Some("phase"),
        ident => ident.strip_prefix("paceline_"),
    });
    own.map(str::to_owned).collect()
}

fn collect_idents(tokens: TokenStream, idents: &mut Vec<String>) {
    for token in tokens {
        match token {
            TokenTree::Ident(ident) => idents.push(ident.to_string()),
            TokenTree::Group(group) => collect_idents(group.stream(), idents),
            _ => {}
        }
    }
}

/// Circles among the modules at the top of a crate, and in each folder between a folder and
/// its siblings. Files of one folder may refer to each other: they change together.
pub fn circles(sources: &[Source]) -> Vec<String> {
    let mut modules: BTreeMap<Name, Module> = BTreeMap::new();
    for source in sources {
        let name = module_of(source.place);
        let module = modules.entry(name.clone()).or_default();
        read(parse(source.text), &name, &name, module);
    }
    modules.entry(Vec::new()).or_default();
    let edges = edges(&modules);
    let folders = modules.keys().filter(|name| has_children(&modules, name));
    folders
        .flat_map(|folder| circles_in(folder, &modules, &edges))
        .collect()
}

fn parse(text: &str) -> TokenStream {
    text.parse().expect("Rust, or the crate would not compile")
}

fn module_of(place: &Path) -> Name {
    let mut name: Name = place
        .with_extension("")
        .iter()
        .map(|part| part.to_string_lossy().into_owned())
        .collect();
    let last = name.last().map(String::as_str);
    if last == Some("mod") || name.len() == 1 && matches!(last, Some("lib" | "main")) {
        name.pop();
    }
    name
}

fn has_children(modules: &BTreeMap<Name, Module>, name: &Name) -> bool {
    let below = |other: &Name| other.len() > name.len() && other.starts_with(name);
    modules.keys().any(below)
}

/// Reads the tokens of `file`, at first those of `inside`, which is the file's own module or
/// an inline one.
fn read(tokens: TokenStream, file: &Name, inside: &Name, module: &mut Module) {
    let tokens: Vec<TokenTree> = tokens.into_iter().collect();
    let mut at = 0;
    while at < tokens.len() {
        match (&tokens[at], tokens.get(at + 1), tokens.get(at + 2)) {
            (
                TokenTree::Ident(word),
                Some(TokenTree::Ident(name)),
                Some(TokenTree::Group(body)),
            ) if word == "mod" && body.delimiter() == Delimiter::Brace => {
                let mut inline = inside.clone();
                inline.push(name.to_string());
                read(body.stream(), file, &inline, module);
                at += 3;
            }
            (TokenTree::Ident(word), Some(_), _) if word == "use" => {
                let end = tokens[at..].iter().position(|token| is_punct(token, ';'));
                let end = at + end.unwrap_or(tokens.len() - at);
                let mut leaves = Vec::new();
                expand(&tokens[at + 1..end], &[], &mut leaves);
                for (path, name) in leaves {
                    if inside == file {
                        module.imported.insert(name, path.clone());
                    }
                    module.named.push((path, inside.clone()));
                }
                at = end;
            }
            (TokenTree::Ident(word), ..)
                if ["crate", "self", "super"].iter().any(|root| word == root) =>
            {
                let (path, next) = path_from(&tokens, at);
                if path.len() > 1 {
                    module.named.push((path, inside.clone()));
                }
                at = next;
            }
            (TokenTree::Group(group), ..) => {
                read(group.stream(), file, inside, module);
                at += 1;
            }
            _ => at += 1,
        }
    }
}

fn is_punct(token: &TokenTree, wanted: char) -> bool {
    matches!(token, TokenTree::Punct(punct) if punct.as_char() == wanted)
}

fn is_separator(tokens: &[TokenTree], at: usize) -> bool {
    let two = tokens.get(at..at + 2);
    two.is_some_and(|two| two.iter().all(|token| is_punct(token, ':')))
}

/// The path that begins at a token, and what comes after it.
fn path_from(tokens: &[TokenTree], mut at: usize) -> (Name, usize) {
    let mut path = Vec::new();
    while let Some(TokenTree::Ident(segment)) = tokens.get(at) {
        path.push(segment.to_string());
        at += 1;
        let more = matches!(tokens.get(at + 2), Some(TokenTree::Ident(_)));
        if !(is_separator(tokens, at) && more) {
            break;
        }
        at += 2;
    }
    (path, at)
}

/// The paths of a `use`, each with the name that it has afterwards.
fn expand(tokens: &[TokenTree], before: &[String], leaves: &mut Vec<(Name, String)>) {
    for part in tokens.split(|token| is_punct(token, ',')) {
        let (path, at) = path_from(part, 0);
        let mut full = [before, &path].concat();
        let rest = &part[at..];
        if let Some(TokenTree::Group(group)) =
            rest.iter().find(|t| matches!(t, TokenTree::Group(_)))
        {
            let inner: Vec<TokenTree> = group.stream().into_iter().collect();
            expand(&inner, &full, leaves);
            continue;
        }
        if full.len() > 1 && full.last().is_some_and(|last| last == "self") {
            full.pop();
        }
        let renamed = match rest {
            [TokenTree::Ident(word), TokenTree::Ident(name)] if word == "as" => name.to_string(),
            // Of a glob no name is known: it is the module's own.
            _ => full.last().cloned().unwrap_or_default(),
        };
        if !full.is_empty() {
            leaves.push((full, renamed));
        }
    }
}

/// Which module refers to which, with a path that says so.
fn edges(modules: &BTreeMap<Name, Module>) -> BTreeMap<(Name, Name), String> {
    let mut edges = BTreeMap::new();
    for (name, module) in modules {
        for (path, inside) in &module.named {
            let Some(target) = resolve(path, inside, modules) else {
                continue;
            };
            let target = origin(target, modules);
            if target != *name {
                let path_name = path.join("::");
                edges.entry((name.clone(), target)).or_insert(path_name);
            }
        }
    }
    edges
}

/// The path from the crate's root; none if it leads out of the crate.
fn resolve(path: &Name, inside: &Name, modules: &BTreeMap<Name, Module>) -> Option<Name> {
    let mut full = match path[0].as_str() {
        "crate" => Vec::new(),
        "self" | "super" => inside.clone(),
        child => {
            let full = [&inside[..], &[child.to_owned()]].concat();
            return modules
                .contains_key(&full)
                .then(|| [&inside[..], path].concat());
        }
    };
    for segment in path {
        match segment.as_str() {
            "crate" | "self" => {}
            "super" => drop(full.pop()),
            _ => full.push(segment.clone()),
        }
    }
    Some(full)
}

/// The module where what is named so is: not one that has only imported it.
fn origin(mut full: Name, modules: &BTreeMap<Name, Module>) -> Name {
    // As many steps as no chain of imports has.
    for _ in 0..16 {
        let depth = (0..=full.len())
            .rev()
            .find(|&depth| modules.contains_key(&full[..depth]))
            .unwrap_or(0);
        let holder = full[..depth].to_vec();
        let imported = full
            .get(depth)
            .and_then(|item| modules[&holder].imported.get(item))
            .and_then(|path| resolve(path, &holder, modules));
        match imported {
            Some(from) if from != full[..=depth] => {
                full = [&from[..], &full[depth + 1..]].concat();
            }
            _ => return holder,
        }
    }
    full
}

/// Circles among the children of a folder; below the crate's top those alone that a folder is
/// part of.
fn circles_in(
    folder: &Name,
    modules: &BTreeMap<Name, Module>,
    edges: &BTreeMap<(Name, Name), String>,
) -> Vec<String> {
    let depth = folder.len();
    let counts = |child: &Name| depth == 0 || has_children(modules, child);
    let mut uses: BTreeMap<Name, BTreeMap<Name, String>> = BTreeMap::new();
    for ((from, to), reason) in edges {
        let below = |name: &Name| name.len() > depth && name.starts_with(folder);
        if !below(from) || !below(to) {
            continue;
        }
        let (user, used) = (from[..=depth].to_vec(), to[..=depth].to_vec());
        if user != used && (counts(&user) || counts(&used)) {
            let reason = format!("{} names {reason}", from.join("::"));
            uses.entry(user).or_default().entry(used).or_insert(reason);
        }
    }
    let mut reported = BTreeSet::new();
    let mut found = Vec::new();
    for start in uses.keys() {
        if reported.contains(start) {
            continue;
        }
        let Some(circle) = way_back(start, &uses) else {
            continue;
        };
        let next = circle.iter().cycle().skip(1);
        let steps: Vec<&str> = circle
            .iter()
            .zip(next)
            .map(|(user, used)| uses[user][used].as_str())
            .collect();
        found.push(steps.join("; "));
        reported.extend(circle);
    }
    found
}

/// The shortest circle through a module.
fn way_back(start: &Name, uses: &BTreeMap<Name, BTreeMap<Name, String>>) -> Option<Vec<Name>> {
    let mut ways: Vec<Vec<Name>> = vec![vec![start.clone()]];
    let mut seen = BTreeSet::new();
    let mut at = 0;
    while at < ways.len() {
        let way = ways[at].clone();
        for used in uses
            .get(&way[way.len() - 1])
            .into_iter()
            .flat_map(BTreeMap::keys)
        {
            if used == start {
                return Some(way);
            }
            if seen.insert(used.clone()) {
                ways.push([&way[..], std::slice::from_ref(used)].concat());
            }
        }
        at += 1;
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(files: &[(&str, &str)]) -> Vec<String> {
        let sources: Vec<Source> = files
            .iter()
            .map(|&(place, text)| Source {
                place: Path::new(place),
                text,
            })
            .collect();
        circles(&sources)
    }

    #[test]
    fn a_cycle_is_reported_with_its_paths() {
        let circle = found(&[
            ("lib.rs", "mod a; mod b; mod c;"),
            ("a.rs", "use crate::b::B;"),
            ("b/mod.rs", "mod inner;"),
            ("b/inner.rs", "fn f() { assert!(super::super::c::g()); }"),
            ("c.rs", "mod tests { use super::super::a; }"),
        ]);
        let expected =
            "a names crate::b::B; b::inner names super::super::c::g; c names super::super::a";
        assert_eq!(circle, [expected]);
    }

    #[test]
    fn a_reexported_item_counts_for_its_own_module() {
        let circle = found(&[
            ("lib.rs", "mod a; mod b; pub use b::{inner as renamed, B};"),
            ("a.rs", "use crate::renamed::C; use crate::B;"),
            ("b/mod.rs", "pub mod inner; pub struct B;"),
            ("b/inner.rs", "pub struct C(crate::a::A);"),
        ]);
        assert_eq!(circle.len(), 1, "{circle:?}");
    }

    #[test]
    fn a_folder_and_its_siblings_make_none_and_files_of_a_folder_may() {
        let inside = [
            ("a/mod.rs", "mod x; mod y;"),
            ("a/x.rs", "use super::y::Y;"),
            ("a/y.rs", "use super::x::X;"),
        ];
        assert!(found(&inside).is_empty());
        let deeper = [inside.as_slice(), &[("a/x/z.rs", ""), ("a/y/z.rs", "")]].concat();
        assert_eq!(found(&deeper).len(), 1);
        // One of them is enough.
        let beside = [inside.as_slice(), &[("a/x/z.rs", "")]].concat();
        assert_eq!(found(&beside).len(), 1);
    }

    #[test]
    fn comments_strings_and_other_crates_make_none() {
        let none = found(&[
            ("lib.rs", "mod a; mod b;"),
            (
                "a.rs",
                "//! See [`crate::b`].\nuse std::b; const B: &str = \"crate::b::B\";",
            ),
            ("b.rs", "use crate::a::A; use other::a;"),
        ]);
        assert!(none.is_empty(), "{none:?}");
    }

    #[test]
    fn crates_are_named_in_code_alone() {
        let text = "// paceline_lab\nuse paceline_net::x; fn f() { paceline::y(\"paceline_abi\") }";
        assert_eq!(named_crates(text), ["net", "phase"]);
    }
}
