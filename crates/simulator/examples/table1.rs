use paceline_simulator::{
    event::*, link::*, meter::*, random::*, sender::config::*, source::*, world::*,
};
fn main() {
    let a: Vec<String> = std::env::args().collect();
    let m: u32 = a[1].parse().unwrap();
    let alg = match a[2].as_str() {
        "udp" => Algorithm::Udp,
        "reno" => Algorithm::Reno,
        "newreno" => Algorithm::Newreno,
        "sack" => Algorithm::Sack,
        "vegas" => Algorithm::Vegas,
        "cubic" => Algorithm::Cubic,
        _ => Algorithm::Bic,
    };
    let stack = match a[3].as_str() {
        "ns2" => Stack::Ns2,
        "rfc" => Stack::Rfc,
        _ => Stack::Linux,
    };
    let secs: u64 = a[4].parse().unwrap();
    let t0 = std::time::Instant::now();
    let mut links = vec![
        Link::new(50_000_000, 25 * MS, Limit::Packets(50), None),
        Link::new(50_000_000, 25 * MS, Limit::Packets(50), None),
    ];
    for _ in 0..m {
        links.push(Link::new(10_000_000, 25 * MS, Limit::None, None));
        links.push(Link::new(10_000_000, 25 * MS, Limit::None, None));
    }
    let mut w = World::new(links, 0, Meter::new(100 * MS));
    let mut c = SenderConfig::of(alg, stack);
    c.window = 20;
    c.initial_ssthresh = 20.0;
    w.add_group("clients", c, SourceConfig::Poisson { mean_ns: 10 * MS });
    for i in 0..m {
        w.add_flow(
            &Way {
                there: vec![2 + 2 * i, 0],
                back: vec![1, 3 + 2 * i],
                path: i,
                turn: i,
            },
            0,
            Source::new(sequence(1, Purpose::Source, i as u64)),
        );
    }
    w.prepare();
    w.run(secs * SECOND);
    let el = t0.elapsed().as_secs_f64();
    let del: u64 = w.flows.iter().map(|f| f.receiver.distinct()).sum();
    let s = Spread::of(w.meter.counts(), 1).unwrap();
    let st = Spread::of(&w.meter.counts()[w.meter.counts().len() / 4..], 1).unwrap();
    let (mut sent, mut again, mut to, mut fr) = (0, 0, 0, 0);
    for f in &w.flows {
        let t = f.sender.totals();
        sent += t.sent;
        again += t.again;
        to += t.timeouts;
        fr += t.recoveries;
    }
    println!("M={m} {} cov {:.4} steady {:.4} poisson {:.4} ratio {:.2} delivered {del} ({:.3} of cap) drops {:.4} sent {sent} again {again} to {to} fr {fr} | {:.3}s {:.1} Mev/s {:.3} us/pkt ev {} tx {}", a[2], s.cov(), st.cov(), 1.0/(10.0*m as f64).sqrt(), s.cov()*(10.0*m as f64).sqrt(), del as f64*12000.0/50e6/secs as f64, w.links[0].counts.dropped() as f64/w.links[0].counts.arrived as f64, el, w.events as f64/el/1e6, el*1e6/del as f64, w.events, w.transmissions);
}
