// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What policies mean, that they survive being written and read, and that no
//! text makes the reader panic.

use std::io::Write;

use paceline_abi::{pl_base, pl_policy, pl_target};
use paceline_input::units::{Rate, Share, Size, Time};
use paceline_policy::{
    presets, Ack, Backoff, Base, Breaker, Gap, MinimumRto, Options, Policy, PolicyError, Report,
    Rto, Socket, Spacing, Startup, Streams, Target, TickTime, Window,
};
use proptest::option;
use proptest::prelude::*;

/// HZ = 250.
const TICK_US: u32 = 4_000;

fn parse(text: &str) -> Policy {
    Policy::parse(text, "test.toml").unwrap_or_else(|error| panic!("{error}"))
}

#[test]
fn presets_are_valid_and_have_their_own_names() {
    let names: Vec<_> = presets::names().collect();
    assert_eq!(
        names,
        ["standard", "lfn", "pace", "rto", "paper", "beowulf"]
    );
    for name in names {
        let preset = Policy::preset(name).expect("listed");
        assert_eq!(preset.name, name);
        assert!(!preset.description.is_empty(), "{name}");
        assert_eq!(parse(&preset.to_toml()), preset);
    }
    assert!(Policy::preset(presets::DEFAULT).is_some());
    assert_eq!(Policy::preset("Lfn"), None);
}

#[test]
fn standard_changes_nothing() {
    let standard = Policy::preset("standard").expect("a preset");
    assert_eq!(standard.to_abi(TICK_US), pl_policy::default());
}

#[test]
fn lfn_has_both_laws_and_acknowledges_in_time() {
    let lfn = Policy::preset("lfn").expect("a preset").to_abi(TICK_US);
    let expected = pl_policy {
        base: pl_base::PL_BASE_CUBIC as u8,
        wrap: 1,
        target: pl_target::PL_TARGET_DELIVERY_RATE as u8,
        breaker_permille: 300,
        breaker_starts: 2,
        breaker_hold_ms: 1_000,
        half_life_ms: 60_000,
        phases: 1,
        rto_min_us: 8_000,
        rto_jitter_us: 4_000,
        delayed_ack_us: 8_000,
        tick_us: TICK_US,
        rto_linear: 1,
        ..pl_policy::default()
    };
    assert_eq!(lfn, expected);
}

#[test]
fn the_paper_has_phases_but_neither_memory_nor_breaker() {
    let paper = Policy::preset("paper").expect("a preset").to_abi(TICK_US);
    let expected = pl_policy {
        base: pl_base::PL_BASE_CUBIC as u8,
        wrap: 1,
        target: pl_target::PL_TARGET_SSTHRESH as u8,
        phases: 1,
        ..pl_policy::default()
    };
    assert_eq!(paper, expected);
}

#[test]
fn every_key_reaches_the_kernel_side_in_its_unit() {
    let policy = parse(
        r#"
        name = "all-keys"
        base = "reno"
        startup.target = "delivery-rate"
        startup.initial_rate = "250mbit"
        startup.half_life = "1.5s"
        startup.phases = false
        startup.breaker = { loss = "0.5%", starts = 3, hold = "1min" }
        rto = { least = "20ms", jitter = "6ms", backoff = "linear" }
        ack.delay = "12ms"
        window.initial = 32
        "#,
    );
    let expected = pl_policy {
        base: pl_base::PL_BASE_RENO as u8,
        wrap: 1,
        target: pl_target::PL_TARGET_DELIVERY_RATE as u8,
        initial_window_segs: 32,
        breaker_permille: 5,
        breaker_starts: 3,
        breaker_hold_ms: 60_000,
        initial_rate_bps: 31_250_000,
        half_life_ms: 1_500,
        rto_min_us: 20_000,
        rto_jitter_us: 6_000,
        delayed_ack_us: 12_000,
        tick_us: TICK_US,
        rto_linear: 1,
        ..pl_policy::default()
    };
    assert_eq!(policy.to_abi(TICK_US), expected);
    assert_eq!(policy.raised(TICK_US), []);
}

