//! Choices that determine a statement: drawn from a seed, or given, so that a statement can be regenerated
//! from fewer of them.

use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};

/// A list of numbers, each selecting one of several ways. After its end every choice is the first way, which
/// is always the simplest, unless numbers are drawn.
#[derive(Debug, Clone)]
pub(super) struct Choices {
    numbers: Vec<u32>,
    next: usize,
    random: Option<StdRng>,
}

impl Choices {
    /// Draws numbers on demand.
    pub(super) fn of_seed(seed: u64) -> Self {
        Self { numbers: vec![], next: 0, random: Some(StdRng::seed_from_u64(seed)) }
    }

    pub(super) fn of_numbers(numbers: Vec<u32>) -> Self {
        Self { numbers, next: 0, random: None }
    }

    /// All numbers that were used.
    pub(super) fn into_numbers(mut self) -> Vec<u32> {
        self.numbers.truncate(self.next);
        self.numbers
    }

    /// One of `ways`, from 0. `ways` is at least 1.
    pub(super) fn choose(&mut self, ways: usize) -> usize {
        if self.next == self.numbers.len() {
            match &mut self.random {
                Some(random) => self.numbers.push(random.random_range(0..1 << 16)),
                None => return 0,
            }
        }
        let number = self.numbers[self.next];
        self.next += 1;
        number as usize % ways
    }

    /// True in `times` of `of` cases; false is the simpler way.
    pub(super) fn happens(&mut self, times: usize, of: usize) -> bool {
        self.choose(of) >= of - times
    }

    pub(super) fn one_of<'a, T: ?Sized>(&mut self, ways: &[&'a T]) -> &'a T {
        ways[self.choose(ways.len())]
    }
}

/// Shrinks a list of numbers as long as `fails` holds for the smaller list; calls it at most `runs_max`
/// times.
pub(super) fn shrink(
    mut numbers: Vec<u32>,
    runs_max: usize,
    mut fails: impl FnMut(&[u32]) -> bool,
) -> Vec<u32> {
    let mut runs = 0;
    let mut is_smaller = true;
    while is_smaller && runs < runs_max {
        is_smaller = false;
        let mut size = numbers.len().next_power_of_two().min(64);
        while size > 0 {
            let mut start = 0;
            while start < numbers.len() && runs < runs_max {
                let end = (start + size).min(numbers.len());
                let without = [&numbers[..start], &numbers[end..]].concat();
                let mut zeroed = numbers.clone();
                zeroed[start..end].fill(0);
                runs += 1;
                if fails(&without) {
                    numbers = without;
                    is_smaller = true;
                    continue;
                }
                if zeroed != numbers {
                    runs += 1;
                    if fails(&zeroed) {
                        numbers = zeroed;
                        is_smaller = true;
                    }
                }
                start = end;
            }
            size /= 2;
        }
    }
    numbers
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn given_numbers_choose_the_same_again() {
        let mut drawn = Choices::of_seed(7);
        let first: Vec<usize> = (1..40).map(|ways| drawn.choose(ways)).collect();
        let mut again = Choices::of_numbers(drawn.into_numbers());
        assert_eq!(first, (1..40).map(|ways| again.choose(ways)).collect::<Vec<_>>());
        assert_eq!(again.choose(9), 0);
    }

    #[test]
    fn irrelevant_choices_are_shrunk() {
        let numbers: Vec<u32> = (1..100).collect();
        let small = shrink(numbers, 1000, |numbers| numbers.contains(&13) && numbers.contains(&77));
        assert_eq!(small, [13, 77]);
    }
}
