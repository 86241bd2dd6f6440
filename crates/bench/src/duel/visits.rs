//! A table of page visits, in the shape of the log of a service for web statistics: 30 columns, skewed users,
//! regions, sites and texts, roughly by date.
//!
//! A text is a function of its number in a dictionary; the number is what is drawn. The address of a page
//! with number n is the same in every row and at every scale, and so is its hash.
//! Memory bound: 4 bytes for each of a million users at scale 1.

use std::ops::Range;
use std::sync::Arc;

use arrow::array::{
    ArrayRef, Date32Array, Int16Array, Int32Array, Int64Array, StringArray, TimestampMicrosecondArray,
};
use arrow::error::ArrowError;
use arrow::record_batch::RecordBatch;

use super::draws::{Draws, Zipf};
use super::tables::{Source, Table};

const SEED: u64 = 42;

const NAME: &str = "visits";

/// Rows at scale 1.
const ROWS: f64 = 5_000_000.0;
const FILES: u64 = 4;

/// Words of texts. One of them is what statements search for: frequent in phrases, rare in addresses and
/// titles, where another one takes its place.
const WORDS: [&str; 30] = [
    "flat",
    "shop",
    "auto",
    "google",
    "news",
    "weather",
    "forum",
    "video",
    "music",
    "city",
    "cheap",
    "buy",
    "photo",
    "game",
    "download",
    "free",
    "online",
    "map",
    "price",
    "rent",
    "furniture",
    "second",
    "sport",
    "film",
    "series",
    "book",
    "recipe",
    "health",
    "travel",
    "phone",
];
const RARE_WORD: usize = 3;
const INSTEAD: &str = "goods";

const HOSTS: u64 = 5000;

/// Days of the month, and the first of them since 1970: 1 July 2026.
const DAYS: usize = 31;
const FIRST_DAY: i32 = 20_635;
const DAY_S: u64 = 86_400;

/// Users are this number and multiples of [`USER_STEP`] above.
const USER_FIRST: i64 = 1 << 60;
const USER_STEP: i64 = 7919;
/// The user that a statement looks for, and its place by frequency.
const WANTED_USER: u32 = 50;
const WANTED_PLACE: usize = 500;

/// Number of the site that is the most frequent one.
const FIRST_SITE: i32 = 3922;

const WIDTHS: [i16; 10] = [1024, 1280, 1366, 1440, 1600, 1680, 1920, 0, 800, 320];
const HEIGHTS: [i16; 8] = [768, 800, 900, 1050, 1080, 0, 600, 480];

/// The table at one scale.
pub struct Visits {
    rows: u64,
    /// By day: the first row that is of a later one.
    ends: [u64; DAYS],
    /// Numbers of users from the most to the least frequent.
    users: Vec<u32>,
    /// Place of each row among the numbers of visits.
    visit: Permutation,
}

fn draws(column: &str) -> Draws {
    Draws::new(SEED, column)
}

impl Visits {
    /// Scale 1 has 5 million rows.
    pub fn new(scale: f64) -> Self {
        let rows = ((ROWS * scale) as u64).max(100);
        let (of_days, day) = (draws("event_date"), Zipf::new(DAYS as u64, 0.3));
        let mut ends = [0; DAYS];
        (0..rows).for_each(|row| ends[day.draw(of_days, row) as usize] += 1);
        for day in 1..DAYS {
            ends[day] += ends[day - 1];
        }
        let mut users: Vec<u32> = (0..(rows / 5) as u32).collect();
        draws("users").shuffle(&mut users);
        let place = users.iter().position(|user| *user == WANTED_USER);
        if let Some(place) = place.filter(|_| WANTED_PLACE < users.len()) {
            users.swap(place, WANTED_PLACE);
        }
        Self { rows, ends, users, visit: Permutation::new(rows, draws("visit_id")) }
    }

    fn numbers(&self, dictionary: u64) -> u64 {
        (self.rows / dictionary).max(1)
    }