#[test]
fn the_controls_of_a_configurable_tcp_come_out_in_the_kernels_form() {
    let policy = parse("name = 'b'\nbase = 'cubic'\nack.every = 4\nrto.most = '1500ms'\n[window]\ninitial = 20\nagain = true\n[socket]\nnodelay = true");
    let expected = pl_policy {
        base: pl_base::PL_BASE_CUBIC as u8,
        wrap: 1,
        tuned: 1,
        initial_window_segs: 20,
        window_again: 1,
        ack_every: 4,
        rto_max_ms: 1_500,
        nodelay: 1,
        ..pl_policy::default()
    };
    assert_eq!(policy.to_abi(TICK_US), expected);
    assert!(policy.holds_acks());

    let fixed = parse("name = 'f'\nbase = 'reno'\nwindow.fixed = 65535\nack.every = 1");
    let abi = fixed.to_abi(TICK_US);
    assert_eq!((abi.window_fixed_segs, abi.ack_every), (65_535, 1));
    assert_eq!((abi.wrap, abi.tuned, fixed.holds_acks()), (1, 1, false));
}

#[test]
fn an_ack_for_two_segments_is_the_kernels_own() {
    let policy = parse("name = 'k'\nack.every = 2\nsocket.nodelay = false\nwindow.again = false");
    assert_eq!(policy.to_abi(TICK_US), pl_policy::default());
    assert!(!policy.holds_acks());
}

#[test]
fn held_acks_need_no_congestion_control() {
    let policy = parse("name = 'h'\nbase = 'cubic'\nack.every = 3\nack.delay = '10ms'");
    assert!(policy.holds_acks() && !policy.wraps());
}

#[test]
fn the_example_of_the_documentation_is_valid() {
    let text = include_str!("../../../../docs/policies.md");
    let (_, rest) = text.split_once("```toml\n").expect("an example");
    let (example, _) = rest.split_once("```").expect("its end");
    assert_eq!(parse(example).name, "site-a");
}

#[test]
fn a_part_of_a_breaker_keeps_the_other_defaults() {
    let policy =
        parse("name = 'b'\nbase = 'bbr'\n[startup]\ntarget = 'delivery-rate'\nbreaker.loss = '5%'");
    let breaker = policy.startup.and_then(|startup| startup.breaker);
    let expected = Breaker {
        loss: Share::from_permille(50),
        ..Breaker::default()
    };
    assert_eq!(breaker, Some(expected));
}

#[test]
fn empty_tables_and_a_target_that_is_off_change_nothing() {
    let policy = parse("name = 'e'\n[startup]\ntarget = 'off'\n[rto]\n[ack]\n[window]");
    assert_eq!(policy.to_abi(TICK_US), pl_policy::default());
}

#[test]
fn times_under_two_ticks_are_raised_and_named() {
    let policy = parse("name = 't'\nrto.least = '5ms'\nack.delay = '2ms'");
    let abi = policy.to_abi(TICK_US);
    assert_eq!((abi.rto_min_us, abi.delayed_ack_us), (8_000, 8_000));
    let raised: Vec<_> = policy
        .raised(TICK_US)
        .iter()
        .map(ToString::to_string)
        .collect();
    assert_eq!(
        raised,
        [
            "rto.least = \"5ms\" is less than two ticks of this kernel, so \"8ms\" applies",
            "ack.delay = \"2ms\" is less than two ticks of this kernel, so \"8ms\" applies",
        ]
    );
    assert_eq!(policy.to_abi(1_000).rto_min_us, 5_000);
    assert_eq!(policy.raised(1_000), []);
}

#[test]
fn a_policy_inside_another_document_has_the_same_rules() {
    #[derive(serde::Deserialize, Debug)]
    struct Document {
        policy: Policy,
    }
    let good = "[policy]\nname = 'inner'\nbase = 'cubic'\nstartup.target = 'ssthresh'";
    let document: Document = toml::from_str(good).expect("valid");
    assert_eq!(document.policy.base, Base::Cubic);
    let json = serde_json::to_string(&document.policy).expect("text");
    assert_eq!(
        serde_json::from_str::<Policy>(&json).expect("valid"),
        document.policy
    );

    let bad = "[policy]\nname = 'inner'\nrto.jitter = 'tick'";
    let error = toml::from_str::<Document>(bad)
        .expect_err("no least")
        .to_string();
    assert!(
        error.contains("rto.jitter: has no effect without rto.least"),
        "{error}"
    );
}

