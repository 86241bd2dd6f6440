//! Generators of test input, from a seed.

use clap::{Args, ValueEnum};
use harrier_mpid::BoxError;
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::PathBuf;

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Kind {
    /// Lines of words; how often a word occurs follows Zipf's law.
    Text,
    /// TeraSort's records of 100 bytes: a random key of 10, the number of the record, and filling.
    Records,
    Rankings,
    /// Visits to the pages of rankings of a tenth as many rows, by Zipf's law.
    Uservisits,
    /// Edges; what they lead to follows Zipf's law.
    Graph,
    /// Points around a few centres.
    Points,
    /// Keys with times that only grow.
    Events,
}

#[derive(Args)]
pub struct Generate {
    kind: Kind,
    /// Folder for the files; one that has any is refused.
    #[arg(long)]
    out: PathBuf,
    /// Stop at this size, such as 64MiB.
    #[arg(long, default_value_t = 1 << 26, value_parser = crate::size)]
    bytes: u64,
    /// In how many files.
    #[arg(long, default_value_t = 4, value_parser = crate::positive::<usize>())]
    files: usize,
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Keys of records consist of printable characters, as those of `gensort -a`.
    #[arg(long)]
    printable: bool,
}

/// Zipf distribution over the numbers below `count`, exponent 1: number k occurs about 1/(k+1) as often as
/// number 0.
struct Zipf {
    sums: Vec<f64>,
}

impl Zipf {
    fn new(count: usize) -> Zipf {
        let mut sum = 0.0;
        let sums = (1..=count).map(|number| {
            sum += 1.0 / number as f64;
            sum
        });
        Zipf { sums: sums.collect() }
    }

    fn draw(&self, random: &mut StdRng) -> usize {
        let wanted = random.random::<f64>() * self.sums.last().expect("there is a number");
        self.sums.partition_point(|sum| *sum < wanted).min(self.sums.len() - 1)
    }
}

const WORDS: usize = 100_000;

fn word(number: usize) -> String {
    // Frequent words are short.
    let mut word = String::new();
    let mut rest = number + 1;
    while rest > 0 {
        word.push(char::from(b'a' + (rest % 26) as u8));
        rest /= 26;
    }
    word.push_str(["", "s", "ing", "ed", "er", "ion", "ly"][number % 7]);
    word
}

/// User agents of visits.
const AGENTS: [&str; 5] = [
    "Mozilla/5.0 (X11; Linux x86_64; rv:115.0) Gecko/20100101 Firefox/115.0",
    "Mozilla/4.0 (compatible; MSIE 6.0; Windows NT 5.1)",
    "Opera/9.80 (Windows NT 6.1; U; en) Presto/2.2.15 Version/10.10",
    "Lynx/2.8.9rel.1 libwww-FM/2.14",
    "curl/7.88.1",
];

/// Countries, and a language of each.
const COUNTRIES: [(&str, &str); 6] =
    [("USA", "EN"), ("DEU", "DE"), ("FRA", "FR"), ("CHN", "ZH"), ("BRA", "PT"), ("JPN", "JA")];

/// Maps different numbers to different addresses.
fn address(number: u32) -> u32 {
    number.wrapping_mul(0x9E37_79B1)
}

pub fn url(number: usize) -> String {
    format!("http://www.example.org/{:x}/{number}.html", number.wrapping_mul(0x9E37_79B9) & 0xfff)
}

pub fn generate(arguments: &Generate) -> Result<String, BoxError> {
    let Generate { kind, out, bytes, files, seed, printable } = arguments;
    let named = |error: std::io::Error| format!("{}: {error}", out.display());
    std::fs::create_dir_all(out).map_err(named)?;
    if std::fs::read_dir(out).map_err(named)?.next().is_some() {
        return Err(
            format!("{} is not empty: what is in it would become part of the input", out.display()).into()
        );
    }
    let mut rows = 0;
    let mut written = 0;
    for number in 0..*files {
        let path = out.join(format!("{kind:?}-{number:04}").to_lowercase());
        let mut file = BufWriter::with_capacity(1 << 20, File::create(&path).map_err(named)?);
        let mut random =
            StdRng::seed_from_u64(seed ^ (number as u64 + 1).wrapping_mul(0x9E37_79B9_7F4A_7C15));
        let mut source = Source::new(*kind, *bytes, number as u64, *files as u64);
        source.printable = *printable;
        let end = bytes * (number as u64 + 1) / *files as u64;
        while written < end {
            let row = source.row(&mut random);
            if *kind == Kind::Records && end - written < row.len() as u64 {
                break;
            }
            file.write_all(&row)?;
            written += row.len() as u64;
            rows += 1;
        }
        file.flush()?;
    }
    Ok(format!("{rows} rows, {written} bytes in {}", out.display()))
}

