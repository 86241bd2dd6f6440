//! Runs a program beside servers of its own: S3 by way of a proxy that delays and counts, and HDFS.
//!
//! usage: servers [--s3-delay MS] -- PROGRAM ARGUMENTS…
//!        servers --keep
//!
//! `--keep` starts S3, HDFS and PostgreSQL for other processes, prints a line VARIABLE=VALUE for each by
//! which they find it, then `up`, and ends with its standard input. What cannot be installed is left out, and
//! told on standard error.
//!
//! In the arguments `{s3}` and `{hdfs}` stand for a folder in each, which start them; after `{s3}` comes who
//! counts its requests, as `harrier bench commit --store` wants it. The program finds the credentials in its
//! environment. Exit status: the program's.

use std::process::{Command, ExitCode};
use std::time::Duration;

use harrier_servers::{ACCESS_KEY, Fault, Hdfs, Postgres, Proxy, REGION, Rule, S3, SECRET_KEY};

fn main() -> ExitCode {
    let mut arguments: Vec<String> = std::env::args().skip(1).collect();
    if arguments == ["--keep"] {
        return keep();
    }
    let mut delay = Duration::ZERO;
    if arguments.first().is_some_and(|word| word == "--s3-delay") && arguments.len() > 1 {
        match arguments[1].parse() {
            Ok(millis) => delay = Duration::from_millis(millis),
            Err(_) => return usage(),
        }
        arguments.drain(..2);
    }
    if arguments.first().is_some_and(|word| word == "--") {
        arguments.remove(0);
    }
    let Some((program, arguments)) = arguments.split_first() else { return usage() };
    let mut command = Command::new(program);
    let wants = |what: &str| arguments.iter().any(|argument| argument.contains(what));
    let mut replaced = vec![];
    let mut proxy = None;
    if wants("{s3}") {
        let Some(server) = S3::shared_instance() else { return ExitCode::FAILURE };
        let started = Proxy::start(server.address());
        if delay > Duration::ZERO {
            started.add(Rule::new(Fault::Delay(delay)));
        }
        command
            .env("AWS_ACCESS_KEY_ID", ACCESS_KEY)
            .env("AWS_SECRET_ACCESS_KEY", SECRET_KEY)
            .env("AWS_REGION", REGION)
            .env("AWS_ENDPOINT_URL", started.endpoint())
            .env("AWS_ALLOW_HTTP", "true");
        replaced.push(("{s3}", format!("s3://{}/bench,requests={}", server.new_bucket(), started.address())));
        proxy = Some(started);
    }
    if wants("{hdfs}") {
        let Some(server) = Hdfs::shared_instance() else { return ExitCode::FAILURE };
        replaced.push(("{hdfs}", format!("{}/bench", server.url())));
    }
    let words = arguments.iter().map(|argument| {
        replaced.iter().fold(argument.clone(), |argument, (what, with)| argument.replace(what, with))
    });
    let status = command.args(words).status();
    drop(proxy);
    match status {
        Ok(status) => ExitCode::from(status.code().unwrap_or(1) as u8),
        Err(error) => {
            eprintln!("{program}: {error}");
            ExitCode::FAILURE
        }
    }
}

fn keep() -> ExitCode {
    let s3 = std::thread::spawn(|| S3::shared_instance().map(S3::variable));
    let hdfs = std::thread::spawn(|| Hdfs::shared_instance().map(Hdfs::variable));
    let postgres = Postgres::shared_instance().map(Postgres::variable);
    let others = [s3, hdfs].map(|server| server.join().unwrap_or_default());
    for (variable, value) in others.into_iter().chain([postgres]).flatten() {
        println!("{variable}={value}");
    }
    println!("up");
    for line in std::io::stdin().lines() {
        if line.is_err() {
            break;
        }
    }
    ExitCode::SUCCESS
}

fn usage() -> ExitCode {
    eprintln!("usage: servers [--s3-delay MS] -- PROGRAM ARGUMENTS…\n       servers --keep");
    ExitCode::from(2)
}