#[test]
fn a_name_that_is_neither_preset_nor_path_suggests_one() {
    let error = Policy::load("lnf").expect_err("no such preset").to_string();
    assert!(error.contains("did you mean \"lfn\"?"), "{error}");
    assert!(
        error.contains("standard, lfn, pace, rto, paper, beowulf"),
        "{error}"
    );
    assert_eq!(Policy::load("pace").expect("a preset").name, "pace");
}

#[test]
fn files_are_read_and_named_in_errors() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = |name: &str| folder.path().join(name).to_string_lossy().into_owned();

    let good = path("mine.toml");
    std::fs::write(&good, "name = 'mine'").expect("writable");
    assert_eq!(Policy::load(&good).expect("valid").name, "mine");

    let bad = path("bad.toml");
    std::fs::write(&bad, "name = 'mine'\nbase = 7\n").expect("writable");
    let error = Policy::load(&bad)
        .expect_err("base is a number")
        .to_string();
    assert!(error.starts_with(&format!("{bad}:2:8: base: ")), "{error}");

    let missing = Policy::load(&path("missing.toml")).expect_err("no file");
    assert!(matches!(missing, PolicyError::Read { .. }), "{missing}");
    assert!(matches!(
        Policy::load("/dev/zero"),
        Err(PolicyError::NotText { .. })
    ));
    let latin1 = path("latin1.toml");
    let mut file = std::fs::File::create(&latin1).expect("writable");
    file.write_all(b"name = '\xe9'").expect("writable");
    assert!(matches!(
        Policy::load(&latin1),
        Err(PolicyError::NotText { .. })
    ));
}

#[test]
fn a_policy_changed_by_a_program_is_checked() {
    let mut policy = Policy::preset("lfn").expect("a preset");
    policy.startup.as_mut().expect("lfn has it").initial_rate =
        Some(Rate::from_bits_per_second(250_000_000));
    let policy = policy.checked().expect("valid");
    let error = Policy {
        base: Base::Keep,
        ..policy
    }
    .checked()
    .expect_err("nothing wrapped")
    .to_string();
    assert!(
        error.contains("startup.target: needs a wrapped algorithm"),
        "{error}"
    );
}

#[test]
fn spacing_wraps_the_base_without_a_start() {
    let text = "name = \"gap\"\nbase = \"reno\"\n[spacing]\nline_rate = \"1gbit\"\ngap = \"64B\"\n";
    let policy = parse(text);
    assert!(policy.wraps());
    let expected = pl_policy {
        base: pl_base::PL_BASE_RENO as u8,
        wrap: 1,
        line_rate_bps: 125_000_000,
        gap_bytes: 64,
        ..pl_policy::default()
    };
    assert_eq!(policy.to_abi(TICK_US), expected);
    let without = parse("name = \"none\"\nbase = \"reno\"\n[spacing]\nclustered = false\n");
    assert!(!without.wraps());
    assert_eq!(without.spacing, None);
}

fn tick_time(range: std::ops::Range<u64>) -> impl Strategy<Value = TickTime> {
    prop_oneof![
        Just(TickTime::Tick),
        range.prop_map(|micros| TickTime::Time(Time::from_micros(micros))),
    ]
}

fn breaker() -> impl Strategy<Value = Breaker> {
    (1u64..=1000, 1u32..=1000, 10u64..86_400_000).prop_map(|(loss, starts, hold)| Breaker {
        loss: Share::from_permille(loss),
        starts,
        hold: Time::from_millis(hold),
    })
}

fn startup() -> impl Strategy<Value = Startup> {
    let rate = option::of((100_000u64..1_000_000_000_000).prop_map(Rate::from_bits_per_second));
    let half_life = option::of((100_000u64..86_400_000_000).prop_map(Time::from_micros));
    (rate, half_life, any::<bool>(), option::of(breaker())).prop_map(
        |(initial_rate, half_life, phases, breaker)| Startup {
            target: half_life.map_or(Target::Ssthresh, |_| Target::DeliveryRate),
            initial_rate,
            half_life,
            phases,
            breaker,
        },
    )
}

