//! Pace, by itself: who goes first, and how fast.

use super::*;

const KIND: CommandKind = CommandKind::CreateLease;

fn moment(second: i64) -> Timestamp {
    Timestamp::from_second(second).unwrap()
}

fn config(places: u32, rate: Option<Rate>) -> PaceConfig {
    PaceConfig {
        max_in_flight: NonZeroU32::new(places).unwrap(),
        rate,
    }
}

fn queue(counts: [u32; 3]) -> Queue {
    let mut queue = Queue::default();
    for (class, count) in [Class::Cleanup, Class::Leased, Class::Creation]
        .into_iter()
        .zip(counts)
    {
        for index in 0..count {
            let slot = Slot {
                group: class as u32,
                index,
            };
            queue.insert(
                class,
                Claim {
                    since: moment(0),
                    order: (class as u32, index),
                    who: Who::Node(slot),
                    kind: KIND,
                },
            );
        }
    }
    queue
}

fn granted(pace: &mut Pace, waiting: [u32; 3], holding: [u32; 3], now: Timestamp) -> [u32; 3] {
    let mut counts = [0; 3];
    for (class, _) in queue(waiting).grant(pace, holding, now) {
        counts[class as usize] += 1;
    }
    counts
}

#[test]
fn without_contention_everybody_goes() {
    let mut pace = Pace::new(config(64, None));
    assert_eq!(granted(&mut pace, [10, 10, 10], [0; 3], moment(0)), [10, 10, 10]);
    assert_eq!(granted(&mut pace, [0, 0, 100], [0; 3], moment(0)), [0, 0, 64]);
}

#[test]
fn contending_classes_hold_three_quarters_of_what_is_there_each() {
    let mut pace = Pace::new(config(64, None));
    assert_eq!(granted(&mut pace, [99, 99, 99], [0; 3], moment(0)), [48, 12, 4]);
    // Cleanup at its share takes no more while others wait, and all when nobody does.
    let mut pace = Pace::new(config(64, None));
    assert_eq!(granted(&mut pace, [99, 99, 0], [48, 0, 0], moment(0)), [0, 16, 0]);
    assert_eq!(granted(&mut pace, [99, 0, 0], [48, 0, 0], moment(0)), [16, 0, 0]);
}

#[test]
fn at_one_place_no_class_starves() {
    let mut pace = Pace::new(config(1, None));
    let mut counts = [0; 3];
    for second in 0..32 {
        for (total, one) in counts
            .iter_mut()
            .zip(granted(&mut pace, [9, 9, 9], [0; 3], moment(second)))
        {
            *total += one;
        }
    }
    assert_eq!(counts, [24, 6, 2]);
}

#[test]
fn who_waited_longest_goes_first_and_ties_go_in_node_order() {
    let mut queue = Queue::default();
    for (since, index) in [(5, 0), (3, 9), (5, 1)] {
        let slot = Slot { group: 0, index };
        queue.insert(
            Class::Creation,
            Claim {
                since: moment(since),
                order: (0, index),
                who: Who::Node(slot),
                kind: KIND,
            },
        );
    }
    let mut pace = Pace::new(config(2, None));
    let order: Vec<u32> = queue
        .grant(&mut pace, [0; 3], moment(6))
        .iter()
        .map(|(_, claim)| claim.order.1)
        .collect();
    assert_eq!(order, [9, 0]);
}

#[test]
fn a_rate_lets_a_burst_through_and_then_one_call_per_interval() {
    let rate = Rate {
        calls: NonZeroU32::new(1).unwrap(),
        per: Duration::from_secs(10),
        burst: NonZeroU32::new(3).unwrap(),
    };
    let mut pace = Pace::new(config(64, Some(rate)));
    assert_eq!(granted(&mut pace, [0, 0, 99], [0; 3], moment(0)), [0, 0, 3]);
    assert_eq!(pace.opens_at(moment(0)), Some(moment(10)));
    assert_eq!(granted(&mut pace, [0, 0, 99], [0; 3], moment(9)), [0, 0, 0]);
    assert_eq!(granted(&mut pace, [0, 0, 99], [0; 3], moment(10)), [0, 0, 1]);
    // A crowded rate is shared as places are.
    let mut pace = Pace::new(config(64, Some(rate)));
    let mut counts = [0; 3];
    for second in 0..32 {
        for (total, one) in counts
            .iter_mut()
            .zip(granted(&mut pace, [9, 9, 9], [0; 3], moment(second * 10)))
        {
            *total += one;
        }
    }
    assert!(
        counts[0] > counts[1] && counts[1] > counts[2] && counts[2] >= 2,
        "{counts:?}"
    );
}

#[test]
fn a_throttled_crowd_halves_the_pace_once_and_successes_restore_it() {
    let rate = Rate {
        calls: NonZeroU32::new(1).unwrap(),
        per: Duration::from_secs(1),
        burst: NonZeroU32::MIN,
    };
    let mut pace = Pace::new(config(8, Some(rate)));
    for _ in 0..8 {
        pace.throttled(moment(0), moment(11), moment(1));
    }
    assert_eq!((pace.places(), pace.opens_at(moment(1))), (4, Some(moment(11))));
    assert_eq!(pace.interval(), Some(Duration::from_secs(2)));
    pace.throttled(moment(12), moment(22), moment(12));
    assert_eq!(pace.places(), 2);
    for second in 20..30 {
        pace.throttled(moment(second), moment(second + 1), moment(second));
    }
    assert_eq!(pace.places(), 1);
    for _ in 0..9 {
        pace.succeeded(moment(40));
    }
    assert_eq!(pace.places(), 8);
    assert_eq!(pace.interval(), Some(Duration::from_secs(1)));
}

#[test]
fn what_is_owed_at_a_slow_rate_is_paid_off_at_the_faster_one() {
    let rate = Rate {
        calls: NonZeroU32::new(1).unwrap(),
        per: Duration::from_secs(1),
        burst: NonZeroU32::new(4).unwrap(),
    };
    let mut pace = Pace::new(config(8, Some(rate)));
    for second in 0..3 {
        pace.throttled(moment(second), moment(second), moment(second));
    }
    assert_eq!(
        (pace.places(), pace.interval()),
        (1, Some(Duration::from_secs(8)))
    );
    // Four calls at eight seconds each, the last of them one too soon.
    for _ in 0..5 {
        pace.spend(moment(10));
    }
    let waits = |pace: &Pace| pace.opens_at(moment(10)).unwrap().duration_since(moment(10));
    assert_eq!(waits(&pace).as_secs(), 16);
    for _ in 0..7 {
        pace.succeeded(moment(10));
    }
    assert_eq!(waits(&pace).as_secs(), 2);
    pace.throttled(moment(11), moment(11), moment(10));
    assert_eq!(waits(&pace).as_secs(), 4, "and the other way");
}
