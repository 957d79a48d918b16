//! When a request may be sent, if a rate was asked for: a bucket that fills at that rate.

use std::time::Duration;

use crate::model::Moment;

/// A token bucket.
#[derive(Debug)]
pub struct Throttle {
    each: Duration,
    burst: u32,
    /// When the bucket would be full if nothing more were taken.
    full_at: Moment,
}

impl Throttle {
    /// A full bucket of `burst` that gets `rate` a second. Both are above zero.
    pub fn new(rate: f64, burst: u32, now: Moment) -> Self {
        Self { each: Duration::from_secs_f64(rate.recip()), burst, full_at: now }
    }

    /// Takes one, and says from when on it may be used.
    pub fn turn(&mut self, now: Moment) -> Moment {
        self.full_at = self.full_at.max(now) + self.each;
        let missing = self.full_at.since(now);
        now + missing.saturating_sub(self.each * self.burst)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_burst_goes_at_once_and_the_rest_at_the_rate() {
        let now = Moment::since_boot(Duration::from_secs(100));
        let mut throttle = Throttle::new(4.0, 3, now);
        let turns: Vec<_> = (0..6).map(|_| throttle.turn(now).since(now).as_millis()).collect();
        assert_eq!(turns, [0, 0, 0, 250, 500, 750]);
        let later = now + Duration::from_secs(60);
        let turns: Vec<_> = (0..4).map(|_| throttle.turn(later).since(later).as_millis()).collect();
        assert_eq!(turns, [0, 0, 0, 250], "it never holds more than a burst");
    }
}