fn rto() -> impl Strategy<Value = Rto> {
    let jitter = option::of(tick_time(1..100_000));
    let backoff = prop_oneof![Just(Backoff::Exponential), Just(Backoff::Linear)];
    let minimum =
        (tick_time(2_000..100_000), jitter, backoff).prop_map(|(least, jitter, backoff)| {
            MinimumRto {
                least,
                jitter,
                backoff,
            }
        });
    let most = (1_000_000u64..=120_000_000).prop_map(Time::from_micros);
    // One of the two at least.
    (option::of(minimum), most, any::<bool>()).prop_map(|(minimum, most, is_limited)| Rto {
        most: (is_limited || minimum.is_none()).then_some(most),
        minimum,
    })
}

fn ack() -> impl Strategy<Value = Ack> {
    prop_oneof![
        tick_time(2_000..200_001).prop_map(|delay| Ack {
            delay: Some(delay),
            every: None
        }),
        (option::of(tick_time(2_000..200_001)), 2u8..=64).prop_map(|(delay, every)| Ack {
            delay,
            every: Some(every)
        }),
    ]
}

fn window() -> impl Strategy<Value = Window> {
    (1u16..=1000).prop_map(|initial| Window {
        initial: Some(initial),
        again: false,
        fixed: None,
    })
}

/// What only the congestion control can do, and the base that it needs.
fn tuned() -> impl Strategy<Value = (Option<Ack>, Option<Window>)> {
    let quick = Ack {
        delay: None,
        every: Some(1),
    };
    let again = (1u16..=1000).prop_map(|initial| Window {
        initial: Some(initial),
        again: true,
        fixed: None,
    });
    let fixed = (1u16..).prop_map(|segs| Window {
        initial: None,
        again: false,
        fixed: Some(segs),
    });
    let window = option::of(prop_oneof![again, fixed]);
    (option::of(Just(quick)), window)
}

fn spacing() -> impl Strategy<Value = Spacing> {
    let line = (1_000_000u64..1_000_000_000_000).prop_map(Rate::from_bits_per_second);
    let gap = option::of((line, 8u64..=1023)).prop_map(|gap| {
        gap.map(|(line_rate, gap)| Gap {
            line_rate,
            gap: Size::from_bytes(gap),
        })
    });
    // One of the two at least.
    (any::<bool>(), gap).prop_map(|(clustered, gap)| Spacing {
        clustered: clustered || gap.is_none(),
        gap,
    })
}

prop_compose! {
    fn policy()(
        name in "[a-zA-Z0-9._-]{1,31}",
        description in "\\PC{0,200}",
        wrapped in prop_oneof![Just(Base::Cubic), Just(Base::Reno)],
        startup in option::of(startup()),
        rto in option::of(rto()),
        ack in option::of(ack()),
        window in option::of(window()),
        spacing in option::of(spacing()),
        even in any::<bool>(),
        tuned in tuned(),
        nodelay in any::<bool>(),
        options in option::of(options()),
    ) -> Policy {
        let has_laws = startup.is_some() || spacing.is_some() || even;
        let (ack, window) = match tuned {
            (quick, tuned) if !has_laws => (quick.or(ack), tuned.or(window)),
            _ => (ack, window),
        };
        let is_quick = ack.as_ref().is_some_and(|ack| ack.every == Some(1));
        let is_led = window.as_ref().is_some_and(|window| window.again || window.fixed.is_some());
        Policy {
            name,
            description,
            base: if has_laws || is_quick || is_led { wrapped } else { Base::Keep },
            startup,
            rto,
            ack,
            window,
            streams: even.then_some(Streams { even }),
            spacing,
            socket: nodelay.then_some(Socket { nodelay }),
            options,
            report: has_laws.then_some(Report { held_out: Share::from_permille(50) }),
        }
    }
}

fn options() -> impl Strategy<Value = Options> {
    let kept = any::<[bool; 3]>().prop_filter("one at least goes", |kept| kept.contains(&false));
    ("[a-z0-9.@-]{1,15}", kept).prop_map(|(interface, kept)| Options {
        interface,
        timestamps: kept[0],
        window_scaling: kept[1],
        sack: kept[2],
    })
}

