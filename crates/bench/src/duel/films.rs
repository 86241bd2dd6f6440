//! Tables of films, casts, companies and keywords: a snowflake around `film` with four large tables that
//! refer to it, skewed keys and columns that go together, as estimates of join sizes find them hard.
//!
//! ```text
//!  kind ◄── film ◄──┬── cast_info ────► person, role
//!                   ├── film_info ────► info_type
//!                   ├── film_keyword ─► keyword
//!                   └── film_company ─► company
//! ```
//!
//! What goes together: kind and year (recent films are more often episodes), kind and how often a film is
//! referred to, documentaries and the genre of that name, the role and the note of a cast, the country of a
//! company and the note of its film.
//! Memory bound: 17 bytes for each of 600 000 films at scale 1, and 1 for each company; 16 more for each film
//! while they are sorted.

use std::ops::Range;
use std::sync::Arc;

use arrow::array::{ArrayRef, Int32Array, Int64Array, StringArray};
use arrow::error::ArrowError;
use arrow::record_batch::RecordBatch;

use super::draws::{Draws, Zipf};
use super::tables::{Source, Table};

const SEED: u64 = 7;

const KINDS: [&str; 7] = ["movie", "tv series", "episode", "video", "game", "short", "documentary"];
/// Kinds of films: as many twelfths as a kind stands here.
const KIND_WEIGHTS: [u8; 12] = [2, 2, 2, 2, 0, 0, 0, 3, 1, 5, 6, 4];
const EPISODE: u8 = 2;
const MOVIE: u8 = 0;
const SERIES: u8 = 1;
const DOCUMENTARY: u8 = 6;

const ROLES: [&str; 12] = [
    "actor",
    "actress",
    "producer",
    "writer",
    "cinematographer",
    "composer",
    "designer",
    "director",
    "editor",
    "guest",
    "crew",
    "narrator",
];
/// Roles of a cast by their frequency; the first ones stand here several times.
const ROLE_RANKS: [u8; 15] = [0, 0, 0, 1, 1, 2, 3, 7, 8, 9, 10, 5, 4, 6, 11];
const PRODUCER: u8 = 2;

const INFO_TYPES: [&str; 10] = [
    "budget",
    "genres",
    "rating",
    "votes",
    "country",
    "language",
    "runtime",
    "release dates",
    "top 250 rank",
    "bottom 10 rank",
];
const INFO_TYPE_COUNT: u64 = 110;
const GENRES_TYPE: u64 = 1;
const RATING_TYPE: u64 = 2;
const COUNTRY_TYPE: u64 = 4;

const GENRES: [&str; 10] = [
    "Drama",
    "Comedy",
    "Short",
    "Horror",
    "Action",
    "Documentary",
    "Thriller",
    "Romance",
    "Sci-Fi",
    "Western",
];
const DOCUMENTARY_GENRE: u64 = 5;

const KEYWORDS: [&str; 10] = [
    "sequel",
    "murder",
    "love",
    "based-on-novel",
    "character-name-in-title",
    "superhero",
    "revenge",
    "blood",
    "violence",
    "marvel",
];

const COUNTRIES: [&str; 10] = ["us", "gb", "de", "fr", "jp", "in", "ca", "it", "es", "se"];
const COUNTRY_COUNT: u64 = 100;

const FILMED_IN: [&str; 6] = ["USA", "UK", "Germany", "France", "Japan", "India"];

/// Syllables of names and titles.
const SYLLABLES: [&str; 12] = ["ka", "lo", "mi", "ten", "bra", "sun", "dor", "vel", "qui", "mar", "ni", "po"];

/// Tables that refer to films, and how skewed their references are.
const REFERENCES: [(&str, f64); 4] =
    [("cast_info", 0.6), ("film_info", 0.5), ("film_keyword", 0.7), ("film_company", 0.4)];