    fn columns(&self, rows: Range<u64>) -> Vec<(&'static str, ArrayRef)> {
        let shorts = |value: &dyn Fn(u64) -> i16| -> ArrayRef {
            Arc::new(Int16Array::from_iter_values(rows.clone().map(value)))
        };
        let ints = |value: &dyn Fn(u64) -> i32| -> ArrayRef {
            Arc::new(Int32Array::from_iter_values(rows.clone().map(value)))
        };
        let longs = |value: &dyn Fn(u64) -> i64| -> ArrayRef {
            Arc::new(Int64Array::from_iter_values(rows.clone().map(value)))
        };
        let texts = |value: &dyn Fn(u64) -> String| -> ArrayRef {
            Arc::new(StringArray::from_iter_values(rows.clone().map(value)))
        };
        // A column whose numbers are skewed, and one that is 1 in some rows and else 0.
        let zipf = |column: &str, domain: u64, exponent: f64| {
            let (draws, law) = (draws(column), Zipf::new(domain, exponent));
            move |row: u64| law.draw(draws, row)
        };
        let sometimes = |column: &str, share: f64| {
            let draws = draws(column);
            move |row: u64| draws.unit(row) < share
        };

        let day = |row: u64| FIRST_DAY + self.ends.partition_point(|end| *end <= row) as i32;
        let of_seconds = draws("second");
        let second = |row: u64| of_seconds.below(row, DAY_S);
        let time = |row: u64| (i64::from(day(row)) * DAY_S as i64 + second(row) as i64) * 1_000_000;

        let url = zipf("url", self.numbers(6), 0.85);
        let url = |row: u64| 1 + url(row);
        let (has_title, title) = (sometimes("has_title", 0.85), zipf("title", self.numbers(12), 0.9));
        let (has_referer, referer) = (sometimes("has_referer", 0.81), zipf("referer", self.numbers(8), 0.9));
        let (has_phrase, phrase) = (sometimes("has_phrase", 0.13), zipf("phrase", self.numbers(16), 0.8));
        let (has_model, model) = (sometimes("has_model", 0.06), zipf("model", 165, 0.9));
        let (has_adv, adv) = (sometimes("has_adv", 0.006), zipf("adv", 60, 1.2));
        let engine = zipf("engine", 90, 1.4);
        let title = |row: u64| if has_title(row) { 1 + title(row) } else { 0 };
        let referer = |row: u64| if has_referer(row) { 1 + referer(row) } else { 0 };
        let phrase = |row: u64| if has_phrase(row) { 1 + phrase(row) } else { 0 };
        let engine = |row: u64| if has_phrase(row) { 1 + engine(row) } else { 0 };
        let model = |row: u64| if has_model(row) { 1 + model(row) } else { 0 };

        let (site, region) = (zipf("site", 6500, 1.1), zipf("region", 9000, 1.15));
        let (user, address) = (zipf("user", self.users.len() as u64, 0.75), zipf("ip", self.numbers(4), 0.7));
        let (ips, ages) = (draws("address"), draws("age"));
        let (os, agent) = (zipf("os", 90, 1.3), zipf("user_agent", 80, 1.2));
        let (width, height) = (zipf("res_width", 10, 0.6), zipf("res_height", 8, 0.6));
        let (win_width, win_height) = (draws("win_width"), draws("win_height"));
        let traffic = zipf("traffic_source", 11, 0.8);
        let (refresh, link) = (sometimes("is_refresh", 0.1), sometimes("is_link", 0.08));
        let (download, no_count) = (sometimes("is_download", 0.01), sometimes("no_count", 0.05));

        vec![
            ("visit_id", longs(&|row| self.visit.place_of(row) as i64 * 1_000_003 + 4_600_000_000_000_000)),
            ("page_title", texts(&|row| title_text(title(row)))),
            ("event_time", Arc::new(TimestampMicrosecondArray::from_iter_values(rows.clone().map(time)))),
            ("event_date", Arc::new(Date32Array::from_iter_values(rows.clone().map(day)))),
            ("site_id", ints(&|row| if site(row) == 0 { FIRST_SITE } else { site(row) as i32 })),
            ("client_ip", ints(&|row| ips.bits(address(row)) as i32)),
            ("region_id", ints(&|row| region(row) as i32)),
            ("user_id", longs(&|row| USER_FIRST + i64::from(self.users[user(row) as usize]) * USER_STEP)),
            ("os", shorts(&|row| os(row) as i16)),
            ("user_agent", shorts(&|row| agent(row) as i16)),
            ("url", texts(&|row| url_text(url(row)))),
            ("referer", texts(&|row| referer_text(referer(row)))),
            ("is_refresh", shorts(&|row| refresh(row).into())),
            ("res_width", shorts(&|row| WIDTHS[width(row) as usize])),
            ("res_height", shorts(&|row| HEIGHTS[height(row) as usize])),
            ("win_width", shorts(&|row| win_width.normal(row, 1300.0, 300.0).clamp(0.0, 2560.0) as i16)),
            ("win_height", shorts(&|row| win_height.normal(row, 700.0, 150.0).clamp(0.0, 1600.0) as i16)),
            ("phone", shorts(&|row| (model(row) % 40) as i16)),
            ("phone_model", texts(&|row| model_text(model(row)))),
            ("traffic_source", shorts(&|row| traffic(row) as i16 - 1)),
            ("engine_id", shorts(&|row| engine(row) as i16)),
            ("search_phrase", texts(&|row| phrase_text(phrase(row)))),
            ("adv_id", shorts(&|row| if has_adv(row) { 1 + adv(row) as i16 } else { 0 })),
            ("is_link", shorts(&|row| link(row).into())),
            ("is_download", shorts(&|row| download(row).into())),
            ("no_count", shorts(&|row| no_count(row).into())),
            ("url_hash", longs(&|row| hash(url(row)))),
            ("referer_hash", longs(&|row| hash(referer(row)))),
            ("age", shorts(&|row| ages.below(row, 6) as i16 * 10)),
            ("hour", shorts(&|row| (second(row) / 3600) as i16)),
        ]
    }
}