/// Lines that are near to a policy, so that the reader's own code is reached.
fn nearly_a_policy() -> impl Strategy<Value = String> {
    let key = prop_oneof![
        prop::sample::select(vec![
            "name",
            "base",
            "startup",
            "startup.target",
            "startup.initial_rate",
            "startup.half_life",
            "startup.phases",
            "startup.breaker",
            "startup.breaker.loss",
            "startup.breaker.starts",
            "rto",
            "rto.least",
            "rto.jitter",
            "rto.backoff",
            "ack.delay",
            "ack.every",
            "rto.most",
            "window.fixed",
            "window.again",
            "socket.nodelay",
            "window",
            "window.initial",
            "streams",
            "streams.even",
            "spacing",
            "spacing.clustered",
            "spacing.line_rate",
            "spacing.gap",
            "[spacing]",
            "[startup]",
            "[startup.breaker]",
            "[[rto]]",
            "target",
            "least",
            "jitter",
            "initial",
            "loss",
        ])
        .prop_map(str::to_owned),
        "[a-zé\" .-]{0,12}",
    ];
    let value = prop_oneof![
        prop::sample::select(vec![
            "'tick'",
            "'cubic'",
            "'bbr'",
            "'delivery-rate'",
            "'ssthresh'",
            "'off'",
            "'200ms'",
            "'2%'",
            "0",
            "-1",
            "1e400",
            "nan",
            "0xffffffffffffffffffffffff",
            "true",
            "[]",
            "{}",
            "{least = 'tick'}",
            "1979-05-27",
            "9223372036854775808",
            "'''\n'''",
        ])
        .prop_map(str::to_owned),
        "'[0-9.]{0,30}[a-zA-Z%]{0,4}'",
        "\\PC{0,10}",
    ];
    let line = (key, option::of(value)).prop_map(|(key, value)| match value {
        Some(value) => format!("{key} = {value}"),
        None => key,
    });
    prop::collection::vec(line, 0..8).prop_map(|lines| lines.join("\n"))
}

fn lines_of_errors_name_their_place(text: &str) -> Result<(), TestCaseError> {
    let Err(error) = Policy::parse(text, "p.toml") else {
        return Ok(());
    };
    let PolicyError::Invalid(problems) = &error else {
        return Err(TestCaseError::fail(format!("{error:?}")));
    };
    prop_assert_eq!(&problems.file, "p.toml");
    prop_assert!(!problems.list.is_empty());
    for problem in &problems.list {
        prop_assert!(problem.line >= 1 && problem.line <= text.matches('\n').count() + 1);
        prop_assert!(problem.column >= 1);
        prop_assert!(problem.what.len() < 400, "{}", problem);
    }
    Ok(())
}

proptest! {
    #[test]
    fn every_valid_policy_survives_toml_and_json(policy in policy()) {
        let toml = policy.to_toml();
        let read = Policy::parse(&toml, "p").map_err(|e| TestCaseError::fail(format!("{e}\n{toml}")))?;
        prop_assert_eq!(&read, &policy);
        let json = serde_json::to_string(&policy).expect("text");
        prop_assert_eq!(serde_json::from_str::<Policy>(&json).expect("valid"), policy);
    }

    #[test]
    fn the_kernel_never_gets_a_timer_that_it_refuses(policy in policy(), tick in prop::sample::select(vec![1_000u32, 3_333, 4_000, 10_000])) {
        let abi = policy.to_abi(tick);
        for timer in [abi.rto_min_us, abi.delayed_ack_us] {
            prop_assert!(timer == 0 || (2 * tick..=200_000).contains(&timer));
        }
        prop_assert!(abi.rto_min_us + abi.rto_jitter_us <= 200_000);
        prop_assert!(abi.rto_jitter_us == 0 || abi.rto_min_us > 0);
    }

    #[test]
    fn no_text_panics(text in "\\PC{0,200}") {
        lines_of_errors_name_their_place(&text)?;
    }

    #[test]
    fn no_nearly_valid_text_panics(text in nearly_a_policy()) {
        lines_of_errors_name_their_place(&format!("name = 'p'\n{text}"))?;
        lines_of_errors_name_their_place(&text)?;
    }
}