/// The tables at one scale.
pub struct Films {
    scale: f64,
    /// Kind of each film.
    kinds: Vec<u8>,
    /// Country of each company.
    countries: Vec<u8>,
    /// Films from the most to the least frequent, for each of [`REFERENCES`].
    orders: [Vec<u32>; 4],
}

fn draws(table: &str, column: &str) -> Draws {
    Draws::new(SEED, &format!("{table}.{column}"))
}

fn rows_at(scale: f64, rows: f64) -> u64 {
    ((rows * scale) as u64).max(1)
}

impl Films {
    /// Scale 1 has 600 000 films and 6 million casts.
    pub fn new(scale: f64) -> Self {
        let films = rows_at(scale, 600_000.0);
        let of_kinds = draws("film", "kind_id");
        let kinds: Vec<u8> = (0..films).map(|film| KIND_WEIGHTS[of_kinds.below(film, 12) as usize]).collect();
        let (of_countries, country) = (draws("company", "country"), Zipf::new(COUNTRY_COUNT, 1.1));
        let companies = rows_at(scale, 60_000.0);
        let countries = (0..companies).map(|company| country.draw(of_countries, company) as u8).collect();
        let orders = REFERENCES.map(|(table, _)| by_frequency(&kinds, draws(table, "order")));
        Self { scale, kinds, countries, orders }
    }

