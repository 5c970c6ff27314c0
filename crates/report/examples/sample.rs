// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Writes two reports with made-up numbers, to look at the page while working on
//! it: `cargo run -p paceline-report --example sample -- DIRECTORY`.

#[path = "../tests/report/sample.rs"]
mod sample;

use std::path::PathBuf;

use paceline_report::{html, table};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let directory = PathBuf::from(
        std::env::args_os()
            .nth(1)
            .ok_or("usage: sample DIRECTORY")?,
    );
    for report in [sample::startup(), sample::incast()] {
        let page = report.write(&directory.join(&report.results.experiment))?;
        print!(
            "{}",
            table::render(
                &report.results,
                table::Options {
                    color: true,
                    width: 110
                }
            )
        );
        println!("{}\n", page.display());
        if let Some(svg) = html::figure_svg(&report, "10MB") {
            std::fs::write(directory.join("figure.svg"), svg)?;
        }
    }
    Ok(())
}
