// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The frame of every page: head and style.

/// A page in the style of all of them. Both texts are markup.
#[must_use]
pub fn document(title: &str, body: &str) -> String {
    format!(
        "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\"/>\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\"/>\n\
         <title>{title}</title>\n<style>\n{}</style>\n</head>\n<body>\n{body}</body>\n</html>\n",
        include_str!("style.css")
    )
}