    /// The film that row `row` of a table refers to.
    fn film_of<'a>(&'a self, table: &str) -> impl Fn(u64) -> u64 + use<'a> {
        let place = REFERENCES.iter().position(|(name, _)| *name == table).unwrap_or(0);
        let (order, draws) = (&self.orders[place], draws(table, "film_id"));
        let zipf = Zipf::new(order.len() as u64, REFERENCES[place].1);
        move |row| u64::from(order[zipf.draw(draws, row) as usize])
    }

    fn rows_of(&self, table: &str) -> u64 {
        self.tables().iter().find(|one| one.name == table).map_or(1, |one| one.rows)
    }

    fn film(&self, rows: Range<u64>) -> Vec<(&'static str, ArrayRef)> {
        let (of_years, of_seasons) = (draws("film", "year"), draws("film", "season"));
        let years =
            [(EPISODE, Zipf::new(40, 0.5)), (MOVIE, Zipf::new(120, 0.3)), (u8::MAX, Zipf::new(70, 0.5))];
        let kind = |row: u64| self.kinds[row as usize];
        let year = |row: u64| {
            let ages = years.iter().find(|(of, _)| *of == kind(row)).unwrap_or(&years[2]);
            2026 - ages.1.draw(of_years, row) as i32
        };
        let season = |row: u64| match kind(row) {
            EPISODE => 1 + of_seasons.below(row, 29) as i32,
            _ => 0,
        };
        vec![
            ("id", longs(rows.clone(), |row| row)),
            ("title", names("film", 3, rows.clone())),
            ("kind_id", longs(rows.clone(), |row| kind(row).into())),
            ("year", ints(rows.clone(), year)),
            ("season", ints(rows, season)),
        ]
    }

    fn person(&self, rows: Range<u64>) -> Vec<(&'static str, ArrayRef)> {
        let (of_genders, gender) = (draws("person", "gender"), Zipf::new(3, 0.4));
        let (of_births, age) = (draws("person", "birth"), Zipf::new(120, 0.2));
        vec![
            ("id", longs(rows.clone(), |row| row)),
            ("name", names("person", 3, rows.clone())),
            ("gender", texts(rows.clone(), |row| ["m", "f", ""][gender.draw(of_genders, row) as usize])),
            ("birth", ints(rows, |row| 2010 - age.draw(of_births, row) as i32)),
        ]
    }

    fn company(&self, rows: Range<u64>) -> Vec<(&'static str, ArrayRef)> {
        let country = |row: u64| {
            let country = usize::from(self.countries[row as usize]);
            match COUNTRIES.get(country) {
                Some(code) => format!("[{code}]"),
                None => format!("[c{}]", country - COUNTRIES.len()),
            }
        };
        vec![
            ("id", longs(rows.clone(), |row| row)),
            ("name", names("company", 2, rows.clone())),
            ("country", texts(rows, country)),
        ]
    }

    fn cast_info(&self, rows: Range<u64>) -> Vec<(&'static str, ArrayRef)> {
        let (of_people, person) = (draws("cast_info", "person_id"), Zipf::new(self.rows_of("person"), 0.75));
        let (of_roles, rank) = (draws("cast_info", "role_id"), Zipf::new(15, 0.5));
        let (of_numbers, number) = (draws("cast_info", "nr"), Zipf::new(200, 0.8));
        let (has_note, of_notes) = (draws("cast_info", "has_note"), draws("cast_info", "note"));
        let role = |row: u64| ROLE_RANKS[rank.draw(of_roles, row) as usize];
        let note = |row: u64| {
            let which = of_notes.below(row, 2) as usize;
            match role(row) {
                PRODUCER => ["(producer)", "(executive producer)"][which],
                _ if has_note.unit(row) < 0.75 => "",
                _ => ["(voice)", "(uncredited)"][which],
            }
        };
        vec![
            ("id", longs(rows.clone(), |row| row)),
            ("film_id", longs(rows.clone(), self.film_of("cast_info"))),
            ("person_id", longs(rows.clone(), |row| person.draw(of_people, row))),
            ("role_id", longs(rows.clone(), |row| role(row).into())),
            ("note", texts(rows.clone(), note)),
            ("nr", ints(rows, |row| number.draw(of_numbers, row) as i32)),
        ]
    }

    fn film_info(&self, rows: Range<u64>) -> Vec<(&'static str, ArrayRef)> {
        let of = |column| draws("film_info", column);
        let (of_types, info_type) = (of("type_id"), Zipf::new(INFO_TYPE_COUNT, 1.0));
        let (of_genres, genre) = (of("genre"), Zipf::new(10, 0.5));
        let (of_countries, country) = (of("country"), Zipf::new(6, 0.8));
        let (of_values, number) = (of("value"), Zipf::new(5000, 0.9));
        let of_ratings = of("rating");
        let film = self.film_of("film_info");
        let value = |row: u64| match info_type.draw(of_types, row) {
            GENRES_TYPE if self.kinds[film(row) as usize] == DOCUMENTARY => {
                GENRES[DOCUMENTARY_GENRE as usize].to_owned()
            }
            GENRES_TYPE => GENRES[genre.draw(of_genres, row) as usize].to_owned(),
            RATING_TYPE => format!("{:.1}", of_ratings.normal(row, 6.2, 1.4).clamp(1.0, 10.0)),
            COUNTRY_TYPE => FILMED_IN[country.draw(of_countries, row) as usize].to_owned(),
            _ => format!("v{}", number.draw(of_values, row)),
        };
        vec![
            ("id", longs(rows.clone(), |row| row)),
            ("film_id", longs(rows.clone(), &film)),
            ("type_id", longs(rows.clone(), |row| info_type.draw(of_types, row))),
            ("value", texts(rows, value)),
        ]
    }

    fn film_keyword(&self, rows: Range<u64>) -> Vec<(&'static str, ArrayRef)> {
        let of_keywords = draws("film_keyword", "keyword_id");
        let keyword = Zipf::new(self.rows_of("keyword"), 0.9);
        vec![
            ("id", longs(rows.clone(), |row| row)),
            ("film_id", longs(rows.clone(), self.film_of("film_keyword"))),
            ("keyword_id", longs(rows, |row| keyword.draw(of_keywords, row))),
        ]
    }

    fn film_company(&self, rows: Range<u64>) -> Vec<(&'static str, ArrayRef)> {
        let of = |column| draws("film_company", column);
        let (of_companies, company) = (of("company_id"), Zipf::new(self.countries.len() as u64, 0.9));
        let (of_kinds, kind) = (of("kind"), Zipf::new(4, 0.7));
        let of_notes = of("note");
        let company = |row: u64| company.draw(of_companies, row);
        let note = |row: u64| match self.countries[company(row) as usize] {
            0 => ["(presents)", "(co-production)", "(VHS)", "(USA)", ""][of_notes.below(row, 5) as usize],
            _ => ["(worldwide)", "(TV)", ""][of_notes.below(row, 3) as usize],
        };
        let kinds = ["production", "distribution", "effects", "misc"];
        vec![
            ("id", longs(rows.clone(), |row| row)),
            ("film_id", longs(rows.clone(), self.film_of("film_company"))),
            ("company_id", longs(rows.clone(), company)),
            ("kind", texts(rows.clone(), |row| kinds[kind.draw(of_kinds, row) as usize])),
            ("note", texts(rows, note)),
        ]
    }
}