impl Source for Visits {
    fn tables(&self) -> Vec<Table> {
        vec![Table { name: NAME, rows: self.rows, files: FILES }]
    }

    fn batch(&self, table: &str, rows: Range<u64>) -> Result<RecordBatch, ArrowError> {
        if table != NAME {
            return Err(ArrowError::InvalidArgumentError(format!("no table \"{table}\"")));
        }
        let columns = self.columns(rows).into_iter().map(|(name, column)| (name, column, true));
        RecordBatch::try_from_iter_with_nullable(columns)
    }
}

/// Another order of the numbers below some number, without a list of them.
#[derive(Debug, Clone, Copy)]
struct Permutation {
    numbers: u64,
    factor: u64,
    offset: u64,
}

impl Permutation {
    fn new(numbers: u64, draws: Draws) -> Self {
        // About the golden section of all, so that neighbours come far from each other.
        let mut factor = (numbers as f64 * 0.618_034) as u64 + 1;
        while greatest_divisor(factor, numbers) != 1 {
            factor += 1;
        }
        Self { numbers, factor, offset: draws.below(0, numbers) }
    }

    fn place_of(self, number: u64) -> u64 {
        let place = u128::from(number) * u128::from(self.factor) + u128::from(self.offset);
        (place % u128::from(self.numbers)) as u64
    }
}

/// The greatest common divisor.
fn greatest_divisor(one: u64, other: u64) -> u64 {
    if other == 0 { one } else { greatest_divisor(other, one % other) }
}

/// Fibonacci hashing (Knuth, "The Art of Computer Programming", 6.4), 62 bits.
fn hash(number: u64) -> i64 {
    (number.wrapping_mul(11_400_714_819_323_198_485) >> 2) as i64
}

/// A word that is not the one searched for.
fn other_word(at: u64) -> &'static str {
    if at as usize == RARE_WORD { INSTEAD } else { WORDS[at as usize] }
}

fn host(at: u64) -> String {
    format!("{}{at}.{}", other_word(at % 30), if at.is_multiple_of(3) { "com" } else { "ru" })
}

/// Texts have numbers from 1; 0 is the empty one.
fn url_text(number: u64) -> String {
    if number == 0 {
        return String::new();
    }
    let host = host(Zipf::new(HOSTS, 1.05).draw(draws("url.host"), number));
    let parts = draws("url.part");
    let part = |at: u64| other_word(parts.below(4 * number + at, 30));
    let search = if draws("url.search").below(number, 3000) == 0 { "www.google.search/" } else { "" };
    let item = draws("url.item").below(number, 10_000_000);
    format!(
        "http://{host}/{search}{}/{}-{}/item{item}.html?lang=ru&ref={}",
        part(0),
        part(1),
        part(2),
        item % 977
    )
}

fn title_text(number: u64) -> String {
    if number == 0 {
        return String::new();
    }
    let parts = draws("title.part");
    let part = |at: u64| other_word(parts.below(8 * number + at, 30));
    let search = if draws("title.search").below(number, 2000) == 0 { "Google " } else { "" };
    let mut first = part(0).to_owned();
    first[..1].make_ascii_uppercase();
    let end = draws("title.number").below(number, 1_000_000);
    format!("{search}{first} {} {} — {} {} {end}", part(1), part(2), part(3), part(4))
}

fn referer_text(number: u64) -> String {
    if number == 0 {
        return String::new();
    }
    let host = host(Zipf::new(HOSTS, 1.05).draw(draws("referer.host"), number));
    let scheme = if number % 4 == 1 { "https://www." } else { "http://" };
    let page = draws("referer.page").below(number, 1_000_000);
    format!("{scheme}{host}/{}/{page}", other_word((number - 1) % 30))
}

