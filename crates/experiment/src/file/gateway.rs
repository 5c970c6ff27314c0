// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `gateway` of a variant: a pair of `paceline gateway serve` at the ends of a link.

use std::ops::RangeInclusive;

use paceline_input::units::{Rate, Size};
use paceline_input::Place;
use schemars::JsonSchema;
use serde::Deserialize;

use super::File;
use crate::plan::Gateway;

/// Headers of IP (4 or 6) and UDP, bytes.
const HEADER_BYTES: [u32; 2] = [28, 48];
/// UDP payload that a gateway may have.
const MTUS: RangeInclusive<u32> = 1232..=8952;

/// `{ reserve = "19400kbit" }`.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct GatewayKeys {
    /// A reserved rate, without framing: losses do not reduce it.
    #[schemars(extend("x-range" = ["100kbit", null]))]
    pub reserve: Option<Rate>,
    /// Instead, the rate is learned. This is its upper limit.
    #[schemars(extend("x-range" = ["100kbit", null]))]
    pub learned: Option<Rate>,
    /// Memory for data of connections; absent: 64MiB.
    #[schemars(extend("x-range" = ["4MiB", null]))]
    pub memory: Option<Size>,
}

impl GatewayKeys {
    /// As the guest gets it, on a link of packets of `mtu` bytes.
    pub(super) fn plan(&self, ip: u8, mtu: u32) -> Gateway {
        let headers = HEADER_BYTES[usize::from(ip == 6)];
        Gateway {
            rate_bps: self
                .reserve
                .or(self.learned)
                .map_or(0, Rate::bits_per_second),
            is_learned: self.reserve.is_none(),
            memory_bytes: self.memory.map_or(64 << 20, Size::bytes),
            mtu: mtu.saturating_sub(headers).min(*MTUS.end()) as u16,
        }
    }
}

/// Checks `gateways` of the link and `gateway` of the variants.
pub(super) fn check(file: &File, place: &Place<'_>) {
    let link = place.key("link");
    if file.link.gateways {
        let others = !(file.burst.is_empty()
            && file.incast.is_empty()
            && file.streams.is_empty()
            && file.messages.is_empty()
            && file.netpipe.is_empty());
        if others || !file.link.clusters.is_empty() {
            let problem =
                "the hosts of gateways are there for [[bulk]], between senders and one receiver";
            link.key("gateways").wrong(problem);
        }
    }
    for (name, variant) in &file.variants {
        let Some(gateway) = &variant.gateway else {
            continue;
        };
        let place = place.key("variant").key(name).key("gateway");
        if !file.link.gateways {
            place.wrong("needs hosts for gateways: write gateways = true in [link]");
        }
        if gateway.reserve.is_some() == gateway.learned.is_some() {
            place.wrong(
                "give one rate, such as { reserve = \"19400kbit\" } or { learned = \"20mbit\" }",
            );
        }
        let scenarios = file.scenario.iter().filter_map(|scenario| scenario.mtu);
        let headers = HEADER_BYTES[usize::from(file.link.ip == 6)];
        let least = MTUS.start() + headers;
        if scenarios.chain([file.link.mtu]).any(|mtu| mtu < least) {
            let problem = format!("gateways need packets of at least {least} bytes");
            link.key("mtu").wrong(problem);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use crate::plan::Plan;
    use crate::Experiment;

    const START: &str = "title = \"t\"\ndescription = \"d\"\n\
        [link]\nrate = \"20mbit\"\none_way_delay = \"175ms\"\nbuffer = \"256KiB\"\n";
    const FLOWS: &str = "[[bulk]]\nduration = \"9s\"\nflows = [{}]\n";

    fn read(text: &str) -> Result<Vec<Plan>, String> {
        let experiment = Experiment::parse(text, Path::new("gateways.toml"));
        let experiment = experiment.map_err(|error| error.to_string())?;
        Ok(experiment
            .shards(false, None, &[])
            .expect("all its variants"))
    }

    #[test]
    fn a_cut_that_lasts_has_an_end_and_gateways_fill_packets() {
        let text = format!(
            "{START}gateways = true\nmtu = 9000\n\
             [[link.step]]\nat = \"2s\"\ncut_for = \"100ms\"\n\
             [[link.step]]\nat = \"3s\"\ncut_for = \"1s\"\n{FLOWS}\
             [variant.plain]\n[variant.gateway]\ngateway = {{ reserve = \"19450kbit\" }}\n"
        );
        let plans = read(&text).expect("a good file");
        let ms = |ms: u64| ms * 1_000_000;
        assert_eq!(
            plans[0].topology.outages(),
            [(ms(2000), Some(ms(2100))), (ms(3000), Some(ms(4000)))]
        );
        assert!(plans[0].topology.has_two_ways() && plans[0].adaptation.gateway.is_none());
        assert!(!plans[0].topology.after(0).down);
        assert!(plans[0].topology.after(1).down && !plans[0].topology.after(2).down);
        let gateway = plans[1].adaptation.gateway.as_ref().expect("its gateway");
        assert_eq!((gateway.rate_bps, gateway.mtu), (19_450_000, 8_952));
        assert!(!gateway.is_learned);
    }

    #[test]
    fn invalid_combinations_are_reported_at_their_key() {
        let variant = "[variant.gateway]\ngateway = { reserve = \"1mbit\" }\n";
        for (link, rest, place) in [
            ("", variant, "variant.gateway.gateway"),
            (
                "gateways = true\n",
                "[variant.gateway]\ngateway = { reserve = \"1mbit\", learned = \"1mbit\" }\n",
                "variant.gateway.gateway",
            ),
            ("gateways = true\nmtu = 1200\n", variant, "link.mtu"),
            (
                "gateways = true\n",
                "[[messages]]\nsizes = [\"1KB\"]\ncount = 1\n[variant.plain]\n",
                "link.gateways",
            ),
            (
                "gateways = true\n[[link.step]]\nat = \"1s\"\ncut_for = \"2s\"\n\
                 [[link.step]]\nat = \"3s\"\nrate = \"1mbit\"\n",
                variant,
                "link.step",
            ),
        ] {
            let error = read(&format!("{START}{link}{FLOWS}{rest}")).expect_err(place);
            assert!(error.contains(place), "{place}: {error}");
        }
    }
}