impl Source for Films {
    fn tables(&self) -> Vec<Table> {
        let table = |name, rows| Table { name, rows, files: 1 };
        let scaled = |name, rows| table(name, rows_at(self.scale, rows));
        vec![
            table("kind", KINDS.len() as u64),
            table("role", ROLES.len() as u64),
            table("info_type", INFO_TYPE_COUNT),
            scaled("film", 600_000.0),
            scaled("person", 1_000_000.0),
            scaled("company", 60_000.0),
            scaled("keyword", 40_000.0),
            scaled("cast_info", 6_000_000.0),
            scaled("film_info", 3_000_000.0),
            scaled("film_keyword", 1_500_000.0),
            scaled("film_company", 900_000.0),
        ]
    }

    fn batch(&self, table: &str, rows: Range<u64>) -> Result<RecordBatch, ArrowError> {
        let listed = |column, names: &'static [&'static str], other: &'static str| {
            let name = |row: u64| match names.get(row as usize) {
                Some(name) => (*name).to_owned(),
                None => format!("{other}{row}"),
            };
            vec![("id", longs(rows.clone(), |row| row)), (column, texts(rows.clone(), name))]
        };
        let columns = match table {
            "kind" => listed("name", &KINDS, ""),
            "role" => listed("name", &ROLES, ""),
            "info_type" => listed("name", &INFO_TYPES, "info "),
            "keyword" => listed("word", &KEYWORDS, "word-"),
            "film" => self.film(rows),
            "person" => self.person(rows),
            "company" => self.company(rows),
            "cast_info" => self.cast_info(rows),
            "film_info" => self.film_info(rows),
            "film_keyword" => self.film_keyword(rows),
            "film_company" => self.film_company(rows),
            other => return Err(ArrowError::InvalidArgumentError(format!("no table \"{other}\""))),
        };
        RecordBatch::try_from_iter_with_nullable(
            columns.into_iter().map(|(name, column)| (name, column, true)),
        )
    }
}

/// Films in another order, in which movies tend to come before series and those before all others.
fn by_frequency(kinds: &[u8], draws: Draws) -> Vec<u32> {
    let class = |kind| match kind {
        MOVIE => 0.0,
        SERIES => 1.0,
        _ => 2.0,
    };
    let mut keys: Vec<(f64, u32)> = kinds
        .iter()
        .zip(0..)
        .map(|(kind, film)| (class(*kind) + 1.2 * draws.unit(u64::from(film)), film))
        .collect();
    keys.sort_by(|(a, _), (b, _)| a.total_cmp(b));
    keys.into_iter().map(|(_, film)| film).collect()
}

/// Names of some syllables, and the number of the row.
fn names(table: &str, syllables: u64, rows: Range<u64>) -> ArrayRef {
    let draws = draws(table, "name");
    let name = |row: u64| {
        let parts = (0..syllables).map(|part| SYLLABLES[draws.below(row * syllables + part, 12) as usize]);
        let mut name: String = parts.collect();
        name[..1].make_ascii_uppercase();
        format!("{name} {row}")
    };
    texts(rows, name)
}