struct Source {
    kind: Kind,
    zipf: Zipf,
    words: Vec<String>,
    /// Visitors' addresses: four or so visits each.
    addresses: u32,
    row: u64,
    /// Row number increment: rows of other files come between.
    step: u64,
    time: u64,
    printable: bool,
}

impl Source {
    fn new(kind: Kind, bytes: u64, first: u64, step: u64) -> Source {
        let count = match kind {
            Kind::Text => WORDS,
            Kind::Uservisits => (bytes / 1_600).max(10) as usize,
            Kind::Graph => (bytes / 120).max(10) as usize,
            Kind::Events => 10_000,
            Kind::Records | Kind::Rankings | Kind::Points => 1,
        };
        let words = if kind == Kind::Text { (0..WORDS).map(word).collect() } else { vec![] };
        let addresses = u32::try_from(bytes / 640).unwrap_or(u32::MAX).max(10);
        Source { kind, zipf: Zipf::new(count), words, addresses, row: first, step, time: 0, printable: false }
    }

    fn row(&mut self, random: &mut StdRng) -> Vec<u8> {
        let row = self.row;
        self.row += self.step;
        match self.kind {
            Kind::Text => {
                let mut line = String::new();
                for at in 0..random.random_range(5..15) {
                    line.push_str(if at > 0 { " " } else { "" });
                    line.push_str(&self.words[self.zipf.draw(random)]);
                }
                line.push('\n');
                line.into_bytes()
            }
            Kind::Records => {
                let mut record = vec![0; 100];
                random.fill(&mut record[..10]);
                if self.printable {
                    record[..10].iter_mut().for_each(|byte| *byte = b' ' + *byte % 95);
                }
                record[10..42].copy_from_slice(format!("{row:032X}").as_bytes());
                record[42..98].copy_from_slice(&[b'A' + (row % 26) as u8; 56]);
                record[98..].copy_from_slice(b"\r\n");
                record
            }
            Kind::Rankings => {
                let (rank, duration) = (random.random_range(1..10_000), random.random_range(1..100));
                format!("{}|{rank}|{duration}\n", url(row as usize)).into_bytes()
            }
            Kind::Uservisits => {
                let page = url(self.zipf.draw(random));
                let [a, b, c, d] = address(random.random_range(0..self.addresses)).to_be_bytes();
                let (year, month, day) = (
                    random.random_range(1998..2002),
                    random.random_range(1..=12),
                    random.random_range(1..=28),
                );
                let cents = random.random_range(0..100_000);
                let agent = AGENTS[random.random_range(0..AGENTS.len())];
                let (country, language) = COUNTRIES[random.random_range(0..COUNTRIES.len())];
                let searched = word(random.random_range(0..WORDS));
                let duration = random.random_range(1..11);
                format!(
                    "{a}.{b}.{c}.{d}|{page}|{year}-{month:02}-{day:02}|{}.{:02}|{agent}|{country}|{country}-{language}|{searched}|{duration}\n",
                    cents / 100,
                    cents % 100
                )
                .into_bytes()
            }
            Kind::Graph => {
                let nodes = self.zipf.sums.len();
                format!("{}\t{}\n", random.random_range(0..nodes), self.zipf.draw(random)).into_bytes()
            }
            Kind::Points => {
                let centre = random.random_range(0..8u32);
                let numbers: Vec<String> = (0..8u32)
                    .map(|at| {
                        let middle = f64::from(centre.wrapping_mul(2_654_435_761).rotate_left(at * 4) % 100);
                        format!("{:.4}", middle + random.random_range(-5.0..5.0))
                    })
                    .collect();
                (numbers.join(" ") + "\n").into_bytes()
            }
            Kind::Events => {
                self.time += random.random_range(0..3);
                format!("{}\tkey{}\n", self.time, self.zipf.draw(random)).into_bytes()
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_makes_the_same_input() {
        let folder = tempfile::tempdir().unwrap();
        for kind in Kind::value_variants() {
            let make = |name: &str, seed| {
                let out = folder.path().join(format!("{kind:?}-{name}"));
                let out_folder = out.clone();
                let arguments = Generate {
                    kind: *kind,
                    out: out_folder,
                    bytes: 20_000,
                    files: 3,
                    seed,
                    printable: false,
                };
                generate(&arguments).unwrap();
                assert!(generate(&arguments).unwrap_err().to_string().contains("not empty"));
                let mut files: Vec<_> =
                    std::fs::read_dir(out).unwrap().map(|file| file.unwrap().path()).collect();
                files.sort();
                assert_eq!(files.len(), 3);
                files.iter().flat_map(|file| std::fs::read(file).unwrap()).collect::<Vec<u8>>()
            };
            let one = make("one", 1);
            assert!((19_000..21_000).contains(&one.len()), "{kind:?}: {}", one.len());
            assert_eq!(one, make("same", 1));
            assert_ne!(one, make("other", 2));
        }
    }
}