/// One to five words, the one searched for among them, and a number.
fn phrase_text(number: u64) -> String {
    if number == 0 {
        return String::new();
    }
    let words = draws("phrase.word");
    let mut text = String::new();
    for at in 0..=draws("phrase.words").below(number, 5) {
        text.push_str(WORDS[words.below(8 * number + at, 30) as usize]);
        text.push(' ');
    }
    text + &draws("phrase.number").below(number, 100_000).to_string()
}

fn model_text(number: u64) -> String {
    match number.checked_sub(1) {
        Some(model) => format!("Model {}{model}", char::from(b'A' + (model % 26) as u8)),
        None => String::new(),
    }
}

#[cfg(test)]
mod tests {
    use std::collections::{BTreeMap, BTreeSet};

    use arrow::array::AsArray;
    use arrow::datatypes::{Date32Type, Int16Type, Int64Type};

    use super::*;

    #[test]
    fn the_table_grows_with_the_scale() {
        let table = |scale| Visits::new(scale).tables()[0];
        assert_eq!(table(1.0), Table { name: "visits", rows: 5_000_000, files: 4 });
        assert_eq!(table(0.001).rows, 5000);
    }

    #[test]
    fn rows_are_the_same_each_time_and_in_any_piece() {
        let visits = Visits::new(0.001);
        let all = visits.batch(NAME, 0..5000).unwrap();
        assert_eq!(all.num_columns(), 30);
        assert_eq!(all, Visits::new(0.001).batch(NAME, 0..5000).unwrap());
        assert_eq!(all.slice(2500, 10), visits.batch(NAME, 2500..2510).unwrap());
        assert!(visits.batch("visit", 0..1).is_err());
    }

    #[test]
    fn visits_have_numbers_of_their_own_and_stand_by_date() {
        let batch = Visits::new(0.001).batch(NAME, 0..5000).unwrap();
        let numbers: BTreeSet<i64> = batch
            .column_by_name("visit_id")
            .unwrap()
            .as_primitive::<Int64Type>()
            .values()
            .iter()
            .copied()
            .collect();
        assert_eq!(numbers.len(), 5000);
        let dates = batch.column_by_name("event_date").unwrap().as_primitive::<Date32Type>().values();
        assert!(dates.is_sorted());
        assert!(dates[0] == FIRST_DAY && dates[4999] < FIRST_DAY + DAYS as i32);
    }

    #[test]
    fn users_are_skewed_and_the_one_looked_for_is_there() {
        let visits = Visits::new(0.01);
        let batch = visits.batch(NAME, 0..visits.rows).unwrap();
        let mut counts = BTreeMap::new();
        for user in batch.column_by_name("user_id").unwrap().as_primitive::<Int64Type>().values() {
            *counts.entry(*user).or_insert(0_u64) += 1;
        }
        let wanted = USER_FIRST + i64::from(WANTED_USER) * USER_STEP;
        assert_eq!(wanted, 1_152_921_504_607_242_926);
        assert!(counts.contains_key(&wanted));
        let user = |place: &u32| USER_FIRST + i64::from(*place) * USER_STEP;
        let of = |place: &u32| counts.get(&user(place)).copied().unwrap_or_default();
        // 10 000 users; by the law, (1000^0.25 - 1) / (10000^0.25 - 1) of the rows are of a tenth of them.
        let share = visits.users[..1000].iter().map(of).sum::<u64>() as f64 / visits.rows as f64;
        assert!((share - 0.514).abs() < 0.03, "{share}");
    }

    #[test]
    fn texts_contain_the_searched_word() {
        assert_eq!(hash(1), 2_850_178_704_830_799_621);
        let with =
            |text: fn(u64) -> String, word: &str| (1..30_000).filter(|at| text(*at).contains(word)).count();
        assert!((1..40).contains(&with(url_text, "google")));
        assert!((1..50).contains(&with(title_text, "Google")));
        assert!((2000..4000).contains(&with(phrase_text, "google")));
        assert_eq!(with(referer_text, "google"), 0);
        let batch = Visits::new(0.001).batch(NAME, 0..5000).unwrap();
        let phrases = batch.column_by_name("search_phrase").unwrap().as_string::<i32>();
        let engines = batch.column_by_name("engine_id").unwrap().as_primitive::<Int16Type>();
        let with_phrase = phrases.iter().flatten().filter(|phrase| !phrase.is_empty()).count();
        assert!((500..800).contains(&with_phrase), "{with_phrase}");
        for (phrase, engine) in phrases.iter().flatten().zip(engines.values()) {
            assert_eq!(phrase.is_empty(), *engine == 0);
        }
    }
}