fn longs(rows: Range<u64>, value: impl Fn(u64) -> u64) -> ArrayRef {
    Arc::new(Int64Array::from_iter_values(rows.map(|row| value(row) as i64)))
}

fn ints(rows: Range<u64>, value: impl Fn(u64) -> i32) -> ArrayRef {
    Arc::new(Int32Array::from_iter_values(rows.map(value)))
}

fn texts<T: AsRef<str>>(rows: Range<u64>, value: impl Fn(u64) -> T) -> ArrayRef {
    Arc::new(StringArray::from_iter_values(rows.map(value)))
}

#[cfg(test)]
mod tests {
    use arrow::array::AsArray;
    use arrow::datatypes::Int64Type;

    use super::*;

    #[test]
    fn tables_grow_with_the_scale() {
        let rows =
            |scale| -> Vec<u64> { Films::new(scale).tables().iter().map(|table| table.rows).collect() };
        assert_eq!(rows(0.01), [7, 12, 110, 6000, 10_000, 600, 400, 60_000, 30_000, 15_000, 9000]);
        assert_eq!(rows(0.001)[3..], [600, 1000, 60, 40, 6000, 3000, 1500, 900]);
    }

    #[test]
    fn rows_are_the_same_each_time_and_in_any_piece() {
        let (one, other) = (Films::new(0.001), Films::new(0.001));
        for Table { name, rows, .. } in one.tables() {
            let all = one.batch(name, 0..rows).unwrap();
            assert_eq!(all, other.batch(name, 0..rows).unwrap(), "{name}");
            let middle = rows / 2;
            assert_eq!(all.slice(middle as usize, 1), one.batch(name, middle..middle + 1).unwrap(), "{name}");
        }
        assert!(one.batch("films", 0..1).is_err());
    }

    #[test]
    fn references_are_skewed_towards_movies_and_never_miss() {
        let films = Films::new(0.01);
        for ((table, exponent), order) in REFERENCES.into_iter().zip(&films.orders) {
            let rows = films.rows_of(table);
            let batch = films.batch(table, 0..rows).unwrap();
            let references = batch.column_by_name("film_id").unwrap().as_primitive::<Int64Type>();
            let mut counts = vec![0_u64; films.kinds.len()];
            references.values().iter().for_each(|film| counts[*film as usize] += 1);
            let of = |film: &u32| counts[*film as usize];
            let is_movie = |film: &&u32| films.kinds[**film as usize] == MOVIE;
            // A quarter of the films are movies.
            let movies: u64 = order.iter().filter(is_movie).map(of).sum();
            assert!(movies * 3 > rows, "{table}: {movies} of {rows}");
            let tenth = order.len() / 10;
            let found = order[..tenth].iter().map(of).sum::<u64>() as f64 / rows as f64;
            let law = |films: usize| (films as f64).powf(1.0 - exponent) - 1.0;
            let share = law(tenth) / law(order.len());
            assert!((found - share).abs() < 0.02, "{table}: {found} instead of {share}");
        }
    }

    #[test]
    fn documentaries_have_the_genre_of_that_name() {
        let films = Films::new(0.01);
        let batch = films.batch("film_info", 0..films.rows_of("film_info")).unwrap();
        let film = batch.column(1).as_primitive::<Int64Type>();
        let info_type = batch.column(2).as_primitive::<Int64Type>();
        let value = batch.column(3).as_string::<i32>();
        let mut documentaries = 0;
        for row in 0..batch.num_rows() {
            let is_documentary = films.kinds[film.value(row) as usize] == DOCUMENTARY;
            if is_documentary && info_type.value(row) == GENRES_TYPE as i64 {
                assert_eq!(value.value(row), "Documentary");
                documentaries += 1;
            }
        }
        assert!(documentaries > 50, "{documentaries}");
    }
}
