//! Pseudo-random draws for generated tables. A draw is a function of a seed, a name and a number, so that any
//! row can be made without those before it, and no version of a library changes it.
//!
//! Source: Steele, Lea and Flood, "Fast splittable pseudorandom number generators" (2014), for the bits; Box
//! and Muller (1958) for the normal distribution; Knuth, "The Art of Computer Programming", 3.4.2, for
//! shuffles.

/// Draws of one column.
#[derive(Debug, Clone, Copy)]
pub struct Draws {
    seed: u64,
}

impl Draws {
    /// Draws that are independent of those with another seed or name.
    pub fn new(seed: u64, name: &str) -> Self {
        // FNV-1a.
        let hash = name.bytes().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
            (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
        });
        Self { seed: mix(hash ^ mix(seed)) }
    }

    /// 64 bits, all values as likely.
    pub fn bits(self, at: u64) -> u64 {
        mix(self.seed.wrapping_add(at.wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15)))
    }

    /// A number from 0 to below 1.
    pub fn unit(self, at: u64) -> f64 {
        to_unit(self.bits(at))
    }

    /// A whole number below `bound`, which is not 0.
    pub fn below(self, at: u64, bound: u64) -> u64 {
        ((u128::from(self.bits(at)) * u128::from(bound)) >> 64) as u64
    }

    /// A number of the normal distribution.
    pub fn normal(self, at: u64, mean: f64, deviation: f64) -> f64 {
        let (first, second) = (to_unit(self.bits(2 * at)), to_unit(self.bits(2 * at + 1)));
        // The first is below 1, so that the logarithm is finite.
        let radius = (-2.0 * (1.0 - first).ln()).sqrt();
        mean + deviation * radius * (std::f64::consts::TAU * second).cos()
    }

    /// Brings the values into another order; every order is as likely.
    pub fn shuffle<T>(self, values: &mut [T]) {
        for at in (1..values.len()).rev() {
            values.swap(at, self.below(at as u64, at as u64 + 1) as usize);
        }
    }
}

fn mix(mut bits: u64) -> u64 {
    bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    bits ^ (bits >> 31)
}

fn to_unit(bits: u64) -> f64 {
    (bits >> 11) as f64 / (1_u64 << 53) as f64
}

/// Numbers from 0 whose frequency falls as a power of them: Zipf's law, continuous and with an end.
#[derive(Debug, Clone, Copy)]
pub struct Zipf {
    domain: u64,
    exponent: f64,
    /// `domain` to the power of `1 - exponent`, less 1; the logarithm of `domain` for the exponent 1.
    span: f64,
}

impl Zipf {
    /// Numbers below `domain`, which is at least 1: the greater the exponent, the more often the first ones.
    pub fn new(domain: u64, exponent: f64) -> Self {
        let end = domain as f64;
        let span = if exponent == 1.0 { end.ln() } else { end.powf(1.0 - exponent) - 1.0 };
        Self { domain, exponent, span }
    }

    /// The number of draw `at`.
    pub fn draw(self, draws: Draws, at: u64) -> u64 {
        let unit = draws.unit(at);
        let place = match self.exponent == 1.0 {
            true => (unit * self.span).exp(),
            false => (1.0 + unit * self.span).powf(1.0 / (1.0 - self.exponent)),
        };
        (place as u64).clamp(1, self.domain) - 1
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn draws_depend_on_seed_name_and_number() {
        let draws = Draws::new(7, "a");
        assert_eq!(draws.bits(3), Draws::new(7, "a").bits(3));
        for other in [Draws::new(8, "a"), Draws::new(7, "b")] {
            assert_ne!(draws.bits(3), other.bits(3));
        }
        assert_ne!(draws.bits(3), draws.bits(4));
    }

    #[test]
    fn draws_stay_within_their_bounds() {
        let draws = Draws::new(1, "bounds");
        let mut seen = [0; 10];
        for at in 0..10_000 {
            assert!((0.0..1.0).contains(&draws.unit(at)));
            seen[draws.below(at, 10) as usize] += 1;
            assert!(draws.normal(at, 0.0, 1.0).abs() < 10.0);
            assert!(Zipf::new(50, 0.7).draw(draws, at) < 50);
            assert_eq!(Zipf::new(1, 0.7).draw(draws, at), 0);
        }
        assert!(seen.iter().all(|count| (800..1200).contains(count)), "{seen:?}");
        let mean = (0..10_000).map(|at| draws.normal(at, 6.0, 1.0)).sum::<f64>() / 1e4;
        assert!((mean - 6.0).abs() < 0.1, "{mean}");
    }

    /// The share of the first number against the integral of the law, for exponents below, at and above 1.
    #[test]
    fn skewed_draws_follow_their_distribution() {
        for (exponent, share) in [(0.5, 0.0135), (1.0, 0.1003), (1.5, 0.3025)] {
            let (draws, zipf) = (Draws::new(1, "skew"), Zipf::new(1000, exponent));
            let first = (0..100_000).filter(|at| zipf.draw(draws, *at) == 0).count() as f64 / 1e5;
            assert!((first - share).abs() < 0.006, "{exponent}: {first}");
        }
    }

    #[test]
    fn a_shuffle_keeps_all_values() {
        let mut values: Vec<u32> = (0..1000).collect();
        Draws::new(1, "shuffle").shuffle(&mut values);
        assert_ne!(values[..5], [0, 1, 2, 3, 4]);
        values.sort_unstable();
        assert!(values.iter().copied().eq(0..1000));
    }
}
